"""What is drawn of which runs, in the order in which a reader asks. The page and the figures are made from this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from altair.utils.schemapi import debug_mode

from ilk.report import flows, matrices, numbers
from ilk.report.charts import cost, gains, learning, proximity
from ilk.report.charts.look import Chart, Look
from ilk.report.numbers import ALONE, Summary, Table
from ilk.report.proximity import Proximity, clusters_at, proximity_of
from ilk.report.reading import Reading

DRAWN = 6  # series that have charts of their own: the most accurate


@dataclass(frozen=True)
class Figure:
    """A chart that can be drawn in any size, and what it shows."""

    key: str
    title: str
    caption: str
    draw: Callable[[Look], Chart]

    def specification(self, look: Look) -> dict[str, Any]:
        """Return the chart as Vega-Lite. Altair's checks are for those who write charts: the tests have them on."""
        with debug_mode(False):
            made: dict[str, Any] = self.draw(look).to_dict(validate=False)
        return made


Part = Figure | str  # a figure, or a sentence where there is nothing to draw


@dataclass(frozen=True)
class Sections:
    """The parts of each section of the page."""

    gains: list[Part]
    together: list[Part]
    learned: list[Part]
    costs: list[Part]
    threshold: list[Part]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        parts = [*self.gains, *self.together, *self.learned, *self.costs, *self.threshold]
        return [part for part in parts if isinstance(part, Figure)]


def sections(readings: Sequence[Reading], found: Sequence[Summary]) -> Sections:
    """Return everything that can be drawn of these runs."""
    ranked = sorted((one for one in found if one.method != ALONE), key=lambda one: -one.accuracy)
    drawn = ranked[:DRAWN]
    more = [f"Drawn are the {DRAWN} most accurate of {len(ranked)}."] if len(ranked) > DRAWN else []
    near = {one.series: proximity_of(one.runs[0]) for one in drawn}
    return Sections(
        gains=[*more, *(_gain(one) for one in drawn)],
        together=[*more, *(part for one in drawn for part in _together(one, near[one.series]))],
        learned=_learned(readings),
        costs=_costs(readings),
        threshold=[part for one in drawn for part in _threshold(one, near[one.series], readings)],
    )


def _seed(one: Summary) -> str:
    return f" Seed {one.runs[0].seed} of {len(one.runs)}." if len(one.runs) > 1 else ""


def _gain(one: Summary) -> Part:
    if not one.gains:
        return f"{one.series}: no run in which the same clients train alone was given, so who gains cannot be drawn."
    words = "A dot is a client; above the dashed diagonal it does better than alone. Those that lose most are named."
    if len(one.gains) > gains.MOST:
        words += f" Of {len(one.gains):,} clients a random choice of {len(gains.thinned(one.gains)):,} is drawn."
    return Figure(
        f"gains-{one.series}",
        f"{one.series}: accuracy alone and together",
        words + _seed(one),
        lambda look: gains.who_gains(one.gains, look),
    )


def _together(one: Summary, near: Proximity | None) -> list[Part]:
    run, name, parts = one.runs[0], one.series, list[Part]()
    at = flows.memberships(run)
    if one.clusters == 1 and len(at) and all(len(np.unique(z)) == 1 for z in at.values()):
        parts.append(f"{name}: all clients share one model: one cluster.")
    if near:
        parts += _matrix(one, near)
    elif one.clusters > 1:
        parts.append(f"{name} keeps no matrix of distances between clients, so no heat map, tree or map is drawn.")
    if 1 < one.clusters < one.clients:
        table, note = matrices.label_table(run)
        if table:
            parts.append(_labels(one, table, note))
    parts += _watched(one, at)
    if any(flows.changes(at).values()):
        bands, columns, note = flows.flow_tables(at)
        words = f"Columns are rounds, bands are clients that stay or move. {note}"
        title = f"{name}: who moves from cluster to cluster"
        parts.append(Figure(f"flow-{name}", title, words, lambda look: proximity.flow(bands, columns, look)))
    elif one.clusters > 1 and len(at) > 1:
        parts.append(f"{name}: nobody moved: the clusters are the same in all {len(at)} measured rounds.")
    return parts


def _matrix(one: Summary, near: Proximity) -> list[Part]:
    name, ids = one.series, one.runs[0].ids
    drawn = matrices.matrix_tables(near, ids)
    points, note = matrices.plane_table(near, ids)
    cut = near.cut if near.consistent else None
    if not near.consistent:
        line = "No single height separates these clusters in this tree (clients joined later, or the limit varies)."
    elif near.threshold is not None:
        line = f"The dashed line is the threshold, {near.threshold:g}."
    elif cut is None:
        line = "All merges were made: one cluster."
    else:
        line = f"The dashed line lies between the last merge made ({near.highest_made:.3g}) and the first refused "
        line += f"({near.lowest_refused:.3g})."
    words = f"Colour: {near.what}. Rows and columns are in the order of the tree ({near.linkage}). {line} {drawn.note}"
    return [
        Figure(
            f"matrix-{name}",
            f"{name}: who is near whom",
            words + _seed(one),
            lambda look: proximity.matrix_and_tree(drawn.cells, drawn.branches, drawn.leaves, cut, near.unit, look),
        ),
        Figure(f"map-{name}", f"{name}: a map of the clients", note, lambda look: proximity.plane(points, look)),
    ]


