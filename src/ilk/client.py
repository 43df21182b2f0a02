"""A client as a task sees it: its data, its memory, its random streams, and the network of the place where it lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ilk import models, native
from ilk.data.federation import Federation, Part
from ilk.params import Net, Vector
from ilk.randomness import stream, torch_seed

Message = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Setting:
    """What a place must know to answer for its clients; the same at every place, so it travels there once."""

    federation: Federation
    model: str
    seed: int
    keep_models: bool = False  # clients keep the model of their last training (protocol "last-held")
    compute: native.Compute = "auto"


class Place:
    """Where clients' tasks are answered: one process, with one network that its clients use in turn."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        federation = setting.federation
        self.net: Net = models.build(setting.model, federation.shape, federation.classes, setting.seed)
        self.initial_model: Vector = self.net.read()
        native.attach(self.net, federation.shape, setting.compute)
        self.noted: dict[object, Any] = {}  # what clients of one `ask` may share, see Client.once

    def client(self, index: int, round: int, memory: Message) -> Client:
        """Return this client as it stands in this round, with what it remembers from earlier ones."""
        return Client(index=index, round=round, memory=memory, place=self)


@dataclass
class Client:
    """One participant, for the length of one answer."""

    index: int
    round: int
    memory: Message
    place: Place
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)
    held: Vector | None = None  # the model that is the client's to use, where it was handed one

    @property
    def id(self) -> str:
        """The name that lasts: from run to run, from engine to engine."""
        return self.place.setting.federation.ids[self.index]

    @property
    def classes(self) -> int:
        """How many labels the federation has."""
        return self.place.setting.federation.classes

    @property
    def net(self) -> Net:
        """A network to load models into; whatever was in it before does not matter."""
        return self.place.net

    @property
    def initial_model(self) -> Vector:
        """The model that everybody starts from; made from the seed, so it need not be sent."""
        return self.place.initial_model

    def data(self, part: Part) -> tuple[Tensor, Tensor]:
        """The client's own samples, ready for a network: inputs and labels."""
        x, y = self.place.setting.federation.read(self.index, part)
        return torch.from_numpy(x), torch.from_numpy(y)

    def raw(self, part: Part) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The client's own samples as they were recorded, images from 0 to 1; and their labels."""
        return self.place.setting.federation.read(self.index, part, normalised=False)

    def stream(self, purpose: str) -> np.random.Generator:
        """The random stream of this purpose, round and client."""
        return stream(self.place.setting.seed, purpose, self.round, self.id)

    def seed_torch(self, purpose: str) -> None:
        """Let PyTorch's own randomness (dropout) be that of this purpose, round and client."""
        torch.manual_seed(torch_seed(self.place.setting.seed, purpose, self.round, self.id))

    def remember(self, **arrays: NDArray[Any]) -> None:
        """Keep arrays for later rounds. They are kept only once the server has accepted the answer."""
        self.kept.update(arrays)

    def once(self, key: object, compute: Callable[[], Any]) -> Any:
        """Compute what does not depend on the client once for all clients that one `ask` reaches at this place."""
        if key not in self.place.noted:
            self.place.noted[key] = compute()
        return self.place.noted[key]
