"""From what was read to plain tables: a list of rows for each chart, and the numbers that the words are made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ilk.methods.fedavg import FedAvg
from ilk.methods.solo import Solo
from ilk.report.reading import Reading, numbers

Table = list[dict[str, Any]]
ALONE, TOGETHER = Solo.name, FedAvg.name  # what a method is compared with
KINDS = {  # what the arrays in messages are, in the reader's words; everything else steers the method
    **dict.fromkeys(("model", "models", "peer_models"), "models"),
    **dict.fromkeys(("signature", "noise"), "signatures"),
    "histogram": "histograms",
}
TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)


def choice(count: int, most: int) -> list[int]:
    """Return which of so many are drawn: all, or a random choice, always the same. Every k-th would miss whole groups."""
    if count <= most:
        return list(range(count))
    return sorted(np.random.default_rng(0).choice(count, most, replace=False).tolist())


def by_series(readings: Iterable[Reading]) -> dict[str, list[Reading]]:
    """Return the runs of each series, in the order of seeds."""
    series: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        series[reading.series].append(reading)
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in series.items()}


def alone_of(reading: Reading, readings: Iterable[Reading]) -> Reading | None:
    """Return the run in which the same clients train alone, measured alike: to compare with; None if there is none."""
    for other in readings:
        same = other.seed == reading.seed and other.ids == reading.ids and other.setting == reading.setting
        same_data = other.config.get("federation") == reading.config.get("federation")
        if other.method == ALONE and same and same_data and other.last and reading.last:
            return other
    return None


def gains(reading: Reading, alone: Reading) -> Table:
    """Return a row a client: accuracy alone and together, in percent, and the gain in points."""
    sizes = reading.record["federation"].get("sizes") or [None] * len(reading.ids)
    rows: Table = []
    for k, name in enumerate(reading.ids):
        one, both = 100 * float(alone.accuracy[k]), 100 * float(reading.accuracy[k])
        if np.isnan(one) or np.isnan(both):
            continue
        row = {"client": name, "cluster": int(reading.cluster[k]) + 1, "samples": sizes[k]}
        rows.append({**row, "alone": one, "together": both, "gain": both - one})
    return rows


@dataclass(frozen=True)
class Summary:
    """One series in numbers: means over its seeds; clusters and losers of the first."""

    series: str
    method: str
    runs: Sequence[Reading]
    accuracy: float  # of clients, then of seeds; percent
    deviation: float | None  # over seeds
    worst: float
    clusters: int
    clients: int
    ari: float | None
    megabytes: float
    seconds: float
    gains: Table  # of the first seed; empty where nobody trained alone
    counted: Sequence[tuple[int, int, int]]  # of each seed: clients better, the same, worse

    @property
    def found(self) -> list[int]:
        """How many clusters each seed ended with."""
        return [len(np.unique(run.cluster)) for run in self.runs]

    @property
    def exact(self) -> bool:
        """Whether every seed found exactly the groups that were planted."""
        ari = [run.last.get("ari") for run in self.runs if run.last]
        return all(value is not None and value > 1 - 1e-12 for value in ari)

    @property
    def better(self) -> Table:
        """Who does better than alone."""
        return [row for row in self.gains if row["gain"] > 0]

    @property
    def worse(self) -> Table:
        """Who does worse than alone, the worst first."""
        return sorted((row for row in self.gains if row["gain"] < 0), key=lambda row: float(row["gain"]))


def summaries(readings: Sequence[Reading]) -> list[Summary]:
    """Return every series that has a measured round."""
    found = []
    for series, all_runs in by_series(readings).items():
        runs = [run for run in all_runs if run.last]
        if not runs:
            continue
        means = [100 * float(run.last["accuracy"]) for run in runs if run.last]
        pairs = [(run, alone) for run in runs if (alone := alone_of(run, readings)) and run.method != ALONE]
        tables = [gains(run, alone) for run, alone in pairs]
        last = runs[0].last or {}
        found.append(
            Summary(
                series=series,
                method=runs[0].method,
                runs=runs,
                accuracy=float(np.mean(means)),
                deviation=float(np.std(means, ddof=1)) if len(means) > 1 else None,
                worst=100 * float(np.mean([np.nanmin(run.accuracy) for run in runs])),
                clusters=len(np.unique(runs[0].cluster)),
                clients=len(runs[0].ids),
                ari=last.get("ari"),
                megabytes=float(np.mean([megabytes(run.history[-1]) for run in runs])),
                seconds=float(np.mean([sum(float(row["seconds"]) for row in run.history) for run in runs])),
                gains=tables[0] if pairs and pairs[0][0] is runs[0] else [],
                counted=[_counted(table) for table in tables],
            )
        )
    return found


def _counted(table: Table) -> tuple[int, int, int]:
    signs = [int(np.sign(row["gain"])) for row in table]
    return signs.count(1), signs.count(0), signs.count(-1)


def megabytes(row: Mapping[str, Any]) -> float:
    """Return what had crossed up to this round, both directions, in 1,000,000 bytes."""
    return (float(row["bytes_up"]) + float(row["bytes_down"])) / 1e6


def learning(readings: Sequence[Reading]) -> Table:
    """Return a row a series and measured round: mean accuracy over seeds, its band (one deviation), and the traffic."""
    rows: Table = []
    for series, runs in by_series(readings).items():
        at: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for run in runs:
            for row in run.evaluated:
                at[int(row["round"])].append(row)
        for round, together in sorted(at.items()):
            values = numbers(row["accuracy"] for row in together) * 100
            mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            moved = float(np.mean([megabytes(row) for row in together]))
            row = {"series": series, "round": round, "megabytes": moved, "accuracy": mean, "seeds": len(values)}
            rows.append({**row, "low": mean - spread, "high": mean + spread})
    return rows


def targets(learned: Table, most: int = 5) -> Table:
    """Return for some round accuracies the first measured round and the traffic at which each series reached them."""
    if not learned:
        return []
    low, high = min(row["accuracy"] for row in learned), max(row["accuracy"] for row in learned)
    chosen = [100 * target for target in TARGETS if low < 100 * target <= high][-most:]
    rows: Table = []
    for series in dict.fromkeys(row["series"] for row in learned):
        own = [row for row in learned if row["series"] == series]
        for target in chosen:
            first = next((row for row in own if row["accuracy"] >= target), None)
            reached = {"round": first and first["round"], "megabytes": first and first["megabytes"]}
            rows.append({"series": series, "target": target, **reached})
    return rows


def traffic(readings: Sequence[Reading]) -> Table:
    """Return a row a series, kind and direction: megabytes, mean over seeds, as the ledger counted them."""
    rows: Table = []
    for series, runs in by_series(readings).items():
        total: dict[tuple[str, str], float] = defaultdict(float)
        for run in runs:
            for entry in run.ledger.entries:
                total[KINDS.get(entry.kind, "control"), entry.direction] += entry.bytes / 1e6 / len(runs)
        rows += [{"series": series, "kind": k, "direction": d, "megabytes": m} for (k, d), m in sorted(total.items())]
    return rows


def phases(readings: Sequence[Reading]) -> Table:
    """Return a row a series and phase: seconds, mean over seeds."""
    rows: Table = []
    for series, runs in by_series(readings).items():
        total = {"beginning": 0.0, "rounds": 0.0, "measuring": 0.0}
        for run in runs:
            for row in run.history:
                start, round = float(row.get("start_seconds") or 0.0), float(row.get("round_seconds") or 0.0)
                for phase, seconds in zip(total, (start, round, float(row["seconds"]) - start - round), strict=True):
                    total[phase] += max(seconds, 0.0) / len(runs)
        rows += [{"series": series, "phase": phase, "seconds": seconds} for phase, seconds in total.items()]
    return rows


def measured_thresholds(readings: Sequence[Reading], method: str) -> Table:
    """Return what runs of one method reached with different thresholds that were given as numbers."""
    rows: Table = []
    for run in readings:
        threshold = run.config["options"].get("threshold")
        if run.method == method and run.last and isinstance(threshold, int | float):
            accuracy, clusters = 100 * float(run.last["accuracy"]), int(run.last["clusters"])
            rows.append({"threshold": float(threshold), "accuracy": accuracy, "clusters": clusters, "seed": run.seed})
    return sorted(rows, key=lambda row: (row["threshold"], row["seed"]))
