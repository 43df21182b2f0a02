"""The largest eigenvalue of very many small symmetric matrices at once.

LAPACK is called once a matrix and takes some microseconds for it. Here each step of the textbook algorithm is done for
all matrices together: the last axis runs over the matrices, the first two over their entries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TINY = 1e-30  # an eigenvalue below it counts as zero: what is wanted lies between 0 and 1
STEPS = 60  # never reached: Laguerre's method triples the right digits in each step


def squared_norms(matrices: Array) -> Array:
    """Return the largest squared singular value of each p x q matrix (p x q x count), to about 1e-15 of their trace."""
    if min(matrices.shape[:2]) == 0:
        return np.zeros(matrices.shape[2])
    wide = matrices if len(matrices) <= matrices.shape[1] else matrices.transpose(1, 0, 2)
    gram = np.empty((len(wide), len(wide), wide.shape[2]))
    for a in range(len(wide)):
        np.einsum("ql,bql->bl", wide[a], wide[a:], out=gram[a, a:])
        gram[a + 1 :, a] = gram[a, a + 1 :]
    return largest(*tridiagonal(gram))


def tridiagonal(symmetric: Array) -> tuple[Array, Array]:
    """Return the diagonals, and the squares beside them, of tridiagonal matrices with the same eigenvalues.

    Householder's reflections, one column after the other. The input is overwritten.
    """
    size = len(symmetric)
    beside = np.zeros((max(size - 1, 0), symmetric.shape[2]))
    for k in range(size - 2):
        v, rest = symmetric[k + 1 :, k], symmetric[k + 1 :, k + 1 :]
        beside[k] = np.sum(v * v, axis=0)
        length = np.copysign(np.sqrt(beside[k]), v[0])
        half = beside[k] + length * v[0]  # half of |v|^2 once v is the reflection's direction
        inverse = np.divide(1.0, half, out=np.zeros_like(half), where=half > 0)
        v[0] += length
        w = np.einsum("abl,bl->al", rest, v) * inverse
        w -= v * (0.5 * inverse * np.einsum("al,al->l", w, v))
        rest -= v[:, None] * w
        rest -= w[:, None] * v
    if size > 1:
        beside[-1] = symmetric[-1, -2] ** 2
    return np.einsum("aal->al", symmetric), beside


def largest(diagonal: Array, beside: Array) -> Array:
    """Return the largest eigenvalue of each positive semi-definite tridiagonal matrix.

    Laguerre's method on the characteristic polynomial, from the trace downwards: from there it falls towards the largest
    root and never below it, whether roots are single or many. A matrix stands still as soon as its step is lost in rounding,
    so that its result does not depend on its neighbours.
    """
    size, count = diagonal.shape
    x: Array = diagonal.sum(axis=0) * (1 + 1e-14) + TINY
    moving = np.full(count, size > 1)
    with np.errstate(all="ignore"):  # at the root itself pivots are zero: such a step is not taken
        for _ in range(STEPS):
            first, second = _slopes(diagonal, beside, x)
            spread = (size - 1) * (size * second - first * first)
            root = np.sqrt(np.maximum(spread, 0.0) + (size * first) ** 2 * 1e-15)
            step = size / (first + root)
            moving &= np.isfinite(step) & (first > 0) & (step > 1e-15 * x)
            if not moving.any():
                break
            x -= np.where(moving, step, 0.0)
    return x if size > 1 else np.maximum(diagonal[0], 0.0)


def _slopes(diagonal: Array, beside: Array, x: Array) -> tuple[Array, Array]:
    """Return the sums of 1 / (x - root) and of its square over all roots, from the pivots of x I - T."""
    pivot = x - diagonal[0]
    slope, bend = np.ones_like(x), np.zeros_like(x)  # the pivot's first and second derivative
    ratio = 1.0 / pivot
    first, second = ratio.copy(), ratio * ratio
    for k in range(1, len(diagonal)):
        pull = beside[k - 1] * ratio * ratio
        bend = pull * (bend - 2.0 * slope * slope * ratio)
        slope = 1.0 + pull * slope
        pivot = x - diagonal[k] - beside[k - 1] * ratio
        ratio = 1.0 / pivot
        relative = slope * ratio
        first += relative
        second += relative * relative - bend * ratio
    return first, second
