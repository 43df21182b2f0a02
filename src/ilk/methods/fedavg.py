"""FedAvg: one model for all.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from Decentralized
Data, AISTATS 2017.

    theta_{t+1} = sum_k n_k theta_k / sum_k n_k     over the clients k whose answers came

paper / released code / here
    The CAFA and OCFL authors average without the weights n_k (`fedopt` with `weighted=false`); the others and this file
    average with them.
"""

from __future__ import annotations

from typing import ClassVar

from ilk.checked import options
from ilk.method import Cohort, Method, Server, State
from ilk.params import average


@options
class FedAvg(Method[State]):
    """One model for all: the mean of the clients' models, weighted by their samples."""

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Send the model, let the cohort train it, average."""
        trained = server.ask(self.training, cohort, self.message(state))
        return State(models=average(trained.models, trained.sizes))
