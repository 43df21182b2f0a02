"""Distances between signatures, in degrees where they are angles.

Every function takes two lists of signatures (d x w each; widths may differ) and returns the matrix of distances between
them, so that newcomers need only their own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Measure = Literal["overlap", "principal", "summed", "released"]


def principal_angles(u: Array, v: Array) -> Array:
    """Return the principal angles between the spaces that the columns of u and v span, in radians, ascending.

    Cosines are the singular values of Q_u' Q_v; small angles are lost in them, so they meet the sines, which are those
    of Q_v - Q_u Q_u' Q_v, in an arctangent.
    """
    return _angles(orthonormal(u), orthonormal(v))


def orthonormal(u: Array) -> Array:
    """Return an orthonormal basis of the columns' span; dependent columns (to 1e-10) count once."""
    basis, sizes, _ = np.linalg.svd(u, full_matrices=False)
    keep = sizes > 1e-10 * max(sizes.max(initial=0.0), np.finfo(float).tiny)
    return basis[:, keep]


def overlap(rows: Sequence[Array], columns: Sequence[Array]) -> Array:
    """1 - |A'B|_F^2 of weighted signatures: 0 for equal ones, 1 for orthogonal ones. All angles count, by their weight."""
    return np.array([[max(1.0 - float(np.sum((a.T @ b) ** 2)), 0.0) for b in columns] for a in rows])


def principal(rows: Sequence[Array], columns: Sequence[Array]) -> Array:
    """The smallest principal angle (PACFL, Eq. 2, as defined)."""
    p, q = [orthonormal(a) for a in rows], [orthonormal(b) for b in columns]
    return np.degrees([[_angles(a, b).min(initial=np.pi / 2) for b in q] for a in p])


def summed(rows: Sequence[Array], columns: Sequence[Array]) -> Array:
    """The sum of the angles between the a-th vector of one and the a-th of the other (PACFL, Eq. 3)."""

    def distance(a: Array, b: Array) -> float:
        width = min(a.shape[1], b.shape[1])
        cosines = np.abs(np.sum(_unit(a[:, :width]) * _unit(b[:, :width]), axis=0))
        return float(np.degrees(np.arccos(np.clip(cosines, 0, 1))).sum())

    return np.array([[distance(a, b) for b in columns] for a in rows])


def released(rows: Sequence[Array], columns: Sequence[Array]) -> Array:
    """The smallest angle between any vector of one and any of the other: what the authors' code takes for Eq. 2 (F6).

    Singular vectors have no sign, so the absolute value of the cosine is taken, which the code leaves out.
    """

    def distance(a: Array, b: Array) -> float:
        return float(np.degrees(np.arccos(np.clip(np.abs(_unit(a).T @ _unit(b)).max(), 0, 1))))

    return np.array([[distance(a, b) for b in columns] for a in rows])


MEASURES: dict[Measure, Callable[[Sequence[Array], Sequence[Array]], Array]] = {
    "overlap": overlap,
    "principal": principal,
    "summed": summed,
    "released": released,
}


def distances(measure: Measure, signatures: Sequence[Array]) -> Array:
    """Return the symmetric distance matrix of signatures, with a zero diagonal."""
    matrix = MEASURES[measure](signatures, signatures)
    matrix = np.maximum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _angles(p: Array, q: Array) -> Array:
    """Principal angles of two orthonormal bases."""
    if p.shape[1] < q.shape[1]:
        p, q = q, p
    inner = p.T @ q
    cosines = np.linalg.svd(inner, compute_uv=False)
    sines = np.linalg.svd(q - p @ inner, compute_uv=False)[::-1]
    angles: Array = np.arctan2(np.clip(sines, 0, 1), np.clip(cosines, 0, 1))
    return angles


def _unit(a: Array) -> Array:
    unit: Array = a / np.maximum(np.linalg.norm(a, axis=0), np.finfo(float).tiny)
    return unit
