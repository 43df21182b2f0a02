"""Distances kept once a pair: (0,1), (0,2), ..., (1,2), ..., as SciPy has them, in float32.

Of 10,000 clients these are 200 MB, against 800 MB for the square in double precision. Signatures are sent in float32 too:
a distance does not know more digits than that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Condensed = NDArray[np.float32]
Positions = NDArray[np.int64]


def unknown(clients: int) -> Condensed:
    """Return distances of which none is known (NaN)."""
    return np.full(clients * (clients - 1) // 2, np.nan, dtype=np.float32)


def positions(clients: int, one: Positions | int, other: Positions) -> Positions:
    """Return where the distances between these clients lie, in either order; never of a client to itself."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.asarray(low * (2 * clients - low - 1) // 2 + high - low - 1, dtype=np.int64)


def enter(distances: Condensed, clients: int, rows: Positions, columns: Positions, part: NDArray[np.floating]) -> None:
    """Enter the distances between some clients (rows) and others (columns); to oneself is left out."""
    others = rows[:, None] != columns
    distances[positions(clients, rows[:, None], columns)[others]] = part[others]


def square(distances: Condensed) -> NDArray[np.float32]:
    """Return the whole symmetric matrix, with a zero diagonal."""
    clients = count(distances)
    whole = np.zeros((clients, clients), dtype=np.float32)
    start = 0
    for k in range(clients - 1):
        stop = start + clients - 1 - k
        whole[k, k + 1 :] = whole[k + 1 :, k] = distances[start:stop]
        start = stop
    return whole


def among(distances: Condensed, clients: int, who: Positions) -> Condensed:
    """Return the distances among some clients, in their order; of all in order the same array, not a copy."""
    if len(who) == clients and np.array_equal(who, np.arange(clients)):
        return distances
    part = unknown(len(who))
    start = 0
    for k in range(len(who) - 1):
        stop = start + len(who) - 1 - k
        part[start:stop] = distances[positions(clients, int(who[k]), who[k + 1 :])]
        start = stop
    return part


def held(distances: Condensed, cluster: Positions, apart: float) -> Condensed:
    """Return distances with which those that are in a cluster (0 and up) stay together, and `apart` from other clusters."""
    if not (cluster >= 0).any():
        return distances
    result, start = distances.copy(), 0
    for k in range(len(cluster) - 1):
        stop = start + len(cluster) - 1 - k
        if cluster[k] >= 0:
            later = cluster[k + 1 :]
            kept = np.where(later == cluster[k], 0.0, apart)
            result[start:stop] = np.where(later >= 0, kept, result[start:stop])
        start = stop
    return result


def count(distances: Condensed) -> int:
    """Return among how many clients these distances are."""
    return int((1 + np.sqrt(1 + 8 * len(distances))) // 2) if len(distances) else 1
