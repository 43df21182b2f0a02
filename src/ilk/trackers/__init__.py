"""Trackers that people use already: a run's rounds are told to them while it runs.

A tracker is a class with the three calls of `Tracker`, found by name through the entry point group ``ilk.trackers``; an
instance follows one run. What a tracker does wrong never harms a run: it is said once, and the tracker is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from ilk.errors import IlkError, unknown
from ilk.runs.folder import RESULT, RUN, read_json

Row = Mapping[str, Any]


class Tracker(Protocol):
    """Follows one run. On resume the rounds played before are told again, from the first."""

    def begin(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        """Begin, in the first round: the run's folder, what to call it, and what decides its outcome, as flat values."""

    def round(self, number: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a round, each by its name in the history."""

    def end(self, finished: bool) -> None:
        """End, after the last round or when the run was stopped."""


def tracker_class(name: str) -> Callable[[], Tracker]:
    """Return the tracker of this name."""
    known = {entry.name: entry for entry in entry_points(group="ilk.trackers")}
    if name not in known:
        raise unknown("tracker", name, known)
    try:
        made: Callable[[], Tracker] = known[name].load()
    except ImportError as error:
        raise IlkError(
            f"--track {name} needs a package that is not here ({error}): pip install 'ilk[{name}]'."
        ) from None
    return made


@contextmanager
def tracking(names: Sequence[str]) -> Iterator[Callable[[Path], Callable[[Row], None]]]:
    """Yield what gives the run in a folder its listener, which tells these trackers of every round."""
    classes = {name: tracker_class(name) for name in dict.fromkeys(names)}
    followed: list[_Followed] = []

    def follow(folder: Path) -> Callable[[Row], None]:
        if (folder / RESULT).exists():  # played before, only read again
            return lambda row: None
        mine = [_Followed(name, made(), folder) for name, made in classes.items()]
        followed.extend(mine)

        def listen(row: Row) -> None:
            for one in mine:
                one.tell(row)

        return listen

    try:
        yield follow
    finally:
        for one in followed:
            one.end()


class _Followed:
    """A tracker on one run, until it fails."""

    def __init__(self, name: str, tracker: Tracker, folder: Path) -> None:
        self.name, self.tracker, self.folder = name, tracker, folder
        self.begun = self.failed = False

    def tell(self, row: Row) -> None:
        """Tell it of a round."""
        self._try(lambda: self._tell(row))

    def end(self) -> None:
        """Let it end, if it began."""
        if self.begun:
            self._try(lambda: self.tracker.end((self.folder / RESULT).exists()))

    def _tell(self, row: Row) -> None:
        if not self.begun:
            config = read_json(self.folder / RUN)["config"]
            self.tracker.begin(self.folder, f"{config['method']} seed {config['seed']}", flat(config))
            self.begun = True
        self.tracker.round(int(row["round"]), scalars(row))

    def _try(self, action: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            action()
        except Exception as error:
            self.failed = True
            print(
                f"Warning: the tracker {self.name} failed ({type(error).__name__}: {error}); the run goes on without it.",
                file=sys.stderr,
            )


def scalars(row: Row) -> dict[str, float]:
    """Return the numbers of a history row, the round's own aside."""
    return {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "round"
    }


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested values by dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found
