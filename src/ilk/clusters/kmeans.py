"""k-means, and the number of clusters with the best silhouette."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from ilk.clusters.linkage import by_first_member

Labels = NDArray[np.int64]


def kmeans(points: NDArray[np.floating], k: int, seed: int, starts: int = 10) -> Labels:
    """Return k-means clusters of the rows, numbered by their first members; not more than there are different rows."""
    k = min(k, len(np.unique(points, axis=0)))
    return by_first_member(KMeans(k, n_init=starts, random_state=seed).fit_predict(points))


def best_silhouette(points: NDArray[np.floating], seed: int, most: int | None = None) -> Labels:
    """Return the k-means clusters for that k from 2 to `most` (n - 1) whose mean silhouette is largest; else one cluster."""
    most = min(most or len(points), len(points) - 1, len(np.unique(points, axis=0)))
    candidates = [kmeans(points, k, seed, starts=3) for k in range(2, most + 1)]
    candidates = [labels for labels in candidates if 2 <= labels.max() + 1 <= len(points) - 1]
    if not candidates:
        return np.zeros(len(points), dtype=np.int64)
    return max(candidates, key=lambda labels: float(silhouette_score(points, labels)))
