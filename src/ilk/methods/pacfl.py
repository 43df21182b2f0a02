"""PACFL: clusters are found once, before training, from the angles between the clients' data subspaces.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity Identification in Clustered
Federated Learning via Principal Angles Between Client Data Subspaces, AAAI 2023.

    client k     U_k = the first p left singular vectors of its data matrix (d x n_k)
    server       A_ij = angle between span(U_i) and span(U_j);  clusters = hierarchical clustering of A up to a threshold
    each round   theta_z <- sum_{k in cluster z} n_k theta_k / sum n_k   over the clients asked; a cluster without any stays

paper / released code / here
    Signature: the paper takes the whole data set, the code stacks p vectors of each class, and for MIX-4 takes the whole
      of normalised inputs; here `signature` and `inputs`, whole and raw.
    Angle: Eq. 2 is the smallest principal angle, the code takes the smallest angle between any two vectors (F6), its
      Eq. 3 is p times Eq. 2 in the published tables (F7); here `distance`, by default all angles weighted ("overlap").
    Linkage: the code's "average" is WPGMA (F8); here `linkage`, by default UPGMA.
    Threshold: the published numbers belong to one data set and one definition, and most are not published; here they are
      measured by the clients (clusters/split_half.py). "split-half" asks whether two clients have the same distribution.
      Under label skew, where hardly two have, more sharing can still pay: give a threshold or a number of clusters.
    Newcomers: Algorithm 2 clusters again and trusts that old clusters stay, which nothing guarantees; here a newcomer
      joins the nearest cluster if it is near enough, else opens one, and nobody else moves. `newcomers="recluster"`
      clusters again, lets clusters keep their numbers and models where most of their members stay, and reports who
      moved (column `moved` of the history). Whoever did not sign at the start is a newcomer.
    Ids: the server knows who is in which cluster, so clients need not send their cluster's number.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ilk.checked import options
from ilk.clusters import angles, condensed, split_half
from ilk.clusters import linkage as tree
from ilk.clusters.blocks import Measure
from ilk.errors import IlkError
from ilk.method import Clustered, Cohort, Method, Server
from ilk.params import average_clusters
from ilk.server import Answers, NobodyAnswered
from ilk.tasks import Sign

APART = 1e12  # a distance that is never merged over


@dataclass(frozen=True)
class PACFLState(Clustered):
    """One model a cluster, and what the clients signed; who has not is in none."""

    signatures: NDArray[np.float32]  # clients x d x widest; zero columns fill up
    noise: NDArray[np.float64]  # of each client: distance between the signatures of its two halves
    distance: NDArray[
        np.float32
    ]  # of each pair, as it was clustered (clusters/condensed.py); NaN: not both have signed


@options
class PACFL(Method[PACFLState]):
    """Clusters found once, before training, from the angles between the clients' data subspaces."""

    name: ClassVar[str] = "pacfl"
    paper: ClassVar[str] = "Vahidian et al., AAAI 2023"

    signature: Literal["whole", "per-class"] = "whole"
    """Singular vectors of all of a client's samples, or of each class by itself (reveals how many classes it has)."""
    inputs: Literal["raw", "normalised"] = "raw"
    """Signatures of the samples as recorded, or as networks see them: less the data set's mean, by its deviation."""
    vectors: Annotated[int, Field(ge=1)] | None = None
    """Singular vectors in a signature (of each class, if per class); default: a quarter of the median client's samples,
    at most 10. The paper has 3 or 5."""
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
    newcomers: Literal["frozen", "recluster"] = "frozen"
    """Who comes later joins a cluster or opens one and nobody else moves (frozen), or everybody is clustered again."""

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.signature == "per-class" and self.distance == "overlap":
            raise IlkError(
                "pacfl: signature = 'per-class' has no distance 'overlap'. Take distance principal, summed or released."
            )

    def start(self, server: Server) -> PACFLState:
        """Collect signatures from everybody, once, and cluster those that came."""
        clients = len(server.everyone)
        nobody = PACFLState(
            models=np.empty((0, len(server.initial_model)), np.float32),
            cluster=np.full(clients, -1),
            signatures=np.zeros((clients, 0, 0), np.float32),
            noise=np.full(clients, np.nan),
            distance=condensed.unknown(clients),
        )
        return self._enter(server, nobody, server.ask(self._sign(server), server.everyone, {}))

    def round(self, server: Server, state: PACFLState, cohort: Cohort) -> PACFLState:
        """Let the cohort train the models of their clusters, and average within each cluster."""
        state = self.welcome(server, state, cohort)
        cohort = cohort[state.cluster[cohort] >= 0]  # who was silent just now is not asked again in this round
        trained = server.ask(self.training, cohort, self.message(state))
        cluster = state.cluster[trained.clients]
        return replace(state, models=average_clusters(state.models, trained.models, cluster, trained.sizes))

    def welcome(self, server: Server, state: PACFLState, newcomers: Cohort) -> PACFLState:
        """Let those sign who have not, and place them."""
        unsigned = newcomers[state.cluster[newcomers] < 0]
        if len(unsigned):
            with suppress(NobodyAnswered):
                state = self._enter(server, state, server.ask(self._sign(server), unsigned, {}))
        return state

    def _sign(self, server: Server) -> Sign:
        vectors = self.vectors or split_half.vectors(server.sizes)
        measured = self.distance == "overlap" or (self.threshold == "split-half" and self.clusters is None)
        return Sign(self.signature, vectors, self.distance, self.repeats if measured else 0, self.inputs)

    def _enter(self, server: Server, state: PACFLState, answers: Answers) -> PACFLState:
        """Enter clients that have just signed: in a cluster that is near enough, or in new ones. Report who else moves."""
        new, known = answers.clients, np.flatnonzero(state.cluster >= 0)
        signatures = _padded(state.signatures, answers)
        noise = state.noise.copy()
        noise[new] = [message.get("noise", np.nan) for message in answers.messages]
        distance = self._measured(state.distance.copy(), signatures, noise, known, new)
        everyone = np.concatenate([known, new])
        cluster, before = state.cluster.copy(), state.cluster[everyone]
        settled = before if self.newcomers == "frozen" else np.full(len(everyone), -1)
        found = self._group(condensed.among(distance, len(noise), everyone), noise[everyone], settled)
        cluster[everyone] = tree.keep_numbers(found, before, taken=len(state.models))
        moved = known[cluster[known] != state.cluster[known]]
        if len(moved):
            server.report(moved={server.ids[k]: [int(state.cluster[k]), int(cluster[k])] for k in moved})
        opened = [
            _first_model(server, state, cluster == z) for z in range(len(state.models), cluster.max(initial=-1) + 1)
        ]
        models = np.concatenate([state.models, *opened])
        return PACFLState(models, cluster, signatures, noise, distance)

    def _measured(
        self,
        distance: NDArray[np.float32],
        signatures: NDArray[np.float32],
        noise: NDArray[np.float64],
        known: NDArray[np.int64],
        new: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Enter the distances of those who have just signed, to each other and to those known: no others are computed."""
        ours, theirs = ([_columns(signatures[k]) for k in who] for who in (new, known))
        for others, parts in (
            (new, angles.among(self.distance, ours)),
            (known, angles.between(self.distance, ours, theirs)),
        ):
            for i, j, part in parts:
                one, other = new[i], others[j]
                rows = split_half.relative(part, noise[one], noise[other]) if self.distance == "overlap" else part
                condensed.enter(distance, len(noise), one, other, rows)
        return distance

    def _group(
        self, distance: NDArray[np.float32], noise: NDArray[np.float64], cluster: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the cluster of each client. Those that are settled in one (0 and up) stay together, and apart."""
        held = condensed.held(distance, cluster, APART)
        # By nearest pairs a newcomer could bridge two settled clusters, however far apart they are held: by means not.
        linkage = "upgma" if self.linkage == "single" and (cluster >= 0).any() else self.linkage
        merges, before = tree.tree(held, linkage), int(cluster.max()) + 1
        if self.clusters is not None:
            return tree.cut_into(merges, max(self.clusters, before))
        if self.threshold == "gap":
            return tree.cut_into(merges, before) if before else tree.cut_at_gap(merges)
        return tree.cut(merges, merges[:, 2] <= self._limit(tree.smaller_part(merges), noise))

    def _limit(self, smaller_part: NDArray[np.int64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return up to which distance two parts of the tree may join."""
        if not isinstance(self.threshold, str):
            return np.full(len(smaller_part), self.threshold)
        if self.distance == "overlap":
            return split_half.limit(smaller_part)
        return np.full(len(smaller_part), split_half.angle_threshold(noise))


def _first_model(server: Server, state: PACFLState, members: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the model that a new cluster begins with: the one that most of its members had, or the initial one."""
    had = state.cluster[members & (state.cluster >= 0)]
    return state.models[[np.bincount(had).argmax()]] if len(had) else server.initial_model[None]


def _padded(known: NDArray[np.float32], answers: Answers) -> NDArray[np.float32]:
    """Return all signatures in one array (clients x d x widest), the new ones entered."""
    came = [message["signature"] for message in answers.messages]
    d, width = np.max([known.shape[1:], *(signature.shape for signature in came)], axis=0)
    padded = np.zeros((len(known), d, width), np.float32)
    padded[:, : known.shape[1], : known.shape[2]] = known
    for k, signature in zip(answers.clients, came, strict=True):
        padded[k, :, : signature.shape[1]] = signature
    return padded


def _columns(padded: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a signature without the zero columns that fill it up."""
    filled = padded.any(axis=0)
    return padded if filled.all() else padded[:, filled]
