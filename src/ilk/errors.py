"""Errors that a person can act on: what was given, what is allowed, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class IlkError(Exception):
    """Something that the user can put right. The command line prints its message and exits with code 2."""


class IlkWarning(UserWarning):
    """Something that the user should know about a result. The command line prints it on stderr and goes on."""


class Interrupted(IlkError):
    """The user stopped a run; its folder is whole and the message says how to go on."""


def unknown(what: str, given: str, allowed: Iterable[str]) -> IlkError:
    """The error for a name that does not exist, with the nearest name that does."""
    names = sorted(allowed)
    near = get_close_matches(given.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return IlkError(f"There is no {what} '{given}'.{hint} There are: {', '.join(names)}.")
