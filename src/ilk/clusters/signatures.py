"""PACFL's data signatures: a few directions in which a client's samples mostly lie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Array = NDArray[np.float64]


def directions(x: Array, count: int) -> tuple[Array, Array]:
    """Return the leading left singular vectors of x (d x n, a sample a column), and their weights.

    There are `count` of them, or as many as the rank allows. They come from the smaller of the two Gram matrices. The
    weight of a direction is sqrt(s_a^2 - s_(count+1)^2) with the singular values s: what it stands out by over the
    first direction that is left out. The weights' squares sum to 1.
    """
    d, n = x.shape
    gram = x.T @ x if n < d else x @ x.T
    size = len(gram)
    values, vectors = eigh(gram, subset_by_index=(max(size - count - 1, 0), size - 1))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    floor = values[count] if len(values) > count else 0.0
    rank = int(np.sum(values[:count] > 1e-10 * max(values[0], np.finfo(float).tiny)))
    if not rank:
        return np.zeros((d, 0)), np.zeros(0)
    found = x @ vectors[:, :rank] / np.sqrt(values[:rank]) if n < d else vectors[:, :rank]
    weights = np.sqrt(values[:rank] - min(floor, values[rank - 1]))
    length = float(np.linalg.norm(weights))
    return found, weights / length if length else np.full(rank, rank**-0.5)


def weighted_signature(x: Array, count: int) -> Array:
    """Return B = U diag(w)^(1/2), d x count (zero columns where the rank is less), so that |B B'|_F = 1."""
    found, weights = directions(x, count)
    signature = np.zeros((len(x), count))
    signature[:, : len(weights)] = found * np.sqrt(weights)
    return signature


def plain_signature(x: Array, count: int) -> Array:
    """Return the leading left singular vectors themselves: PACFL's signature of a whole data set."""
    return directions(x, count)[0]


def class_signature(x: Array, labels: NDArray[np.int64], count: int) -> Array:
    """Return the singular vectors of each class that the client owns, side by side in label order (released code)."""
    return np.concatenate([plain_signature(x[:, labels == c], count) for c in np.unique(labels)], axis=1)
