"""PACFL's data signatures: a few directions in which a client's samples mostly lie."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

Array = NDArray[np.float64]

LANCZOS = 200  # rows of a Gram matrix from which a few eigenvectors are cheaper by Lanczos (measured: 300 rows 4 times)


def gram_of(x: Array) -> Array:
    """Return the smaller of the two Gram matrices of x: of its samples where they are fewer, else of its dimensions."""
    product: Array = x.T @ x if x.shape[1] < x.shape[0] else x @ x.T
    return product


def half_grams(x: Array, gram: Array, one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return the Gram matrices of two halves of x, from that of the whole as far as it holds them."""
    d, n = x.shape
    if n < d:
        return gram[np.ix_(one, one)], gram[np.ix_(other, other)]
    first = gram_of(x[:, one])
    if len(one) < d:
        return first, gram_of(x[:, other])
    left = np.setdiff1d(np.arange(n), np.concatenate([one, other]))
    return first, gram - first - x[:, left] @ x[:, left].T


def directions(x: Array, count: int, gram: Array | None = None) -> tuple[Array, Array]:
    """Return the leading left singular vectors of x (d x n, a sample a column), and their weights.

    There are `count` of them, or as many as the rank allows. They come from the smaller of the two Gram matrices. The
    weight of a direction is sqrt(s_a^2 - s_(count+1)^2) with the singular values s: what it stands out by over the
    first direction that is left out. The weights' squares sum to 1.

    `gram`, if it is known already, is `gram_of(x)`. Against a full singular value decomposition the weights and the
    projection on the span differ by at most 1e-7, and by 1e-10 where the last singular value is above a hundredth of the
    first and 1 % of it away from the next: squares are formed, which halves the digits of what is small.
    """
    d, n = x.shape
    values, vectors = _leading(gram_of(x) if gram is None else gram, count + 1)
    floor = values[count] if len(values) > count else 0.0
    rank = int(np.sum(values[:count] > 1e-10 * max(values[0], np.finfo(float).tiny)))
    if not rank:
        return np.zeros((d, 0)), np.zeros(0)
    found = x @ vectors[:, :rank] / np.sqrt(values[:rank]) if n < d else vectors[:, :rank]
    weights = np.sqrt(values[:rank] - min(floor, values[rank - 1]))
    length = float(np.linalg.norm(weights))
    return found, weights / length if length else np.full(rank, rank**-0.5)


def _leading(gram: Array, count: int) -> tuple[Array, Array]:
    """Return the largest eigenvalues, descending, and their eigenvectors; `count` of them, or all."""
    size = len(gram)
    found = _lanczos(gram, count) if size >= max(LANCZOS, 5 * count) else None
    if found is None:
        found = eigh(gram, subset_by_index=(max(size - count, 0), size - 1))
    values, vectors = found
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def _lanczos(gram: Array, count: int) -> tuple[Array, Array] | None:
    """Return the largest eigenvalues, ascending, and their vectors; None if one of them may have been missed.

    From one starting vector Lanczos can see one of several equal eigenvalues only. So a second look, at what is left,
    from another vector, must find nothing larger.
    """
    one, other = np.random.default_rng(0).standard_normal((2, len(gram)))  # always the same: no run depends on it
    try:
        values, vectors = eigsh(gram, k=count, v0=one, tol=1e-14)

        def left(v: Array) -> Array:
            rest: Array = gram @ v - vectors @ (values * (vectors.T @ v))
            return rest

        operator = LinearOperator(gram.shape, matvec=left, dtype=np.float64)
        further = eigsh(operator, k=1, which="LA", v0=other, tol=1e-4, return_eigenvectors=False)[0]
    except ArpackError:  # not converged, or nothing but zeros
        return None
    return (values, vectors) if further <= values[0] + 1e-10 * values[-1] else None


def weighted_signature(x: Array, count: int, gram: Array | None = None) -> Array:
    """Return B = U diag(w)^(1/2), d x count (zero columns where the rank is less), so that |B B'|_F = 1."""
    found, weights = directions(x, count, gram)
    signature = np.zeros((len(x), count))
    signature[:, : len(weights)] = found * np.sqrt(weights)
    return signature


def plain_signature(x: Array, count: int, gram: Array | None = None) -> Array:
    """Return the leading left singular vectors themselves: PACFL's signature of a whole data set."""
    return directions(x, count, gram)[0]


def class_signature(x: Array, labels: NDArray[np.int64], count: int) -> Array:
    """Return the singular vectors of each class that the client owns, side by side in label order (released code)."""
    return np.concatenate([plain_signature(x[:, labels == c], count) for c in np.unique(labels)], axis=1)
