"""PACFL: clusters are found once, before training, from the angles between the clients' data subspaces.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity Identification in Clustered
Federated Learning via Principal Angles Between Client Data Subspaces, AAAI 2023.

    client k     U_k = the first p left singular vectors of its data matrix (d x n_k)
    server       A_ij = angle between span(U_i) and span(U_j);  clusters = hierarchical clustering of A up to a threshold
    each round   theta_z <- sum_{k in cluster z} n_k theta_k / sum n_k   over the clients asked; a cluster without any stays

paper / released code / here
    Signature: the paper takes the whole data set, the code stacks p vectors of each class; here `signature`, whole.
    Angle: Eq. 2 is the smallest principal angle, the code takes the smallest angle between any two vectors (F6), its
      Eq. 3 is p times Eq. 2 in the published tables (F7); here `distance`, by default all angles weighted ("overlap").
    Linkage: the code's "average" is WPGMA (F8); here `linkage`, by default UPGMA.
    Threshold: the published numbers belong to one data set and one definition, and most are not published; here they are
      measured by the clients (clusters/split_half.py). "split-half" asks whether two clients have the same distribution.
      Under label skew, where hardly two have, more sharing can still pay: give a threshold or a number of clusters.
    Newcomers: Algorithm 2 clusters again and trusts that old clusters stay; here a newcomer joins the nearest cluster if
      it is near enough, else opens one, and nobody else moves. Whoever did not sign at the start is a newcomer.
    Ids: the server knows who is in which cluster, so clients need not send their cluster's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ilk.clusters import linkage as tree
from ilk.clusters import split_half
from ilk.clusters.angles import MEASURES, Measure
from ilk.errors import IlkError
from ilk.method import Cohort, Method, Server, State
from ilk.options import options
from ilk.params import Vector, average
from ilk.server import Answers, NobodyAnswered
from ilk.tasks import Sign


@dataclass(frozen=True)
class PACFLState(State):
    """One model a cluster, and what the clients signed."""

    cluster: NDArray[np.int64]  # of each client; -1: has not signed yet
    signatures: NDArray[np.float32]  # clients x d x widest; zero columns fill up
    noise: NDArray[np.float64]  # of each client: distance between the signatures of its two halves
    distance: NDArray[np.float64]  # clients x clients, as it was clustered; NaN where somebody has not signed


@options
class PACFL(Method[PACFLState]):
    """Clusters found once, before training, from the angles between the clients' data subspaces."""

    name: ClassVar[str] = "pacfl"
    paper: ClassVar[str] = "Vahidian et al., AAAI 2023"

    signature: Literal["whole", "per-class"] = "whole"
    """Singular vectors of all of a client's samples, or of each class by itself (reveals how many classes it has)."""
    vectors: Annotated[int, Field(ge=1)] = 10
    """Singular vectors in a signature (for each class, if per class); the paper has 3 or 5."""
    distance: Measure = "overlap"
    """overlap: all angles, in units of sampling noise; or degrees: principal (Eq. 2), summed (Eq. 3), released (code)."""
    linkage: tree.Linkage = "upgma"
    """How far apart two clusters are: mean over pairs (upgma), mean of means (wpgma), farthest or nearest pair."""
    threshold: Annotated[float, Field(ge=0)] | Literal["split-half", "gap"] = "split-half"
    """Clusters join up to this distance: measured by the clients (split-half), the largest gap, or a number."""
    clusters: Annotated[int, Field(ge=1)] | None = None
    """Stop at this many clusters, whatever the threshold."""
    repeats: Annotated[int, Field(ge=1)] = 5
    """Random splits into halves that each client averages its noise over."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.signature == "per-class" and self.distance == "overlap":
            raise IlkError(
                "pacfl: signature = 'per-class' has no distance 'overlap'. Take distance principal, summed or released."
            )

    def start(self, server: Server) -> PACFLState:
        """Collect signatures from everybody, once, and cluster those that came."""
        answers = server.ask(self._sign, server.everyone, {})
        signed = Signed.of(answers)
        matrix = self._distances(signed, signed)
        cluster = self._group(matrix, signed.noise)
        state = _nobody(server, models=np.repeat(server.initial_model[None], cluster.max() + 1, axis=0))
        return _enter(state, answers.clients, cluster, signed, matrix)

    def round(self, server: Server, state: PACFLState, cohort: Cohort) -> PACFLState:
        """Let the cohort train the models of their clusters, and average within each cluster."""
        state = self._welcome(server, state, cohort[state.cluster[cohort] < 0])
        trained = server.ask(self.training, cohort, self.message(state))
        models = state.models.copy()
        for z in np.unique(state.cluster[trained.clients]):
            if z >= 0:
                models[z] = average(trained.models, (state.cluster[trained.clients] == z) * trained.sizes)[0]
        return replace(state, models=models)

    def serves(self, state: PACFLState, client: int) -> Sequence[int]:
        """Return the client's cluster; who has not signed yet may choose among all."""
        cluster = int(state.cluster[client])
        return [cluster] if cluster >= 0 else range(len(state.models))

    @property
    def _sign(self) -> Sign:
        return Sign(self.signature, self.vectors, self.distance, self.repeats)

    def _welcome(self, server: Server, state: PACFLState, newcomers: Cohort) -> PACFLState:
        """Let newcomers sign, and place each: in the nearest cluster if it is near enough, else in one of its own."""
        if not len(newcomers):
            return state
        with suppress(NobodyAnswered):
            answers = server.ask(self._sign, newcomers, {})
            for client, signed in zip(answers.clients, Signed.of(answers).each(), strict=True):
                state = self._place(state, client, signed, server.initial_model)
        return state

    def _place(self, state: PACFLState, client: int, signed: Signed, initial: Vector) -> PACFLState:
        known = np.flatnonzero(state.cluster >= 0)
        old = Signed.stored(state, known)
        distance = self._distances(signed, old)
        to_cluster = np.array([distance[0, state.cluster[known] == z].mean() for z in range(len(state.models))])
        nearest = int(np.argmin(to_cluster))
        must_join = self.clusters is not None or self.threshold == "gap"
        if (
            not must_join
            and to_cluster[nearest] > self._limit(np.ones(1, np.int64), np.append(old.noise, signed.noise))[0]
        ):
            nearest = len(state.models)
            state = replace(state, models=np.vstack([state.models, initial]))
        matrix = np.hstack([distance, [[0.0]]])
        return _enter(state, np.append(known, client), np.append(state.cluster[known], nearest), signed, matrix)

    def _distances(self, rows: Signed, columns: Signed) -> NDArray[np.float64]:
        """Return the distances between two groups of clients that have signed."""
        matrix = MEASURES[self.distance](rows.signatures, columns.signatures)
        if self.distance == "overlap":
            matrix = split_half.relative(matrix, rows.noise, columns.noise)
        if rows is columns:
            matrix = np.maximum(matrix, matrix.T)
            np.fill_diagonal(matrix, 0.0)
        return matrix

    def _group(self, distance: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.int64]:
        merges = tree.tree(distance, self.linkage)
        if self.clusters is not None:
            return tree.cut_into(merges, self.clusters)
        if self.threshold == "gap":
            return tree.cut_at_gap(merges)
        return tree.cut(merges, merges[:, 2] <= self._limit(tree.smaller_part(merges), noise))

    def _limit(self, smaller_part: NDArray[np.int64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return up to which distance two parts of the tree may join."""
        if not isinstance(self.threshold, str):
            return np.full(len(smaller_part), self.threshold)
        if self.distance == "overlap":
            return split_half.limit(smaller_part)
        return np.full(len(smaller_part), split_half.angle_threshold(noise))


class Signed(NamedTuple):
    """What some clients signed."""

    signatures: Sequence[NDArray[np.float64]]
    noise: NDArray[np.float64]

    @classmethod
    def of(cls, answers: Answers) -> Signed:
        """Return what was answered."""
        return cls([m["signature"].astype(np.float64) for m in answers.messages], answers["noise"].astype(np.float64))

    @classmethod
    def stored(cls, state: PACFLState, clients: Cohort) -> Signed:
        """Return what these clients signed earlier."""
        padded = state.signatures[clients].astype(np.float64)
        return cls([signature[:, signature.any(axis=0)] for signature in padded], state.noise[clients])

    def each(self) -> list[Signed]:
        """Return one for each client."""
        return [Signed([one], self.noise[[i]]) for i, one in enumerate(self.signatures)]


def _nobody(server: Server, models: NDArray[np.float32]) -> PACFLState:
    """Return a state in which nobody has signed."""
    clients = len(server.everyone)
    return PACFLState(
        models=models,
        cluster=np.full(clients, -1),
        signatures=np.zeros((clients, 0, 0), np.float32),
        noise=np.full(clients, np.nan),
        distance=np.full((clients, clients), np.nan),
    )


def _enter(
    state: PACFLState, clients: Cohort, cluster: NDArray[np.int64], signed: Signed, matrix: NDArray[np.float64]
) -> PACFLState:
    """Enter clusters of `clients`; the last of them are those that `signed`, `matrix` their distances to all of these."""
    new = clients[len(clients) - len(signed.signatures) :]
    membership, noise, distance = state.cluster.copy(), state.noise.copy(), state.distance.copy()
    membership[clients], noise[new] = cluster, signed.noise
    distance[np.ix_(new, clients)] = matrix
    distance[np.ix_(clients, new)] = matrix.T
    rows = max(state.signatures.shape[1], *(len(one) for one in signed.signatures))
    width = max(state.signatures.shape[2], *(one.shape[1] for one in signed.signatures))
    signatures = np.zeros((len(membership), rows, width), np.float32)
    signatures[:, : state.signatures.shape[1], : state.signatures.shape[2]] = state.signatures
    for k, one in zip(new, signed.signatures, strict=True):
        signatures[k, : one.shape[0], : one.shape[1]] = one
    return replace(state, cluster=membership, noise=noise, distance=distance, signatures=signatures)
