"""Distances between signatures, in degrees where they are angles.

A signature is d x w; widths may differ. Clients are compared in blocks (clusters/blocks.py), so memory is bounded, all cores
help, and among themselves clients are compared once, not twice. Newcomers need only their own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ilk.clusters.bases import angles_of, orthonormal
from ilk.clusters.blocks import BLOCKS, Block, Measure, Signatures, blocks
from ilk.clusters.threads import each

Array = NDArray[np.float64]
Part = tuple[slice, slice, Array]  # which rows, which columns, and the distances between them


def principal_angles(u: Array, v: Array) -> Array:
    """Return the principal angles between the spaces that the columns of u and v span, in radians, ascending."""
    return angles_of(orthonormal(u), orthonormal(v))


def overlap(rows: Signatures, columns: Signatures) -> Array:
    """1 - |A'B|_F^2 of weighted signatures: 0 for equal ones, 1 for orthogonal ones. All angles count, by their weight."""
    return _matrix("overlap", rows, columns)


def principal(rows: Signatures, columns: Signatures) -> Array:
    """The smallest principal angle (PACFL, Eq. 2, as defined)."""
    return _matrix("principal", rows, columns)


def summed(rows: Signatures, columns: Signatures) -> Array:
    """The sum of the angles between the a-th vector of one and the a-th of the other (PACFL, Eq. 3)."""
    return _matrix("summed", rows, columns)


def released(rows: Signatures, columns: Signatures) -> Array:
    """The smallest angle between any vector of one and any of the other: what the authors' code takes for Eq. 2 (F6).

    Singular vectors have no sign, so the absolute value of the cosine is taken, which the code leaves out.
    """
    return _matrix("released", rows, columns)


MEASURES: dict[Measure, Callable[[Signatures, Signatures], Array]] = {
    "overlap": overlap,
    "principal": principal,
    "summed": summed,
    "released": released,
}


def distances(measure: Measure, signatures: Signatures) -> Array:
    """Return the symmetric distance matrix of signatures, with a zero diagonal."""
    result = np.zeros((len(signatures), len(signatures)))
    for i, j, part in among(measure, signatures):
        result[i, j] = np.triu(part, 1) if i == j else part
    for k in range(len(result)):
        result[k + 1 :, k] = result[k, k + 1 :]
    return result


def among(measure: Measure, signatures: Signatures) -> Iterator[Part]:
    """Yield the distances among clients in parts, each pair once; a part that meets the diagonal has its pairs twice."""
    ready = blocks(measure, signatures)
    return _parts(measure, [(one, other) for k, one in enumerate(ready) for other in ready[k:]])


def between(measure: Measure, rows: Signatures, columns: Signatures) -> Iterator[Part]:
    """Yield the distances between one list of clients and another in parts."""
    ours, theirs = blocks(measure, rows), blocks(measure, columns)
    return _parts(measure, [(one, other) for one in ours for other in theirs])


def _matrix(measure: Measure, rows: Signatures, columns: Signatures) -> Array:
    result = np.empty((len(rows), len(columns)))
    for i, j, part in between(measure, rows, columns):
        result[i, j] = part
    return result


def _parts(measure: Measure, pairs: list[tuple[Block, Block]]) -> Iterator[Part]:
    found = each(lambda pair: BLOCKS[measure](*pair), pairs)
    return ((one.part, other.part, part) for (one, other), part in zip(pairs, found, strict=True))
