"""Follow a run that is going on, in this process or another, by reading its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ilk.errors import IlkError
from ilk.runs.folder import EXPERIMENT, HISTORY, RESULT, RUN, read_json, worked_on

PACE = 5  # rounds that tell how long the next ones will take


@dataclass
class Followed:
    """One run: what has been read of its history so far."""

    folder: Path
    name: str
    rounds: int = 0
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    begun: bool = False
    finished: bool = False
    working: bool = False
    _position: int = 0

    def look(self) -> bool:
        """Read what is new; say whether there was anything."""
        if not self.begun:
            try:
                config = read_json(self.folder / RUN)["config"]
                self.rounds, self.begun = int(config["rounds"]), True
            except (IlkError, KeyError, TypeError, ValueError):
                return False
        finished = (self.folder / RESULT).exists()
        new = self._new_rows()
        self.rows += new
        changed = bool(new) or finished != self.finished
        self.finished, self.working = finished, not finished and worked_on(self.folder)
        return changed

    def _new_rows(self) -> list[Mapping[str, Any]]:
        try:
            with (self.folder / HISTORY).open("rb") as file:
                file.seek(0, 2)
                if file.tell() < self._position:  # cut off when it was resumed
                    self.rows, self._position = [], 0
                file.seek(self._position)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._position += len(whole)
        rows = []
        for line in whole.splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                raise IlkError(f"{self.folder / HISTORY} is damaged; it cannot be followed.") from None
        return rows

    @property
    def accuracies(self) -> list[float]:
        """Mean accuracy of every measured round."""
        return [float(row["accuracy"]) for row in self.rows if "accuracy" in row]

    @property
    def measured(self) -> Mapping[str, Any]:
        """The last measured round."""
        return next((row for row in reversed(self.rows) if "accuracy" in row), {})

    @property
    def played(self) -> int:
        """Rounds played so far."""
        return int(self.rows[-1]["round"]) if self.rows else 0

    @property
    def megabytes(self) -> float:
        """What has crossed so far, both directions."""
        return float(self.rows[-1]["bytes_up"] + self.rows[-1]["bytes_down"]) / 1e6 if self.rows else 0.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace of the last rounds."""
        pace = [float(row["seconds"]) for row in self.rows[-PACE:]]
        return None if not pace else sum(pace) / len(pace) * (self.rounds - self.played)


def follow(path: Path) -> list[Followed]:
    """Return the run in this folder, or all runs of the comparison that is going on there."""
    if (path / RUN).exists():
        return [Followed(path, str(read_json(path / RUN)["config"]["method"]))]
    if (path / EXPERIMENT).exists():
        asked = read_json(path / EXPERIMENT)
        seeds = asked.get("seeds") or [asked.get("seed", 0)]
        names = [(method, seed) for seed in seeds for method in asked.get("methods", [])]
        return [
            Followed(path / f"{method}-seed{seed}", method if len(seeds) == 1 else f"{method} seed {seed}")
            for method, seed in names
        ]
    raise IlkError(f"There is no run in {path}: it has no {RUN}. `ilk runs` lists those that there are.")


def sparkline(values: list[float], width: int = 24) -> str:
    """Draw values as a row of bars, the lowest and the highest of them at the ends of the scale."""
    if not values:
        return ""
    step = max(-(-len(values) // width), 1)
    chosen = [*values[:-1:step], values[-1]][-width:]
    low, high = min(chosen), max(chosen)
    bars = "▁▂▃▄▅▆▇█"
    return "".join(bars[int((value - low) / ((high - low) or 1.0) * 7.999)] for value in chosen)
