"""FedProx: FedAvg whose clients are held back by a spring to the model that they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020.

    client k     minimises  L_k(theta) + mu / 2 |theta - theta_t|^2,  so the gradient contains  mu (theta - theta_t)
    server       theta_{t+1} = sum_k n_k theta_k / sum_k n_k

paper / released code / here
    The PACFL, FLIS and CAFA authors' code has no working proximal term: it compares the live parameters with themselves, or
    sums tensors without a gradient (F2), so their FedProx is FedAvg. Here the term works; `mu=0` is what they ran.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from ilk.checked import options
from ilk.method import Cohort, Method, Server, State
from ilk.params import average
from ilk.tasks import Fit


@options
class FedProx(Method[State]):
    """FedAvg whose clients are pulled back towards the model that they received."""

    name: ClassVar[str] = "fedprox"
    paper: ClassVar[str] = "Li et al., MLSys 2020"

    mu: Annotated[float, Field(ge=0, le=1e30)] = 0.001
    """Strength of the pull; 0 is FedAvg."""

    @property
    def training(self) -> Fit:
        """Train with the proximal term."""
        return Fit(self.local, proximal=self.mu)

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Send the model, let the cohort train it, average."""
        trained = server.ask(self.training, cohort, self.message(state))
        return State(models=average(trained.models, trained.sizes))
