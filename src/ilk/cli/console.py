"""The one way to print for people."""

from __future__ import annotations

from rich.console import Console

WIDTH = 100  # of what is piped into a file or a document


def console(stderr: bool = False) -> Console:
    """Return a console that fits the terminal; where there is none, lines of a fixed width."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH)
