"""Tables for the charts of who is with whom; where there are too many clients to draw, summaries, and what they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ilk.report.charts.look import shown_clusters
from ilk.report.numbers import Table, choice
from ilk.report.proximity import Proximity, in_the_plane
from ilk.report.reading import Reading

BLOCKS = 50  # rows and columns of a heat map
BRANCHES = 200  # merges that are drawn, the highest
MAPPED = 600  # dots of a map
LABELLED = 100  # clients with a row of their own in the chart of labels
LABELS = 60  # labels with a column of their own


@dataclass(frozen=True)
class Drawn:
    """The tables of one matrix and its tree, and what was summarised."""

    cells: Table
    branches: Table
    leaves: Table
    note: str


def matrix_tables(near: Proximity, ids: list[str]) -> Drawn:
    """Return the matrix in the order of its tree; of more than `BLOCKS` clients, means over neighbours in that order."""
    count = len(near.order)
    blocks = [np.asarray(block) for block in np.array_split(near.order, min(count, BLOCKS))]
    names = [_block_name([ids[near.clients[k]] for k in block]) for block in blocks]
    shown = shown_clusters([int(cluster) + 1 for cluster in near.cluster])
    leaves: Table = []
    for at, (block, name) in enumerate(zip(blocks, names, strict=True)):
        usual = max(block, key=lambda k: (near.cluster[block] == near.cluster[k]).sum())
        leaves.append({"name": name, "at": at + 0.5, "cluster": int(near.cluster[usual]) + 1, "shown": shown[usual]})
    cells: Table = []
    for row, name in zip(blocks, names, strict=True):
        means = [float(near.distance[np.ix_(row, column)].mean()) for column in blocks]
        cells += [{"row": name, "column": other, "value": mean} for other, mean in zip(names, means, strict=True)]
    branches, left_out = _branches(near, len(blocks) / count)
    notes = []
    if near.measured > count:
        notes.append(f"Of {near.measured:,} clients a random choice of {count:,} is drawn.")
    if count > BLOCKS:
        notes.append(
            f"Each cell is a mean over about {count // BLOCKS} clients a side that are neighbours in the tree."
        )
    if left_out:
        notes.append(f"Of the tree the {BRANCHES} highest merges are drawn.")
    return Drawn(cells, branches, leaves, " ".join(notes))


def _block_name(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} clients)"


def _branches(near: Proximity, scale: float) -> tuple[Table, int]:
    """Return four points for each merge: up from one part, across, and down to the other."""
    count = len(near.order)
    at, height = np.empty(count + len(near.merges)), np.zeros(count + len(near.merges))
    at[near.order] = (np.arange(count) + 0.5) * scale
    for k, (a, b, merged, _) in enumerate(near.merges):
        at[count + k] = (at[int(a)] + at[int(b)]) / 2
        height[count + k] = merged
    rows: Table = []
    first = max(len(near.merges) - BRANCHES, 0)
    for k, (a, b, merged, _) in list(enumerate(near.merges))[first:]:
        ends = [(height[int(a)], at[int(a)]), (merged, at[int(a)]), (merged, at[int(b)]), (height[int(b)], at[int(b)])]
        rows += [{"merge": k, "step": s, "height": float(h), "at": float(y)} for s, (h, y) in enumerate(ends)]
    return rows, first


def plane_table(near: Proximity, ids: list[str]) -> tuple[Table, str]:
    """Return a dot for each client, and how well the map says it."""
    points, agreement = in_the_plane(near.distance)
    shown = shown_clusters([int(cluster) + 1 for cluster in near.cluster])
    rows: Table = [
        {"client": ids[k], "x": float(x), "y": float(y), "cluster": int(cluster) + 1, "shown": name}
        for k, (x, y), cluster, name in zip(near.clients, points, near.cluster, shown, strict=True)
    ]
    note = f"Near is alike; the axes mean nothing. The map's distances correlate with the measured ones by {agreement:.2f}."
    if len(rows) > MAPPED:
        note += f" Of {len(rows):,} clients a random choice of {MAPPED:,} is drawn."
        rows = [rows[k] for k in choice(len(rows), MAPPED)]
    return rows, note


def label_table(reading: Reading) -> tuple[Table, str]:
    """Return each client's share of each label, grouped by cluster; of many clients, each cluster's. And words on it."""
    counts, cluster = reading.labels, reading.cluster
    if counts is None:
        return [], ""
    note = _labels_in_words(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), cluster)
    groups: list[tuple[str, list[int]]]
    if len(counts) <= LABELLED:
        order = sorted(range(len(counts)), key=lambda k: int(cluster[k]))
        groups = [(f"{int(cluster[k]) + 1} · {reading.ids[k]}", [k]) for k in order]
    else:
        numbers, sizes = np.unique(cluster, return_counts=True)
        largest = sorted(numbers[np.argsort(-sizes, kind="stable")][:LABELLED])
        groups = [(f"cluster {z + 1}", [int(k) for k in np.flatnonzero(cluster == z)]) for z in largest]
        note += f" Of {len(counts):,} clients the sums of each cluster are drawn"
        note += f", of the {len(largest)} largest." if len(largest) < len(numbers) else "."
    rows: Table = []
    for name, members in groups:
        total = counts[members].sum(axis=0)
        shares = total / max(int(total.sum()), 1)
        rows += [{"name": name, "label": label, "share": float(s)} for label, s in enumerate(shares[:LABELS])]
    if counts.shape[1] > LABELS:
        note += f" Of {counts.shape[1]} labels the first {LABELS} are drawn."
    return rows, note


def _labels_in_words(shares: NDArray[np.float64], cluster: NDArray[np.int64]) -> str:
    """Say how far clients' labels differ within clusters and between them: total variation to the cluster's mean."""
    means = np.stack([shares[cluster == z].mean(axis=0) for z in np.unique(cluster)])
    row = np.searchsorted(np.unique(cluster), cluster)
    within = float(np.abs(shares - means[row]).sum(axis=1).mean() / 2)
    between = float(np.abs(means[row] - shares.mean(axis=0)).sum(axis=1).mean() / 2)
    said = (
        f"A client's labels differ from its cluster's by {100 * within:.0f} % of its samples on average, "
        f"a cluster's from everybody's by {100 * between:.0f} %."
    )
    if between <= within:
        said += " So labels do not tell these clusters apart; what does is in the inputs."
    return said
