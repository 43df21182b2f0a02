"""Clustering a distance matrix with scikit-learn, by name; each algorithm gets what it expects (F13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, AffinityPropagation, MeanShift

from ilk.clusters.kmeans import best_silhouette, kmeans
from ilk.clusters.linkage import by_first_member
from ilk.errors import IlkError
from ilk.own import find, words

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Noise = Literal["nearest", "alone", "pooled"]


@runtime_checkable
class Clusterer(Protocol):
    """Anything with scikit-learn's `fit_predict`; here it is given a distance matrix."""

    def fit_predict(self, X: Any) -> Any:
        """Return a label for each row; -1 for noise."""
        ...


def _kmeans(distance: Array, k: int | None, seed: int) -> Labels:
    """k-means of the rows of the distance matrix: clients that are equally far from everybody are alike."""
    return kmeans(distance, k or 3, seed)


def _affinity(distance: Array, k: int | None, seed: int) -> Labels:
    """Affinity propagation wants similarities: the distances' negatives."""
    labels = AffinityPropagation(affinity="precomputed", random_state=seed % 2**32).fit_predict(-distance)
    return np.asarray(labels, dtype=np.int64)


def _affinity_of_distances(distance: Array, k: int | None, seed: int) -> Labels:
    """Affinity propagation given distances as if they were similarities: OCFL's mistake, to reproduce its figures."""
    return _affinity(-distance, k, seed)


def _meanshift(distance: Array, k: int | None, seed: int) -> Labels:
    """Mean shift of the rows of the distance matrix, with scikit-learn's own bandwidth."""
    return np.asarray(MeanShift().fit_predict(distance), dtype=np.int64)


def _hdbscan(distance: Array, k: int | None, seed: int) -> Labels:
    """HDBSCAN of the distances; a cluster has at least a fifth of the clients."""
    least = max(int(np.ceil(0.2 * len(distance))), 2)
    labels = HDBSCAN(metric="precomputed", min_cluster_size=least, min_samples=least, copy=True).fit_predict(distance)
    return np.asarray(labels, dtype=np.int64)


def _silhouette(distance: Array, k: int | None, seed: int) -> Labels:
    """k-means of the rows, k by the best silhouette."""
    return best_silhouette(distance, seed)


GROUPINGS: dict[str, Callable[[Array, int | None, int], Labels]] = {
    "kmeans": _kmeans,
    "affinity": _affinity,
    "affinity-of-distances": _affinity_of_distances,
    "meanshift": _meanshift,
    "hdbscan": _hdbscan,
    "silhouette": _silhouette,
}


def group(distance: Array, grouping: str | Clusterer, k: int | None, noise: Noise, seed: int) -> Labels:
    """Cluster a distance matrix, and say where the noise (label -1) goes. Clusters are numbered by first members."""
    if isinstance(grouping, str):
        labels = named(grouping)(distance, k, seed)
    else:
        labels = np.asarray(grouping.fit_predict(distance), dtype=np.int64)
    if noise != "pooled":
        labels = place_noise(distance, labels, noise)
    return by_first_member(labels)


def place_noise(distance: Array, labels: Labels, noise: Noise) -> Labels:
    """Put each noise client into the cluster that is nearest on average, or into one of its own."""
    placed, clusters = labels.copy(), np.unique(labels[labels >= 0])
    for i in np.flatnonzero(labels < 0):
        if noise == "alone" or not len(clusters):
            placed[i] = placed.max() + 1 if noise == "alone" else 0
        else:
            placed[i] = min(clusters, key=lambda z: float(distance[i, labels == z].mean()))
    return placed


def named(name: str) -> Callable[[Array, int | None, int], Labels]:
    """Return the grouping of this name, or the user's own ``module:callable`` that makes an object with fit_predict."""
    if name in GROUPINGS:
        return GROUPINGS[name]
    make = find("grouping", name)
    try:
        clusterer = make()
    except Exception as error:
        raise IlkError(
            f"The grouping '{name}' cannot be made: {words(error)}. It is called without arguments."
        ) from error
    if not isinstance(clusterer, Clusterer):
        raise IlkError(f"The grouping '{name}' made {type(clusterer).__name__}; it must have fit_predict.")
    return lambda distance, k, seed: np.asarray(clusterer.fit_predict(distance), dtype=np.int64)
