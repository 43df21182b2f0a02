"""What a method is handed: the server's side of the conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ilk import models
from ilk.client import Message, Place, Setting
from ilk.errors import IlkError
from ilk.ledger import Ledger
from ilk.params import Models, Net, Vector
from ilk.randomness import stream
from ilk.tasks.score import predict
from ilk.tasks.task import Task


@dataclass(frozen=True)
class Answer:
    """What one client sent, and what it wants to remember if the server accepts it."""

    client: int
    message: Message
    kept: Message


def cohort_size(clients: int, cohort: int | float) -> int:
    """Return how many clients are asked in a round: that number, or with a decimal point that fraction of them."""
    size = max(int(cohort * clients + 1e-9), 1) if isinstance(cohort, float) else cohort
    if size > clients:
        raise IlkError(f"A cohort of {size} clients is more than the federation has ({clients}).")
    return size


class Carrier(Protocol):
    """The part of an engine that a server uses."""

    @property
    def place(self) -> Place | None:
        """Where clients are answered for in this process, if any are: the server then shares its network."""
        ...

    def reach(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of these clients that can be asked now: to the others nothing is sent, and nothing is counted."""
        ...

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterable[Answer]:
        """Put the task to these clients, each with its message; return the answers that came."""
        ...

    def accept(self, answers: Sequence[Answer]) -> None:
        """Let the clients keep what they wanted to remember."""
        ...


class NobodyAnswered(Exception):
    """No client answered an `ask`: the round is void and the state stays as it was. Methods need not care."""


@dataclass(frozen=True)
class Answers:
    """The answers that came, in the order of the clients asked."""

    clients: NDArray[np.int64]
    sizes: NDArray[np.int64]  # training samples of these clients
    messages: tuple[Message, ...]

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, kind: str) -> NDArray[Any]:
        """Return one kind of content, a row for each client that answered."""
        return np.stack([message[kind] for message in self.messages])

    @property
    def models(self) -> list[Vector]:
        """The models that were sent, in the order of the clients; not stacked, for they may be large."""
        return [message["model"] for message in self.messages]

    def membership(self, cluster: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cluster that each answer belongs to: the client's own, or if it has none the one that it chose."""
        own = cluster[self.clients]
        chosen = [int(message.get("chosen", np.array(0))) for message in self.messages]
        return np.where(own >= 0, own, chosen)


@dataclass
class Server:
    """Asks clients, counts what crosses, and knows what a server may know."""

    setting: Setting
    carrier: Carrier
    ledger: Ledger = field(default_factory=Ledger)
    round: int = 0
    cohort: int | float = 1.0  # how many clients are asked in a round: a number, or with a decimal point a fraction
    reported: dict[str, Any] = field(default_factory=dict)  # in this round
    _place: Place | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of all clients; everywhere else a client is its position in here."""
        return self.setting.federation.ids

    @property
    def everyone(self) -> NDArray[np.int64]:
        """All clients."""
        return np.arange(len(self.ids))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Training samples of each client, as they state on joining."""
        return self.setting.federation.sizes

    @property
    def net(self) -> Net:
        """The network that the models are for: its layers, and how much of a model is trainable."""
        return self.place.net

    @property
    def initial_model(self) -> Vector:
        """The model that everybody starts from."""
        return self.place.initial_model

    def initial_models(self, count: int, draw: int = 0) -> NDArray[np.float32]:
        """Return different initial models; the first of draw 0 is `initial_model`, further draws are all new."""
        federation, setting = self.setting.federation, self.setting
        make = (
            models.initial_model(setting.model, federation.shape, federation.classes, setting.seed, which)
            for which in range(draw * count, (draw + 1) * count)
        )
        return np.stack(list(make))

    def stream(self, purpose: str) -> np.random.Generator:
        """The server's random stream for this purpose and round."""
        return stream(self.setting.seed, purpose, self.round)

    def sample(self, purpose: str) -> NDArray[np.int64]:
        """Draw as many clients as are asked in a round, for a question of the method's own."""
        clients = len(self.ids)
        return np.sort(self.stream(purpose).choice(clients, cohort_size(clients, self.cohort), replace=False))

    def ask(self, task: Task, clients: NDArray[np.int64], send: Message | Callable[[int], Message]) -> Answers:
        """Put a task to clients, with one message for all or a message for each; return the answers that came."""
        messages = {int(k): send(int(k)) if callable(send) else send for k in self.carrier.reach(clients)}
        self.ledger.count(self.round, "down", messages)
        came = {answer.client: answer for answer in self.carrier.ask(task, messages, self.round)}
        answers = [came[k] for k in messages if k in came]
        self.ledger.count(self.round, "up", {answer.client: answer.message for answer in answers})
        self.carrier.accept(answers)
        if not answers:
            raise NobodyAnswered
        who = np.array([answer.client for answer in answers], dtype=np.int64)
        return Answers(who, self.sizes[who], tuple(answer.message for answer in answers))

    def report(self, **values: Any) -> None:
        """Let the history hold what was measured or decided in this round: plain values, each a column of its name."""
        self.reported |= values

    def predict(self, models: Models) -> NDArray[np.int64]:
        """Return the class that each model gives to each of the server's own (auxiliary) samples."""
        self.setting.federation.require_auxiliary()
        x = self.setting.federation.read_auxiliary()
        inputs = torch.from_numpy(x)
        return np.stack([predict(self.place.net, model, inputs) for model in models])

    @property
    def place(self) -> Place:
        """Where the server computes: with the clients of this process, if there are any, else in a place of its own."""
        if self._place is None:
            self._place = self.carrier.place or Place(self.setting)
        return self._place
