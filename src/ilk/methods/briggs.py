"""Briggs (FL+HC): some rounds of FedAvg, then one hierarchical clustering of everybody's updates.

Briggs, Fan, Andras: Federated Learning with Hierarchical Clustering of Local Updates to Improve Training on Non-IID Data,
IJCNN 2020.

    rounds < n   FedAvg over the cohort
    round n      every client trains; d_k = theta_k - theta;  clusters = hierarchical clustering of the d_k up to a threshold
    from then on FedAvg in each cluster, which begins with the common model and this round's updates

paper / released code / here
    OCFL's code gives cosine similarities where distances are meant, so that the least alike are put together (F13:
      `metric="similarity"`); here they are distances.
    OCFL's code compares whole states, BatchNorm's statistics too (`compare="state"`), and averages without weights
      (`weighted=false`). Its rounds count from 0: its clustering in iteration 20 is `at_round=21`.
    The paper tries thresholds from 0.05 to 0.4 and other metrics and linkages: all are options.
    A client that did not answer in round n chooses among the clusters' models whenever it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from ilk.checked import options
from ilk.clusters import linkage as tree
from ilk.clusters.updates import cosine_distance, cosine_similarity, euclidean_distance, manhattan_distance
from ilk.method import Clustered, Cohort, Method, Server
from ilk.params import average_clusters, gram
from ilk.server import Answers
from ilk.tasks import Fit

FROM_GRAM = {"cosine": cosine_distance, "euclidean": euclidean_distance, "similarity": cosine_similarity}


@dataclass(frozen=True)
class BriggsState(Clustered):
    """One model a cluster, and whether the clusters have been found."""

    clustered: bool


@options
class Briggs(Method[BriggsState]):
    """Some rounds of FedAvg, then one hierarchical clustering of all clients' updates."""

    name: ClassVar[str] = "briggs"
    paper: ClassVar[str] = "Briggs et al., IJCNN 2020"

    at_round: Annotated[int, Field(ge=1)] = 20
    """The round in which everybody is asked and clustered."""
    metric: Literal["cosine", "euclidean", "manhattan", "similarity"] = "cosine"
    """Distance between two updates; similarity: the cosine itself as a distance, OCFL's mistake."""
    linkage: tree.Linkage = "upgma"
    """Distance between two clusters."""
    threshold: Annotated[float, Field(ge=0)] = 0.05
    """Clusters join up to this distance."""
    compare: Literal["trainable", "state"] = "trainable"
    """What updates are compared by: trainable parameters, or the whole state with its buffers."""
    weighted: bool = True
    """Weigh clients by their samples."""

    @property
    def training(self) -> Fit:
        """Train; who is in no cluster yet tells which model it chose."""
        return Fit(self.local, tell=True)

    def start(self, server: Server) -> BriggsState:
        """Begin with one cluster of all."""
        return BriggsState(server.initial_model[None], np.zeros(len(server.everyone), np.int64), clustered=False)

    def round(self, server: Server, state: BriggsState, cohort: Cohort) -> BriggsState:
        """Average in each cluster; in one round, find the clusters first."""
        now = server.round >= self.at_round and not state.clustered  # later, if that round was void
        trained = server.ask(self.training, server.everyone if now else cohort, self.message(state))
        if now:
            found = self._group(server, state, trained)
            cluster = np.full(len(server.everyone), -1)
            cluster[trained.clients] = found
            state = BriggsState(np.repeat(state.models, found.max() + 1, axis=0), cluster, clustered=True)
        membership = trained.membership(state.cluster)
        weights = trained.sizes if self.weighted else np.ones(len(trained))
        return replace(state, models=average_clusters(state.models, trained.models, membership, weights))

    def _group(self, server: Server, state: BriggsState, trained: Answers) -> tree.Labels:
        """Cluster the clients by their updates."""
        size = server.net.trainable if self.compare == "trainable" else state.models.shape[1]
        updates, base = [model[:size] for model in trained.models], state.models[0, :size]
        distance = (
            manhattan_distance(updates) if self.metric == "manhattan" else FROM_GRAM[self.metric](gram(updates, base))
        )
        return tree.cut_at(tree.tree(distance, self.linkage), self.threshold)
