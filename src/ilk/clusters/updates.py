"""How alike the clients' updates are: from the matrix of their inner products, which needs no stack of updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def cosine_similarity(gram: Array) -> Array:
    """Return the cosines of vectors with these inner products; a zero vector has cosine 0 with everything."""
    norms = np.sqrt(np.diag(gram))
    lengths = np.where(norms > 0, norms, 1.0)
    similarity = gram / lengths / lengths[:, None]
    np.fill_diagonal(similarity, 1.0)
    clipped: Array = np.clip(similarity, -1.0, 1.0)
    return clipped


def cosine_distance(gram: Array) -> Array:
    """Return 1 - cosine, symmetric with a zero diagonal."""
    distance = 1.0 - cosine_similarity(gram)
    return (distance + distance.T) / 2


def euclidean_distance(gram: Array) -> Array:
    """Return the Euclidean distances of vectors with these inner products."""
    squares = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    distance: Array = np.sqrt(np.maximum(squares, 0.0))
    np.fill_diagonal(distance, 0.0)
    return distance


def manhattan_distance(vectors: Sequence[NDArray[np.float32]]) -> Array:
    """Return the sums of absolute differences of vectors."""
    distance = np.zeros((len(vectors), len(vectors)))
    for i, one in enumerate(vectors):
        for j in range(i):
            distance[i, j] = distance[j, i] = np.abs(one - vectors[j]).sum(dtype=np.float64)
    return distance


def temperature(distance: Array) -> float:
    """Return OCFL's temperature of a cosine distance matrix: its Frobenius norm over the largest possible, 0 to 1."""
    n = len(distance)
    return float(np.linalg.norm(distance) / np.sqrt(4 * n * (n - 1))) if n > 1 else 0.0
