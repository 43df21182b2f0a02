"""CFL: train together until the mean update has come to rest while single clients still pull; then split by cosine.

Sattler, Müller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization under Privacy
Constraints, IEEE TNNLS 2021.

    client k     d_k = theta_k - theta_c after local training
    server       split cluster c if  |mean_k d_k| < eps1  and  max_k |d_k| > eps2  and |c| > 2 and t > t_min:
                   two clusters by complete linkage on -cos(d_i, d_j)
                 theta_c <- theta_c + mean_k d_k

paper / released code / here
    The original asks everybody in every round. PACFL's code asks a tenth and goes on with all stored updates: stale ones
      are added again every round, and clients never asked count as zeros (F10); `stale=true` does so. Here only this
      round's updates are added; norms and cosines are those of each member's last update, and a cluster splits only if
      every member has sent one since the last split and within the last 2 ceil(N / cohort) rounds.
    eps1 and eps2 are norms, so they depend on the model, the learning rate and the epochs: look at them before you trust
      the defaults: they stand in the history's column `norms`. The released code compares whole states, BatchNorm's
      statistics too (`compare="state"`); here trainable parameters. It counts rounds from 0: its first split in iteration
      21 is in round 22 (`t_min=21`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ilk.checked import options
from ilk.clusters import linkage as tree
from ilk.clusters.updates import cosine_distance
from ilk.method import Clustered, Cohort, Method, Server
from ilk.params import average_clusters, gram


@dataclass(frozen=True)
class CFLState(Clustered):
    """One model a cluster, and the clients' last updates."""

    updates: NDArray[np.float32]  # clients x P: the last one of each
    since: NDArray[np.int64]  # round of that update; 0: none since its cluster came to be


@options
class CFL(Method[CFLState]):
    """Split a cluster in two when its mean update has come to rest while single clients still pull."""

    name: ClassVar[str] = "cfl"
    paper: ClassVar[str] = "Sattler et al., IEEE TNNLS 2021"

    eps1: Annotated[float, Field(ge=0)] = 0.4
    """A cluster may split when the norm of its mean update is below this."""
    eps2: Annotated[float, Field(ge=0)] = 1.6
    """... and the largest norm of a single update is above this."""
    t_min: Annotated[int, Field(ge=0)] = 20
    """No split up to this round."""
    compare: Literal["trainable", "state"] = "trainable"
    """What norms and cosines are of: trainable parameters, or the whole state with its buffers."""
    stale: bool = False
    """Add every client's last update in each round, as PACFL's code does (F10)."""

    def start(self, server: Server) -> CFLState:
        """Begin with one cluster of all."""
        n, size = len(server.everyone), len(server.initial_model)
        zeros = np.zeros(n, np.int64)
        return CFLState(server.initial_model[None], zeros, np.zeros((n, size), np.float32), zeros)

    def round(self, server: Server, state: CFLState, cohort: Cohort) -> CFLState:
        """Collect updates, split what has come to rest, add each cluster's mean update."""
        trained = server.ask(self.training, cohort, self.message(state))
        own = state.cluster[trained.clients]
        updates, since = state.updates.copy(), state.since.copy()
        for k, model, z in zip(trained.clients, trained.models, own, strict=True):
            updates[k] = model - state.models[z]
        since[trained.clients] = server.round
        state = replace(state, updates=updates, since=since)
        window = 2 * int(np.ceil(len(server.everyone) / len(cohort)))
        norms = []
        for z in range(len(state.models)):
            state, measured = self._split(server, state, z, window)
            norms.append(measured)
        server.report(norms=norms)  # of each cluster what eps1 and eps2 are held against; none where nothing is fresh
        if self.stale:
            mean = [state.updates[state.cluster == z].mean(axis=0) for z in range(len(state.models))]
            return replace(state, models=state.models + np.stack(mean))
        models = average_clusters(state.models, trained.models, state.cluster[trained.clients], np.ones(len(trained)))
        return replace(state, models=models)

    def _split(self, server: Server, state: CFLState, z: int, window: int) -> tuple[CFLState, list[float] | None]:
        """Split cluster z if it has come to rest and its members have not. Return its mean and its largest norm, too."""
        members = np.flatnonzero(state.cluster == z)
        fresh = (state.since[members] > 0) & (state.since[members] > server.round - window)
        if not (self.stale or fresh.all()):
            return state, None
        size = server.net.trainable if self.compare == "trainable" else state.models.shape[1]
        inner = gram([state.updates[k, :size] for k in members], np.zeros(size, np.float32))
        mean_norm = float(np.sqrt(max(inner.mean(), 0.0)))
        max_norm = float(np.sqrt(np.diag(inner).max()))
        norms = [mean_norm, max_norm]
        rests = mean_norm < self.eps1 and max_norm > self.eps2
        if not (rests and len(members) > 2 and server.round > self.t_min):
            return state, norms
        half = tree.cut_into(tree.tree(cosine_distance(inner), "complete"), 2)
        cluster, since = state.cluster.copy(), state.since.copy()
        cluster[members[half == 1]] = len(state.models)
        since[members] = 0
        models = np.concatenate([state.models, state.models[[z]]])
        return replace(state, models=models, cluster=cluster, since=since), norms
