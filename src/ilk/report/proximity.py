"""Who is near whom: the matrix that a method clustered by, its tree, where the tree is cut, and a map of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform

from ilk.clusters import linkage
from ilk.report.kept import Matrix, distance_of
from ilk.report.numbers import choice
from ilk.report.reading import Reading

MOST = 2000  # clients in one matrix: its tree and its map take a second


@dataclass(frozen=True)
class Proximity:
    """Distances among the clients that were measured, in the order of `clients`; all else follows from them."""

    what: str
    unit: str  # the same in a word or two
    clients: NDArray[np.int64]
    measured: int  # so many clients have distances; of very many, `clients` are a random choice
    distance: Matrix
    merges: Matrix
    linkage: str
    order: NDArray[np.int64]  # of the leaves, as the tree draws them
    cluster: NDArray[np.int64]
    threshold: float | None  # where it was given as a number
    highest_made: float  # the largest height at which two parts are together in the end; 0 where nobody is
    lowest_refused: float  # the smallest at which they are not; infinite where all are together

    @property
    def cut(self) -> float | None:
        """Where to draw the line: at the threshold, else halfway between the merges made and those refused."""
        if self.threshold is not None:
            return self.threshold
        if not np.isfinite(self.lowest_refused):
            return None
        return (self.highest_made + self.lowest_refused) / 2

    @property
    def consistent(self) -> bool:
        """Whether one cut of the tree gives these clusters."""
        height = np.inf if self.cut is None else self.cut
        return bool((linkage.cut_at(self.merges, height) == linkage.by_first_member(self.cluster)).all())


def proximity_of(reading: Reading) -> Proximity | None:
    """Return what this run's method measured between clients, where it measured that."""
    found = distance_of(reading.kept, len(reading.ids))
    if found is None or not len(reading.cluster):
        return None
    whole, what = found
    others = ~np.eye(len(whole), dtype=bool)
    came = np.flatnonzero((~np.isnan(whole) & others).any(axis=1))
    came = came[~(np.isnan(whole[np.ix_(came, came)]) & others[np.ix_(came, came)]).any(axis=1)]
    if len(came) < 2:
        return None
    measured = len(came)
    came = came[choice(measured, MOST)]
    distance, options = np.nan_to_num(whole[np.ix_(came, came)]), reading.config["options"]
    how, given = str(options.get("linkage", "upgma")), options.get("threshold")
    merges = linkage.tree(distance, how if how in linkage.SCIPY else "upgma")
    cluster = reading.cluster[came]
    together = merged_within(merges, cluster)
    numeric = isinstance(given, int | float) and options.get("clusters") is None
    return Proximity(
        what=f"{what} ('{options['distance']}')" if isinstance(options.get("distance"), str) else what,
        unit="disagreement" if "disagree" in what else "distance",
        clients=came,
        measured=measured,
        distance=distance,
        merges=merges,
        linkage=how,
        order=np.asarray(hierarchy.leaves_list(merges), dtype=np.int64),
        cluster=cluster,
        threshold=float(given) if numeric and given is not None else None,
        highest_made=float(merges[together, 2].max(initial=0.0)),
        lowest_refused=float(merges[~together, 2].min(initial=np.inf)),
    )


def merged_within(merges: Matrix, cluster: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each merge whether all that it joins are in one cluster."""
    of_node = [int(label) for label in cluster]
    for a, b, *_ in merges:
        one, other = of_node[int(a)], of_node[int(b)]
        of_node.append(one if one == other else -1)
    return np.array([label >= 0 for label in of_node[len(cluster) :]], dtype=bool)


def in_the_plane(distance: Matrix) -> tuple[Matrix, float]:
    """Return a point for each client (classical scaling), and how the map's distances correlate with the given ones."""
    squares = distance**2
    centred = -0.5 * (squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean())
    points, count = np.zeros((len(distance), 2)), len(distance)
    values, vectors = eigh(centred, subset_by_index=[count - 2, count - 1])  # all of them would take many times as long
    for axis, k in enumerate(np.argsort(-values)[:2]):
        side = np.sign(vectors[np.argmax(np.abs(vectors[:, k])), k])  # a mirrored map is as right: always take one
        points[:, axis] = vectors[:, k] * side * np.sqrt(max(values[k], 0.0))
    drawn, given = pdist(points), squareform(distance, checks=False)
    spread = drawn.std() * given.std()
    agreement = float(np.mean((drawn - drawn.mean()) * (given - given.mean())) / spread) if spread > 1e-12 else 1.0
    return points, agreement


def clusters_at(merges: Matrix) -> list[tuple[float, int]]:
    """Return from which threshold on how many clusters there are, from 0 on, were the tree cut at one height."""
    heights = np.sort(merges[:, 2])
    steps = [(0.0, len(heights) + 1 - int(np.sum(heights <= 0)))]
    for height in np.unique(heights[heights > 0]):
        steps.append((float(height), len(heights) + 1 - int(np.sum(heights <= height))))
    return steps
