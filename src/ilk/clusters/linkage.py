"""Agglomerative clustering of a distance matrix, and the ways to cut the tree. SciPy builds the tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Linkage = Literal["upgma", "wpgma", "complete", "single"]
SCIPY: dict[Linkage, str] = {"upgma": "average", "wpgma": "weighted", "complete": "complete", "single": "single"}


def tree(distance: NDArray[np.floating], linkage: Linkage) -> Array:
    """Return the merge tree in SciPy's form: a row a merge (two nodes, height, members).

    `distance` is square, or has each pair once (clusters/condensed.py).
    """
    pairs = squareform(distance, checks=False) if distance.ndim == 2 else distance
    if not len(pairs):
        return np.empty((0, 4))
    merges: Array = hierarchy.linkage(pairs, SCIPY[linkage])
    return merges


def ward(points: Array) -> Array:
    """Return the merge tree of Ward's linkage of the rows of a matrix, by their Euclidean distances."""
    if len(points) < 2:
        return np.empty((0, 4))
    merges: Array = hierarchy.linkage(points, "ward")
    return merges


def cut(merges: Array, allowed: Sequence[bool] | NDArray[np.bool_]) -> Labels:
    """Return the clusters after all merges that are allowed; above one that is refused none is made.

    Clusters are numbered by their first member.
    """
    count, parts = len(merges) + 1, merges[:, :2].astype(np.int64).tolist()
    whole = [True] * count
    for (a, b), allow in zip(parts, allowed, strict=True):
        whole.append(bool(whole[a] and whole[b] and allow))
    top = list(range(len(whole)))  # the largest whole node that a node is in: its parent's, if that is whole
    for node in range(len(whole) - 1, count - 1, -1):
        if whole[node]:
            a, b = parts[node - count]
            top[a] = top[b] = top[node]
    return by_first_member(np.array(top[:count], dtype=np.int64))


def smaller_part(merges: Array) -> NDArray[np.int64]:
    """Return for each merge how many members the smaller of its two parts has."""
    sizes = np.concatenate([np.ones(len(merges) + 1), merges[:, 3]])
    smaller = np.minimum(sizes[merges[:, 0].astype(int)], sizes[merges[:, 1].astype(int)])
    return np.asarray(smaller, dtype=np.int64)


def cut_at(merges: Array, threshold: float) -> Labels:
    """Return the clusters when everything up to this height is merged."""
    return cut(merges, merges[:, 2] <= threshold)


def cut_into(merges: Array, clusters: int) -> Labels:
    """Return this many clusters; every client alone if there are not more clients."""
    return cut(merges, np.arange(len(merges)) <= len(merges) - clusters)


def cut_at_gap(merges: Array) -> Labels:
    """Return the clusters below the largest step between two successive heights. Never one cluster: see split-half."""
    heights = merges[:, 2]
    if len(heights) < 2:
        return np.arange(len(merges) + 1)
    step = int(np.argmax(np.diff(heights)))
    return cut_into(merges, len(heights) - step)


def by_first_member(labels: NDArray[np.int64]) -> Labels:
    """Number clusters 0, 1, 2, ... in the order of their first members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.int64)


def keep_numbers(labels: Labels, before: Labels, taken: int = 0) -> Labels:
    """Number clusters as they were numbered before (-1: in none), matched so that most clients keep their number.

    A cluster that nobody, or too few, of an old one are in gets a new number, in the order of first members. Numbers below
    `taken` are not new, even if nobody has them any more.
    """
    labels, count = by_first_member(labels), max(int(before.max(initial=-1)) + 1, taken)
    number = np.full(labels.max(initial=-1) + 1, -1)
    for new, old, shared in _shared(labels, before):
        rows, columns = linear_sum_assignment(shared, maximize=True)
        matched = shared[rows, columns] > 0
        number[new[rows[matched]]] = old[columns[matched]]
    number[number < 0] = count + np.arange(np.sum(number < 0))
    return np.asarray(number[labels], dtype=np.int64)


def _shared(labels: Labels, before: Labels) -> Iterator[tuple[Labels, Labels, NDArray[np.int64]]]:
    """Yield new clusters, old clusters, and how many clients each two share, for each part that shares none with the rest.

    Where little has changed these parts are single clusters: the table of all could not be held for many clusters.
    """
    was = before >= 0
    pairs, clients = np.unique(np.stack([labels[was], before[was]]), axis=1, return_counts=True)
    if not len(clients):
        return
    new, old = pairs
    size = int(max(new.max(), old.max())) + 1
    _, part = connected_components(coo_array((clients, (new, old + size)), shape=(2 * size, 2 * size)), directed=False)
    order = np.argsort(part[new], kind="stable")
    for here in np.split(order, np.flatnonzero(np.diff(part[new][order])) + 1):
        rows, row = np.unique(new[here], return_inverse=True)
        columns, column = np.unique(old[here], return_inverse=True)
        shared = np.zeros((len(rows), len(columns)), dtype=np.int64)
        shared[row, column] = clients[here]
        yield rows, columns, shared
