"""The contract of a method: the server's side of a conversation with the clients, and nothing else.

A method is a frozen set of options with four things to say::

    start(server) -> state              before the first round
    round(server, state, cohort) -> state
    serves(state, client) -> rows       which of the state's models this client is sent when it is asked
    training                            what a client is asked to do in a round

`round` asks with ``server.ask(self.training, cohort, ...)`` and averages what came. Whoever does not answer is simply
not among the answers; when nobody does, the round is void. `serves` and `training` also tell the evaluation which model a
client would use, so that what is measured is what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ilk.checked import options
from ilk.client import Message
from ilk.server import Server
from ilk.tasks import Fit, LocalSGD
from ilk.tasks.task import Training

__all__ = ["Clustered", "Cohort", "Message", "Method", "Server", "State"]

Cohort = NDArray[np.int64]


@dataclass(frozen=True)
class State:
    """All that a method remembers between rounds: arrays and plain values only, so that any round can be saved."""

    models: NDArray[np.float32]  # one row a model that the server holds


@dataclass(frozen=True)
class Clustered(State):
    """One model a cluster, and who is in which."""

    cluster: NDArray[np.int64]  # of each client; -1: in none yet


S = TypeVar("S", bound=State)


@options
class Method(Generic[S]):
    """Base of all methods. Options are fields; the docstring's first line is the method's description."""

    local: LocalSGD = LocalSGD()

    name: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    needs_auxiliary: ClassVar[bool] = False  # the server must own data to compare models on

    @property
    def leak(self) -> str:
        """How these options let test data decide in training, in words: then accuracies are too high. Else nothing."""
        return ""

    def start(self, server: Server) -> S:
        """Return the state before the first round: by default one model for all."""
        return cast(S, State(models=server.initial_model[None]))

    def round(self, server: Server, state: S, cohort: Cohort) -> S:
        """Ask the cohort, think, and return the new state."""
        raise NotImplementedError(f"{type(self).__name__} does not say what happens in a round")

    def welcome(self, server: Server, state: S, newcomers: Cohort) -> S:
        """Return the state with these clients placed, without a round: by default they choose by what they are served."""
        return state

    def serves(self, state: S, client: int) -> Sequence[int]:
        """Return the rows of ``state.models`` that this client is sent: its cluster's, or all, and it takes the best."""
        if isinstance(state, Clustered) and state.cluster[client] >= 0:
            return [int(state.cluster[client])]
        return range(len(state.models))

    @property
    def training(self) -> Training:
        """What a client is asked to do in a round."""
        return Fit(self.local)

    def message(self, state: S) -> Callable[[int], Message]:
        """Return what each client is sent when it is asked to train: the models that it is served."""

        def send(client: int) -> Message:
            rows = list(self.serves(state, client))
            if not rows:
                return {}
            neighbours = rows == list(range(rows[0], rows[0] + len(rows)))  # a view then: models may be large
            return {"models": state.models[rows[0] : rows[0] + len(rows)] if neighbours else state.models[rows]}

        return send
