"""Read runs for the report: also unfinished, damaged and empty ones, saying what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.errors import IlkError
from ilk.ledger import Entry, Ledger
from ilk.report.kept import Kept, kept_of
from ilk.report.names import clean, distinct
from ilk.runs.folder import EXPERIMENT, HISTORY, LABELS, LEDGER, RESULT, RUN, read_json, worked_on

Row = Mapping[str, Any]
SEEDED = ("seed", "split_seed", "federation")  # what differs between two runs of one series


@dataclass(frozen=True)
class Reading:
    """One run, as far as it can be read."""

    record: Mapping[str, Any]
    history: Sequence[Row]
    ledger: Ledger = field(default_factory=Ledger)
    kept: Kept = field(default_factory=Kept)
    labels: NDArray[np.int64] | None = None  # clients x labels, of training samples
    folder: Path | None = None
    finished: bool = True
    missing: tuple[str, ...] = ()
    series: str = ""  # what it is called: the method; with what differs, where a method was run in several ways

    @property
    def config(self) -> Mapping[str, Any]:
        """What was asked for."""
        config: Mapping[str, Any] = self.record["config"]
        return config

    @property
    def method(self) -> str:
        """Name of the method."""
        return clean(self.config["method"])

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.config["seed"])

    @cached_property
    def ids(self) -> list[str]:
        """The clients' names, fit to be shown."""
        return distinct(self.record["federation"]["ids"])

    @property
    def groups(self) -> NDArray[np.int64] | None:
        """The planted group of each client, where the split planted any."""
        groups = self.record["federation"].get("groups")
        return None if groups is None else np.asarray(groups)

    @property
    def evaluated(self) -> list[Row]:
        """The rounds after which clients were measured, and at least one of them could be."""
        return [row for row in self.history if "accuracy_by_client" in row and np.isfinite(row["accuracy"])]

    @property
    def last(self) -> Row | None:
        """The last of them."""
        return self.evaluated[-1] if self.evaluated else None

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Accuracy of each client at the end; NaN where a client could not be reached."""
        return numbers(self.last["accuracy_by_client"] if self.last else [None] * len(self.ids))

    @property
    def cluster(self) -> NDArray[np.int64]:
        """Cluster of each client at the end; nothing where no round was measured."""
        return np.asarray(self.last["cluster_by_client"] if self.last else [], dtype=np.int64)

    @property
    def setting(self) -> tuple[Any, ...]:
        """What two runs must share for their accuracies to be comparable."""
        names = ("data", "split", "clients", "test_policy", "protocol")
        return tuple(self.config.get(name) for name in names)


def numbers(values: Iterable[float | None]) -> NDArray[np.float64]:
    """Return numbers as an array, NaN for none."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def read_all(paths: Iterable[Path]) -> tuple[list[Reading], list[str]]:
    """Read runs and whole experiments. Return those that can be read, and what is missing of all, in words."""
    readings: list[Reading] = []
    missing: list[str] = []
    for path in paths:
        folders, absent = _folders(path)
        missing += absent
        for folder in folders:
            try:
                reading = read(folder)
            except IlkError as error:
                missing.append(str(error))
                continue
            if all(reading.folder != other.folder for other in readings):
                readings.append(reading)
    readings = named(readings)
    return readings, [*missing, *(f"{r.series}, seed {r.seed}: {what}" for r in readings for what in r.missing)]


def read(folder: Path) -> Reading:
    """Read one run's folder."""
    record = read_json(folder / RUN)
    try:
        reading = Reading(record, [], folder=folder)
        clients, rounds = len(reading.ids), int(reading.config["rounds"])
        _ = reading.method, reading.seed, reading.groups, reading.setting
    except (KeyError, TypeError, ValueError) as error:
        raise IlkError(f"{folder / RUN} is not the record of a run ({type(error).__name__}: {error}).") from None
    history, wrong_rows = _lines(folder / HISTORY, lambda row: _row(row, clients))
    entries, wrong_entries = _lines(folder / LEDGER, _entry)
    kept, wrong_kept = kept_of(folder)
    labels, wrong_labels = _labels(folder / LABELS, clients)
    missing = [*wrong_rows, *wrong_entries, *wrong_kept, *wrong_labels]
    finished = (folder / RESULT).exists()
    played = int(history[-1]["round"]) if history else 0
    if not finished:
        how = "still running" if worked_on(folder) else f"go on with: ilk run --resume {folder}"
        missing.insert(0, f"unfinished: {played} of {rounds} rounds; {how}")
    return Reading(record, history, Ledger(entries), kept, labels, folder, finished, tuple(missing))


