"""Who is with whom: what can be drawn of one method's clusters, and why not where not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ilk.report import flows, matrices
from ilk.report.charts import learning, proximity
from ilk.report.figure import Figure, Part, which_seed
from ilk.report.numbers import Summary, Table
from ilk.report.proximity import Proximity


def together(one: Summary, near: Proximity | None) -> list[Part]:
    """Return the figures and sentences on one series; its first seed is drawn."""
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
            words + which_seed(one),
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
        return [Figure(f"temperature-{one.series}", title, words + which_seed(one), draw)]
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
        return [Figure(f"norms-{one.series}", title, words + which_seed(one), draw)]
    return []
