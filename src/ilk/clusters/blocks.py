"""Distances between two blocks of clients: one product of all their vectors, and what a measure makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ilk.clusters.bases import angles_of, orthonormal, unit
from ilk.clusters.eigen import squared_norms
from ilk.clusters.threads import each

Array = NDArray[np.float64]
Measure = Literal["overlap", "principal", "summed", "released"]
Signatures = Sequence[NDArray[Any]]  # d x w each, float32 or float64; all is computed in float64

SIDE = 1024  # vectors in a block: enough for a fast product, few enough for memory (a product has 8 MiB)
LANES = 4096  # pairs whose eigenvalues are computed together: their matrices fit into the cache
NEAR = (
    1e-8  # sin^2 below which an angle is computed by its sine: its cosine has lost the digits (above: 1e-10 are right)
)


@dataclass(frozen=True)
class Block:
    """Some clients side by side."""

    part: slice  # which of the clients these are
    vectors: Array  # width x clients x d: the first vectors of all of them, then the next ones; zeros fill up
    widths: NDArray[np.int64]

    def basis(self, client: int) -> Array:
        """Return one client's vectors as columns."""
        return self.vectors[: self.widths[client], client].T


def blocks(measure: Measure, signatures: Signatures) -> list[Block]:
    """Return all clients in blocks, their vectors made ready for the measure."""
    clients = max(SIDE // max([1, *(s.shape[1] for s in signatures)]), 1)
    parts = [slice(k, min(k + clients, len(signatures))) for k in range(0, len(signatures), clients)]

    def stack(part: slice) -> Block:
        ready = [PREPARE[measure](np.asarray(s, dtype=np.float64)) for s in signatures[part]]
        widths = np.array([s.shape[1] for s in ready])
        vectors = np.zeros((widths.max(), len(ready), len(ready[0])))
        for k, columns in enumerate(ready):
            vectors[: widths[k], k] = columns.T
        return Block(part, vectors, widths)

    return list(each(stack, parts))


def products(one: Block, other: Block) -> Array:
    """Return the inner products of all vectors: width x clients x width x clients."""
    rows, columns = (block.vectors.reshape(-1, block.vectors.shape[2]) for block in (one, other))
    inner: Array = (rows @ columns.T).reshape(*one.vectors.shape[:2], *other.vectors.shape[:2])
    return inner


def overlap(one: Block, other: Block) -> Array:
    """1 - |A'B|_F^2."""
    inner = products(one, other)
    np.square(inner, out=inner)
    distance: Array = np.maximum(1.0 - inner.sum(axis=(0, 2)), 0.0)
    return distance


def principal(one: Block, other: Block) -> Array:
    """The smallest angle between two spaces: the largest cosine is the largest singular value of P'Q."""
    inner = products(one, other).transpose(0, 2, 1, 3)
    lanes = inner.reshape(*inner.shape[:2], inner.shape[2] * inner.shape[3])
    squares = np.empty(lanes.shape[2])
    for start in range(0, len(squares), LANES):
        squares[start : start + LANES] = squared_norms(np.ascontiguousarray(lanes[:, :, start : start + LANES]))
    cosines = np.clip(squares, 0.0, 1.0).reshape(inner.shape[2:])
    angles = np.arctan2(np.sqrt(1.0 - cosines), np.sqrt(cosines))
    meet = one.widths[:, None] + other.widths > one.vectors.shape[2]  # such spaces always have a line in common
    angles[meet] = 0.0
    for i, j in np.argwhere((1.0 - cosines < NEAR) & ~meet):
        angles[i, j] = angles_of(one.basis(i), other.basis(j)).min()
    degrees: Array = np.degrees(angles)
    return degrees


def summed(one: Block, other: Block) -> Array:
    """The sum of the angles between the a-th vectors, as far as both have them."""
    total = np.zeros((len(one.widths), len(other.widths)))
    for a, (u, v) in enumerate(zip(one.vectors, other.vectors, strict=False)):
        both = (one.widths[:, None] > a) & (other.widths > a)
        total += np.where(both, _degrees(np.abs(u @ v.T)), 0.0)
    return total


def released(one: Block, other: Block) -> Array:
    """The smallest angle between any two vectors."""
    inner = products(one, other)
    return _degrees(np.abs(inner, out=inner).max(axis=(0, 2), initial=0.0))


def _degrees(cosines: Array) -> Array:
    degrees: Array = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    return degrees


PREPARE: dict[Measure, Callable[[Array], Array]] = {
    "overlap": lambda a: a,
    "principal": orthonormal,
    "summed": unit,
    "released": unit,
}
BLOCKS: dict[Measure, Callable[[Block, Block], Array]] = {
    "overlap": overlap,
    "principal": principal,
    "summed": summed,
    "released": released,
}