def named(readings: Sequence[Reading]) -> list[Reading]:
    """Name the series: the method, and where one was run in several ways, what differs between them."""
    result = []
    for reading in readings:
        configs = [_flat(other.config) for other in readings if other.method == reading.method]
        own = _flat(reading.config)
        differing = [key for key in own if any(other.get(key) != own[key] for other in configs)]
        said = clean(", ".join(f"{key.removeprefix('options.')} {own[key]}" for key in differing))
        result.append(replace(reading, series=f"{reading.method} ({said})" if said else reading.method))
    return result


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if not before and key in SEEDED:
            continue
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat


def _folders(path: Path) -> tuple[list[Path], list[str]]:
    """Return the run folders of a run or an experiment, and what an experiment has not begun."""
    if not path.exists():
        raise IlkError(f"There is no folder {path}. `ilk runs` lists the runs that there are.")
    if (path / RUN).exists():
        return [path], []
    found = sorted(run.parent for run in path.glob("*/" + RUN))
    if not (path / EXPERIMENT).exists():
        return found, [] if found else [f"{path} holds no run: it has no {RUN}."]
    try:
        asked = read_json(path / EXPERIMENT)
        seeds = asked.get("seeds") or [asked.get("seed", 0)]
        planned = [path / f"{method}-seed{seed}" for seed in seeds for method in asked["methods"]]
    except (IlkError, KeyError, TypeError) as error:
        return found, [f"{path / EXPERIMENT} cannot be read ({error}); the runs that lie there are taken."]
    absent = [f"{folder.name}: planned in {path}, not begun" for folder in planned if folder not in found]
    return [*(folder for folder in planned if folder in found), *(f for f in found if f not in planned)], absent


def _lines(path: Path, understand: Any) -> tuple[list[Any], list[str]]:
    """Read lines of JSON up to the first that is damaged; a last line without an end is still being written."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return [], [f"{path.name} is missing"]
    except OSError as error:
        return [], [f"{path.name} cannot be read ({error.strerror})"]
    values = []
    for k, line in enumerate(text.split(b"\n")[:-1]):
        try:
            values.append(understand(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            return values, [f"{path.name} is damaged from line {k + 1} on; the {k} lines before are shown"]
    return values, []


def _row(row: Any, clients: int) -> Row:
    """Return a row of the history, or refuse it."""
    float(row["round"]), float(row["bytes_up"]), float(row["bytes_down"]), float(row["seconds"])
    if "accuracy_by_client" in row:
        float(row["accuracy"]), int(row["clusters"])
        accuracy, cluster = numbers(row["accuracy_by_client"]), np.asarray(row["cluster_by_client"], dtype=np.int64)
        if not len(accuracy) == len(cluster) == clients:
            raise ValueError("another number of clients")
    return dict(row)


def _entry(line: Any) -> Entry:
    entry = Entry(**{**line, "clients": tuple(line["clients"])})
    float(entry.bytes)
    return entry


def _labels(path: Path, clients: int) -> tuple[NDArray[np.int64] | None, list[str]]:
    try:
        counts = np.asarray(read_json(path)["train"], dtype=np.int64)
        if counts.ndim != 2 or len(counts) != clients:
            raise ValueError(f"it holds {counts.shape}, not a row for each of {clients} clients")
    except (IlkError, KeyError, TypeError, ValueError):
        return None, [
            f"{path.name}, with each client's labels, is missing (a server may not know them) or damaged: no histogram"
        ]
    return counts, []
