"""OCFL: cluster once, as soon as the clients' updates stop turning towards each other.

Zuziak, Pellungrini, Rinzivillo: One-Shot Clustering for Federated Learning, IEEE Big Data 2024.

    round t      G_ij = 1 - cos(d_i, d_j),  d_i = theta_i - theta
    temperature  T_t = |G|_F / sqrt(4 n (n - 1)), from 0 (all alike) to 1
    trigger      the first t with T_t > T_{t-1}: clusters = grouping of G; each begins with the common model,
                 and this round's updates are averaged in the clusters already; never clustered again
    server       theta_z <- theta_z + mean_{i in z} d_i

paper / released code / here
    Trigger: the paper's Algorithm 1 would fire in the first round; its text and the code wait for a strict rise (F11).
    Updates: the code compares whole states with BatchNorm's statistics and counters (F12); here trainable parameters,
      `compare="state"` for the whole.
    Wiring: the code feeds Affinity Propagation distances where it wants similarities (F13:
      `grouping="affinity-of-distances"`); here each gets what it expects.
    Noise of HDBSCAN: the code pools it as one cluster; here it joins the nearest (`noise`).
    Mean: plain, as in the paper; `weighted=true` weighs by samples.
    Who was not asked in the round of clustering joins, with its next update, the cluster to which the mean G is smallest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, InstanceOf, PlainSerializer

from ilk.checked import options
from ilk.clusters.grouping import GROUPINGS, Clusterer, Noise, group, named
from ilk.clusters.updates import cosine_distance, temperature
from ilk.errors import IlkError
from ilk.method import Clustered, Cohort, Method, Server
from ilk.params import Vector, average_clusters, combine, gram
from ilk.server import Answers
from ilk.tasks import Fit


def _known(name: str) -> str:
    if name not in GROUPINGS and ":" not in name:
        raise ValueError("unknown grouping")
    return name


Name = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": [*GROUPINGS, "module:callable"]})]
Object = Annotated[
    InstanceOf[Clusterer], PlainSerializer(repr, when_used="json"), Field(json_schema_extra={"type": "string"})
]


@dataclass(frozen=True)
class OCFLState(Clustered):
    """One model a cluster, the temperature so far, and each cluster's mean direction for who comes later."""

    temperature: float | None  # of the last round in which it was measured
    clustered_at: int | None  # the round of clustering
    directions: NDArray[np.float32]  # clusters x compared: mean of the members' updates, each of length 1


@options
class OCFL(Method[OCFLState]):
    """Cluster once, when the clients' updates begin to turn away from each other."""

    name: ClassVar[str] = "ocfl"
    paper: ClassVar[str] = "Zuziak et al., IEEE Big Data 2024"

    grouping: Name | Object = "hdbscan"
    """How the distances are clustered; in Python also an object with fit_predict, given the distance matrix."""
    k: Annotated[int, Field(ge=1)] | None = None
    """Number of clusters for kmeans; default 3, as in the paper."""
    noise: Noise = "nearest"
    """Where clients go that the grouping calls noise."""
    compare: Literal["trainable", "state"] = "trainable"
    """What updates are compared by: trainable parameters, or the whole state with its buffers."""
    weighted: bool = False
    """Weigh clients by their samples."""

    def __post_init__(self) -> None:
        """Refuse a number of clusters that nothing would ask for."""
        if self.k is not None and self.grouping != "kmeans":
            raise IlkError(
                f"ocfl: k = {self.k} is for grouping = 'kmeans' only; grouping {self.grouping!r} finds its own number."
            )

    @property
    def training(self) -> Fit:
        """Train; who is in no cluster yet tells which model it chose."""
        return Fit(self.local, tell=True)

    def start(self, server: Server) -> OCFLState:
        """Begin with one cluster of all."""
        if isinstance(self.grouping, str):
            named(self.grouping)  # a wrong name is said now, not in the round of clustering
        everyone = np.zeros(len(server.everyone), np.int64)
        return OCFLState(server.initial_model[None], everyone, None, None, np.empty((0, 0), np.float32))

    def round(self, server: Server, state: OCFLState, cohort: Cohort) -> OCFLState:
        """Average in each cluster; until there are clusters, watch the temperature."""
        trained = server.ask(self.training, cohort, self.message(state))
        began = trained.membership(state.cluster)
        size = server.net.trainable if self.compare == "trainable" else state.models.shape[1]
        if state.clustered_at is None:
            state, began = self._watch(server, state, trained, began, size)
        else:
            state = _attribute(state, trained, began, size)
        weights = trained.sizes if self.weighted else np.ones(len(trained))
        return replace(state, models=average_clusters(state.models, trained.models, began, weights))

    def _watch(
        self, server: Server, state: OCFLState, trained: Answers, began: NDArray[np.int64], size: int
    ) -> tuple[OCFLState, NDArray[np.int64]]:
        """Measure the temperature; at its first rise, cluster. Return the cluster of each answer, too."""
        base = state.models[0, :size]
        products = gram([model[:size] for model in trained.models], base)
        distance = cosine_distance(products)
        before, now = state.temperature, temperature(distance)
        state = replace(state, temperature=now)
        server.report(temperature=now)
        if before is None or now <= before:
            return state, began
        found = group(distance, self.grouping, self.k, self.noise, int(server.stream("grouping").integers(2**31)))
        cluster = np.full(len(state.cluster), -1)
        cluster[trained.clients] = found
        lengths = np.sqrt(np.maximum(np.diag(products), 1e-24))
        late = (cluster < 0).any()
        means = [_mean_direction(trained.models, base, lengths, found == z) for z in range(found.max() + 1) if late]
        directions = np.stack(means) if late else state.directions  # kept only where somebody is still to come
        shape = (found.max() + 1, state.models.shape[1])
        models = np.broadcast_to(state.models, shape)  # copied when they are averaged
        return replace(state, models=models, cluster=cluster, clustered_at=server.round, directions=directions), found


def _mean_direction(
    models: list[Vector], base: Vector, lengths: NDArray[np.float64], members: NDArray[np.bool_]
) -> Vector:
    """Return the mean of the members' updates, each made to have length 1."""
    factors = members / lengths / members.sum()
    return combine([*(model[: len(base)] for model in models), base], [*factors, -factors.sum()])


def _attribute(state: OCFLState, trained: Answers, began: NDArray[np.int64], size: int) -> OCFLState:
    """Let each client without a cluster join the one whose members' updates are most like its own, on average."""
    cluster = state.cluster.copy()
    for k, model, row in zip(trained.clients, trained.models, began, strict=True):
        if cluster[k] < 0:
            update = (model - state.models[row])[:size]
            cluster[k] = int(np.argmax(state.directions @ update))
    return replace(state, cluster=cluster)
