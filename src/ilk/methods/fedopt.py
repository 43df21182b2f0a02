"""FedOpt: the clients' mean update is a gradient for an optimiser on the server.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021.

    D = sum_k p_k (theta_k - theta_t),  p_k = n_k / sum n
    sgd      theta += lr D                          avgm   v = beta1 v + D,  theta += lr v
    adagrad  v += D^2          adam  v = beta2 v + (1 - beta2) D^2          yogi  v -= (1 - beta2) D^2 sign(v - D^2)
             with m = beta1 m + (1 - beta1) D:  theta += lr m / (sqrt(v) + tau),  v_0 = tau^2

paper / released code / here
    OCFL's "FedOpt" is sgd with lr 1 and the plain mean: `weighted=false`. sgd with lr 1 and weights is FedAvg.
    The paper's adagrad has beta1 = 0: give it so. Only trainable parameters are optimised; buffers are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ilk.checked import options
from ilk.method import Cohort, Method, Server, State
from ilk.params import average


@dataclass(frozen=True)
class FedOptState(State):
    """The model and the server optimiser's two moments."""

    m: NDArray[np.float64]
    v: NDArray[np.float64]


@options
class FedOpt(Method[FedOptState]):
    """The clients' mean update is a gradient for an optimiser on the server."""

    name: ClassVar[str] = "fedopt"
    paper: ClassVar[str] = "Reddi et al., ICLR 2021"

    optimiser: Literal["sgd", "avgm", "adagrad", "adam", "yogi"] = "sgd"
    """The server's optimiser."""
    server_lr: Annotated[float, Field(gt=0, le=1e30)] = 1.0
    """The server's learning rate; the adaptive ones want about 0.01 to 0.1."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum (avgm, adagrad, adam, yogi)."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Memory of the squares (adam, yogi)."""
    tau: Annotated[float, Field(gt=0, le=1e30)] = 1e-3
    """How adaptive the adaptive ones are: the smaller, the more."""
    weighted: bool = True
    """Weigh the clients by their samples."""

    def start(self, server: Server) -> FedOptState:
        """Begin with the initial model and moments at rest."""
        size = server.net.trainable
        return FedOptState(server.initial_model[None], np.zeros(size), np.full(size, self.tau**2))

    def round(self, server: Server, state: FedOptState, cohort: Cohort) -> FedOptState:
        """Average, and take one step of the server's optimiser."""
        trained = server.ask(self.training, cohort, self.message(state))
        theta = average(trained.models, trained.sizes if self.weighted else np.ones(len(trained))).astype(np.float64)
        part = slice(0, len(state.m))
        old = state.models[0, part].astype(np.float64)
        step, m, v = self.step(theta[0, part] - old, state.m, state.v)
        theta[0, part] = old + self.server_lr * step
        return FedOptState(theta.astype(np.float32), m, v)

    def step(
        self, d: NDArray[np.float64], m: NDArray[np.float64], v: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the step for the mean update d, and the new moments."""
        if self.optimiser == "sgd":
            return d, m, v
        if self.optimiser == "avgm":
            m = self.beta1 * m + d
            return m, m, v
        m = self.beta1 * m + (1 - self.beta1) * d
        if self.optimiser == "adagrad":
            v = v + d**2
        elif self.optimiser == "adam":
            v = self.beta2 * v + (1 - self.beta2) * d**2
        else:
            v = v - (1 - self.beta2) * d**2 * np.sign(v - d**2)
        return m / (np.sqrt(v) + self.tau), m, v
