"""Agglomerative clustering of a distance matrix, and the ways to cut the tree. SciPy builds the tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Linkage = Literal["upgma", "wpgma", "complete", "single"]
SCIPY: dict[Linkage, str] = {"upgma": "average", "wpgma": "weighted", "complete": "complete", "single": "single"}


def tree(distance: Array, linkage: Linkage) -> Array:
    """Return the merge tree in SciPy's form: a row a merge (two nodes, height, members)."""
    if len(distance) < 2:
        return np.empty((0, 4))
    merges: Array = hierarchy.linkage(squareform(distance, checks=False), SCIPY[linkage])
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
    count = len(merges) + 1
    members: list[list[int]] = [[k] for k in range(count)]
    whole = [True] * count
    for (a, b, _, _), allow in zip(merges, allowed, strict=True):
        members.append(members[int(a)] + members[int(b)])
        whole.append(whole[int(a)] and whole[int(b)] and bool(allow))
    labels = np.full(count, -1, dtype=np.int64)
    for node in range(len(members) - 1, -1, -1):  # the largest whole node that a client is in
        if whole[node] and labels[members[node][0]] < 0:
            labels[members[node]] = node
    return by_first_member(labels)


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


def keep_numbers(labels: Labels, before: Labels) -> Labels:
    """Number clusters as they were numbered before (-1: in none), matched so that most clients keep their number.

    A cluster that nobody, or too few, of an old one are in gets a new number, in the order of first members.
    """
    labels, count = by_first_member(labels), int(before.max(initial=-1)) + 1
    shared = np.zeros((labels.max(initial=-1) + 1, count), dtype=np.int64)
    np.add.at(shared, (labels[before >= 0], before[before >= 0]), 1)
    number = np.full(len(shared), -1)
    new, old = linear_sum_assignment(shared, maximize=True)
    matched = shared[new, old] > 0
    number[new[matched]] = old[matched]
    number[number < 0] = count + np.arange(np.sum(number < 0))
    return np.asarray(number[labels], dtype=np.int64)