def _labels(one: Summary, table: Table, note: str) -> Figure:
    title = f"{one.series}: the labels that each client has, by cluster"
    words = f"Rows begin with the cluster's number. {note}"
    return Figure(f"labels-{one.series}", title, words, lambda look: proximity.labels(table, look))


def _watched(one: Summary, at: dict[int, Any]) -> list[Part]:
    """Draw what OCFL and CFL report of the rounds in which they decide."""
    run = one.runs[0]
    counts = {round: len(np.unique(z)) for round, z in at.items()}
    rounds = list(counts)
    grew = [now for then, now in pairwise(rounds) if counts[now] > counts[then]]
    if rounds and counts[rounds[0]] > 1 and rounds[0] == 1:
        grew.insert(0, rounds[0])
    heat: Table = [
        {"round": row["round"], "series": "temperature", "value": row["temperature"]}
        for row in run.history
        if row.get("temperature") is not None
    ]
    if heat:
        moment = run.kept.plain.get("clustered_at")
        marks = [int(moment)] if moment else []
        words = f"Clustered in round {moment}, marked." if moment else "It never rose: not clustered."
        title = f"{one.series}: temperature of the clients' updates"
        draw = lambda look: learning.watched(heat, marks, "temperature", [], look)  # noqa: E731
        return [Figure(f"temperature-{one.series}", title, words + _seed(one), draw)]
    norms: Table = [
        {"round": row["round"], "series": f"{which} of cluster {z + 1}", "value": value}
        for row in run.history
        for z, pair in enumerate(row.get("norms") or [])
        if pair and z < 4
        for which, value in zip(("mean", "largest"), pair, strict=False)
    ]
    if norms:
        options = run.config["options"]
        levels: Table = [{"value": options[key], "said": key} for key in ("eps1", "eps2") if key in options]
        words = "A cluster may split when the norm of its mean update is below eps1 and its largest above eps2. "
        words += f"Splits in round {', '.join(map(str, grew))}, marked." if grew else "No split."
        words += " The first 4 clusters." if any(len(row.get("norms") or []) > 4 for row in run.history) else ""
        title = f"{one.series}: norms of the clusters' updates"
        draw = lambda look: learning.watched(norms, grew, "norm of update", levels, look)  # noqa: E731
        return [Figure(f"norms-{one.series}", title, words + _seed(one), draw)]
    return []


def _learned(readings: Sequence[Reading]) -> list[Part]:
    rows = numbers.learning(readings)
    if not rows:
        return ["No round was measured yet."]
    several = any(row["seeds"] > 1 for row in rows)
    words = "Mean over clients" + ("; mean and band (one standard deviation) over seeds." if several else "; one seed.")
    still = [
        s
        for s in dict.fromkeys(r["series"] for r in rows)
        if all(r["megabytes"] == 0 for r in rows if r["series"] == s)
    ]
    level = f" Level: {', '.join(still)}, which moves nothing." if still else ""
    return [
        Figure("learning-rounds", "Accuracy against rounds", words, lambda look: learning.over_rounds(rows, look)),
        Figure(
            "learning-megabytes",
            "Accuracy against traffic",
            words + level,
            lambda look: learning.over_megabytes(rows, look),
        ),
    ]


def _costs(readings: Sequence[Reading]) -> list[Part]:
    parts = list[Part]()
    moved, times = numbers.traffic(readings), numbers.phases(readings)
    if moved:
        words = "As the ledger counted: the bytes of every message. Mean over seeds."
        parts.append(Figure("bytes", "Bytes by kind", words, lambda look: cost.traffic_by_kind(moved, look)))
    else:
        parts.append("Nothing crossed between server and clients.")
    if any(row["seconds"] for row in times):
        words = "Beginning: before the first round. Rounds: training and averaging. Measuring: all clients' tests."
        words += " As simulated on this machine; mean over seeds."
        parts.append(Figure("seconds", "Seconds by phase", words, lambda look: cost.seconds_by_phase(times, look)))
    return parts


def _threshold(one: Summary, near: Proximity | None, readings: Sequence[Reading]) -> list[Part]:
    parts = list[Part]()
    if near:
        steps: Table = [{"threshold": height, "clusters": clusters} for height, clusters in clusters_at(near.merges)]
        cut = near.cut if near.consistent else None
        words = "Were the same tree cut at another height." + (" The dashed line is where it was cut." if cut else "")
        title = f"{one.series}: clusters against the threshold"
        draw = lambda look: learning.clusters_by_threshold(steps, cut, look)  # noqa: E731
        parts.append(Figure(f"threshold-{one.series}", title, words + _seed(one), draw))
    if "threshold" not in one.runs[0].config["options"]:
        return parts
    measured = numbers.measured_thresholds(readings, one.method)
    if len({row["threshold"] for row in measured}) > 1:
        words = "A dot is a run, with its number of clusters; the line is the mean."
        title = f"{one.method}: accuracy against the threshold"
        draw_measured = lambda look: learning.accuracy_by_threshold(measured, look)  # noqa: E731
        figure = Figure(f"accuracy-threshold-{one.method}", title, words, draw_measured)
        return [*parts, figure]
    return [
        *parts,
        f"{one.series}: accuracy at other thresholds was not measured. Run it with several "
        f"(ilk run {one.method} --set threshold=...) and give all their folders to `ilk report`.",
    ]
