"""Bases of the spaces that signatures span, and the angles between two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def orthonormal(u: Array) -> Array:
    """Return an orthonormal basis of the columns' span; dependent columns (to 1e-10) count once."""
    basis, sizes, _ = np.linalg.svd(u, full_matrices=False)
    keep = sizes > 1e-10 * max(sizes.max(initial=0.0), np.finfo(float).tiny)
    return basis[:, keep]


def unit(a: Array) -> Array:
    """Return the columns, each of length 1."""
    columns: Array = a / np.maximum(np.linalg.norm(a, axis=0), np.finfo(float).tiny)
    return columns


def angles_of(p: Array, q: Array) -> Array:
    """Return the principal angles of two orthonormal bases, ascending.

    Cosines are the singular values of P'Q; small angles are lost in them, so they meet the sines, which are those of
    Q - P P'Q, in an arctangent.
    """
    if p.shape[1] < q.shape[1]:
        p, q = q, p
    inner = p.T @ q
    cosines = np.linalg.svd(inner, compute_uv=False)
    sines = np.linalg.svd(q - p @ inner, compute_uv=False)[::-1]
    angles: Array = np.arctan2(np.clip(sines, 0, 1), np.clip(cosines, 0, 1))
    return angles
