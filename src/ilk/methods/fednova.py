"""FedNova: clients that took more steps do not pull the mean towards themselves.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020.

    client k     tau_k steps with momentum rho:  a_k = [tau_k - rho (1 - rho^tau_k) / (1 - rho)] / (1 - rho)
    server       g_k = (theta_t - theta_k) / a_k,   p_k = n_k / sum n
                 theta_{t+1} = theta_t - (sum_k p_k a_k) sum_k p_k g_k

paper / released code / here
    All the same. It is written as one weighted sum of models, so that equal a_k give FedAvg's bits. Buffers (BatchNorm's
      statistics) are no updates: they are averaged, for a step beyond the mean makes variances negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ilk.checked import options
from ilk.client import Client
from ilk.method import Cohort, Message, Method, Server, State
from ilk.params import average, combine
from ilk.tasks import Fit


@dataclass(frozen=True)
class FitNova(Fit):
    """Train, and tell how far the optimiser reached."""

    def answer(self, client: Client, message: Message) -> Message:
        """Send the model and a_k."""
        samples = len(client.data("train")[1])
        return {**super().answer(client, message), "reach": np.array(self.local.reach(samples), np.float32)}


@options
class FedNova(Method[State]):
    """FedAvg with each client's update divided by how far its optimiser reached."""

    name: ClassVar[str] = "fednova"
    paper: ClassVar[str] = "Wang et al., NeurIPS 2020"

    @property
    def training(self) -> FitNova:
        """Train, and tell how far the optimiser reached."""
        return FitNova(self.local)

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Average the updates per unit of reach, and go as far as the mean reach."""
        trained = server.ask(self.training, cohort, self.message(state))
        n = trained.sizes.astype(np.float64)
        p, a = n / n.sum(), trained["reach"].astype(np.float64)
        stretch = (n @ a) / (n.sum() * a)  # sum_j p_j a_j / a_k: exactly 1 where all a_k are equal
        theta = combine([state.models[0], *trained.models], [p @ (1 - stretch), *(p * stretch)])
        if len(theta) > (size := server.net.trainable):
            theta[size:] = average([model[size:] for model in trained.models], n)[0]
        return State(models=theta[None])
