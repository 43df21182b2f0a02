"""LG-FedAvg: the last layers are shared, everything before them stays with the client.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency: Think Locally, Act Globally, NeurIPS workshop 2019.

    client k     overwrites its last layers with the server's, trains all of its model, sends the last layers
    server       last layers = sum n_k last layers_k / sum n_k

paper / released code / here
    The original starts from a long FedAvg run, averages without weights (`weighted=false`) and sends to everybody each
      round; PACFL's code, and this file, start from the common initial model and send to the cohort.
    PACFL's code shares the last four entries of the state: the last two layers, where a layer is whatever has parameters of
      its own. So it is here: in a network with normalisation the default 2 is the last norm and the classifier.
    To a newcomer PACFL's code sends the mean of whole models, which needs the local layers; here they never leave a client:
      it begins with the initial model's first layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from ilk.checked import options
from ilk.client import Client
from ilk.errors import IlkError
from ilk.method import Cohort, Message, Method, Server, State
from ilk.params import Vector, average
from ilk.tasks import LocalSGD


@dataclass(frozen=True)
class FitLocalGlobal:
    """Train one's own model with the last layers that the server sent; send these back."""

    local: LocalSGD
    layers: int

    def begin(self, client: Client, message: Message) -> tuple[Vector, int]:
        """Return the client's own model with the server's last layers."""
        model = client.memory.get("model", client.initial_model).copy()
        model[shared(client.net.layers, self.layers, client.net.trainable)] = message["models"][0]
        return model, 0

    def answer(self, client: Client, message: Message) -> Message:
        """Train, keep the whole model, send the last layers."""
        model = self.local.train(client, self.begin(client, message)[0])
        client.remember(model=model)
        return {"model": model[shared(client.net.layers, self.layers, client.net.trainable)]}


@options
class LGFedAvg(Method[State]):
    """The last layers are shared and averaged; everything before them stays with the client."""

    name: ClassVar[str] = "lg-fedavg"
    paper: ClassVar[str] = "Liang et al., NeurIPS workshop 2019"

    shared_layers: Annotated[int, Field(ge=1)] = 2
    """How many of the last layers (those that have parameters) are shared."""
    weighted: bool = True
    """Weigh the clients by their samples."""

    @property
    def training(self) -> FitLocalGlobal:
        """Train one's own model with the shared last layers."""
        return FitLocalGlobal(self.local, self.shared_layers)

    def start(self, server: Server) -> State:
        """Begin with the initial model's last layers."""
        net = server.net
        return State(server.initial_model[None, shared(net.layers, self.shared_layers, net.trainable)])

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Average the last layers."""
        trained = server.ask(self.training, cohort, self.message(state))
        return State(models=average(trained.models, trained.sizes if self.weighted else np.ones(len(trained))))

    def message(self, state: State) -> Callable[[int], Message]:
        """Send the last layers."""
        return lambda client: {"models": state.models}


def shared(layers: list[int], count: int, trainable: int) -> slice:
    """Return where the last `count` layers lie in a model's vector."""
    if count > len(layers):
        raise IlkError(f"lg-fedavg: shared_layers = {count}, but this model has only {len(layers)} layers.")
    return slice(layers[-count], trainable)
