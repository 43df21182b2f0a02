"""``ilk compare``: several methods on the same federation."""

from __future__ import annotations

from ilk.cli.arguments import Asked
from ilk.cli.run import play


def compare(asked: Asked) -> None:
    """Run several methods side by side."""
    play(asked, several=True)
