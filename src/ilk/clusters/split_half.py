"""Split-half: how far apart are two clients, measured by what sampling noise alone does to each of them?

A client splits its own samples into two random halves and compares the halves' signatures (a few times). With h the mean
overlap |A'B|_F^2 of its halves, the Spearman-Brown formula gives the reliability of the signature of all its samples::

    rho = 2 h / (1 + h)

Two clients i and j whose samples come from one distribution then have overlap sqrt(rho_i rho_j) on average, so that ::

    r_ij = (1 - overlap_ij) / (1 - sqrt(rho_i rho_j))

is about 1 for them, whatever their sizes, and above 1 otherwise. A mean of r over many pairs strays less from 1 than a
single r; so two parts of a tree may join up to  LIMIT (1 + 1 / sqrt(members of the smaller part)). The constant, the number
of vectors and the weights were chosen on development federations; docs/split-half.md has the table for fresh ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LIMIT = 1.1
MOST_VECTORS = 10
ANGLE_SHARE, ANGLE_PERCENTILE = 0.85, 90.0


def relative(distance: Array, noise_rows: Array, noise_columns: Array) -> Array:
    """Return r: overlap distances divided by what the noise (1 - h) of the two clients makes of them."""
    roots = [np.sqrt(reliability(noise)) for noise in (noise_rows, noise_columns)]
    return distance / np.maximum(1.0 - np.outer(*roots), 1e-12)


def reliability(noise: Array) -> Array:
    """Return the Spearman-Brown reliability of signatures whose halves have this mean distance."""
    half = np.clip(1.0 - noise, 0.0, 1.0)
    return 2.0 * half / (1.0 + half)


def limit(smaller_part: NDArray[np.int64]) -> Array:
    """Return up to which r two parts may join."""
    limits: Array = LIMIT * (1.0 + 1.0 / np.sqrt(smaller_part))
    return limits


def vectors(sizes: NDArray[np.int64]) -> int:
    """Return how many vectors to ask for: a half of the median client's samples must be at least twice as many."""
    return int(np.clip(np.median(sizes) // 4, 1, MOST_VECTORS))


def angle_threshold(noise: Array) -> float:
    """Return the threshold for distances that are angles: 0.85 times the 90th percentile of the halves' angles."""
    return ANGLE_SHARE * float(np.percentile(noise, ANGLE_PERCENTILE))
