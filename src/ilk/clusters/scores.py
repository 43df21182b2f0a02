"""How well clusters that were found fit groups that are known. scikit-learn's definitions, under the names of the field."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

# OCFL's tables call the adjusted Rand index "RAND" and the homogeneity "COM" (spec/methods.md, F14).
SCORES: dict[str, Callable[[NDArray[np.int64], NDArray[np.int64]], float]] = {
    "ari": metrics.adjusted_rand_score,
    "rand_index": metrics.rand_score,
    "ami": metrics.adjusted_mutual_info_score,
    "homogeneity": metrics.homogeneity_score,
    "completeness": metrics.completeness_score,
    "v_measure": metrics.v_measure_score,
}


def scores(groups: NDArray[np.int64] | None, clusters: NDArray[np.int64]) -> dict[str, float | None]:
    """Return every score of these clusters; none where the true groups are not known."""
    return {name: None if groups is None else float(score(groups, clusters)) for name, score in SCORES.items()}
