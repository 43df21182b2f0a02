"""FLIS-HC: clusters found once, after a first training of everybody, from what the models say about the server's data.

Morafah, Vahidian, Wang, Lin: FLIS: Clustered Federated Learning via Inference Similarity for Non-IID Data Distribution,
IEEE Open Journal of the Computer Society, 2023.

    once         every client trains from theta_0 and sends its model;  A_ij = agreement on the server's data
                 clusters = hierarchical clustering of 1 - A, each begins anew from theta_0
    each round   FedAvg in each cluster, over the clients asked

paper / released code / here
    The released "HC" is no hierarchical clustering: each client is alone unless two agree on 96 % (F4), which is nearly
      `solo`; it is not rebuilt. An older routine is Ward's linkage of the rows of A, cut into five: `linkage="ward-of-rows"`
      with `clusters=5`. Here: average linkage on 1 - A, cut at the largest gap, at a threshold, or into `clusters`.
    The code sends the mean of the members' last stored models; here a cluster has a model.
    The first training has as many epochs as every other, FedZoo-Bench's has one: `first_epochs`.
    A newcomer, and who did not answer at the start, trains from theta_0 when it is first asked and joins the cluster with
      the highest mean agreement.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ilk.checked import options
from ilk.clusters import linkage as tree
from ilk.clusters.agreement import agreement_between, inference_agreement
from ilk.method import Clustered, Cohort, Method, Server
from ilk.params import average_clusters
from ilk.server import NobodyAnswered
from ilk.tasks import Fit


@dataclass(frozen=True)
class FLISHCState(Clustered):
    """One model a cluster, and what each client's first model said."""

    predictions: NDArray[np.int64]  # clients x samples of the server; -1: has not trained yet


@options
class FLISHierarchical(Method[FLISHCState]):
    """Clusters found once by agreement of everybody's first models on the server's data."""

    name: ClassVar[str] = "flis-hc"
    paper: ClassVar[str] = "Morafah et al., IEEE OJCS 2023"
    needs_auxiliary: ClassVar[bool] = True

    threshold: Annotated[float, Field(ge=0)] | Literal["gap"] = "gap"
    """Clusters join up to this mean disagreement (1 - agreement), or below the largest gap."""
    clusters: Annotated[int, Field(ge=1)] | None = None
    """Stop at this many clusters, whatever the threshold."""
    linkage: tree.Linkage | Literal["ward-of-rows"] = "upgma"
    """How far apart two clusters are; ward-of-rows: Ward's linkage of the rows of A, as in older code of the authors."""
    first_epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs of the first training, after which clusters are found; default: as many as in every round."""

    def start(self, server: Server) -> FLISHCState:
        """Let everybody train once, and cluster those that answered."""
        first = server.ask(self._first, server.everyone, {"models": server.initial_model[None]})
        said = server.predict(first.models)
        agreement = inference_agreement(said)
        merges = tree.ward(agreement) if self.linkage == "ward-of-rows" else tree.tree(1.0 - agreement, self.linkage)
        cluster = np.full(len(server.everyone), -1)
        cluster[first.clients] = found = self._cut(merges)
        predictions = np.full((len(server.everyone), said.shape[1]), -1)
        predictions[first.clients] = said
        return FLISHCState(np.repeat(server.initial_model[None], found.max() + 1, axis=0), cluster, predictions)

    def round(self, server: Server, state: FLISHCState, cohort: Cohort) -> FLISHCState:
        """Let the cohort train the models of their clusters, and average within each cluster."""
        newcomers = cohort[state.cluster[cohort] < 0]
        if len(newcomers):
            with suppress(NobodyAnswered):
                state = self._welcome(server, state, newcomers)
            cohort = cohort[state.cluster[cohort] >= 0]  # who was silent just now is not asked again in this round
        trained = server.ask(self.training, cohort, self.message(state))
        own = state.cluster[trained.clients]
        return replace(state, models=average_clusters(state.models, trained.models, own, trained.sizes))

    def _welcome(self, server: Server, state: FLISHCState, newcomers: Cohort) -> FLISHCState:
        """Place each newcomer in the cluster whose first models agree most with its own."""
        first = server.ask(self._first, newcomers, {"models": server.initial_model[None]})
        said, known = server.predict(first.models), np.flatnonzero(state.cluster >= 0)
        agreement = agreement_between(said, state.predictions[known])
        to_cluster = [agreement[:, state.cluster[known] == z].mean(axis=1) for z in range(len(state.models))]
        cluster, predictions = state.cluster.copy(), state.predictions.copy()
        cluster[first.clients], predictions[first.clients] = np.argmax(to_cluster, axis=0), said
        return replace(state, cluster=cluster, predictions=predictions)

    @property
    def _first(self) -> Fit:
        return Fit(replace(self.local, epochs=self.first_epochs or self.local.epochs))

    def _cut(self, merges: NDArray[np.float64]) -> tree.Labels:
        if self.clusters is not None:
            return tree.cut_into(merges, self.clusters)
        return tree.cut_at_gap(merges) if self.threshold == "gap" else tree.cut_at(merges, float(self.threshold))
