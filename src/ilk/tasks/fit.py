"""Train a model on a client's own data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ilk.client import Client, Message
from ilk.params import Vector
from ilk.tasks.score import loss_of
from ilk.tasks.sgd import LocalSGD


@dataclass(frozen=True)
class Fit:
    """Train the model received; of several, the one with the least loss on the client's validation (or train) data."""

    local: LocalSGD
    choose_on: Literal["validation", "train"] = "validation"

    def begin(self, client: Client, message: Message) -> tuple[Vector, int]:
        """Return the model that training starts from; of equal ones the first."""
        models = message["models"]
        if len(models) == 1:
            return models[0], 0
        x, y = client.data(self.choose_on)
        chosen = int(np.argmin([loss_of(client.net, model, x, y) for model in models]))
        return models[chosen], chosen

    def answer(self, client: Client, message: Message) -> Message:
        """Train and send the model back."""
        start, _ = self.begin(client, message)
        model = self.local.train(client, start)
        if client.place.setting.keep_models:
            client.remember(model=model)
        return {"model": model}


@dataclass(frozen=True)
class FitOwn:
    """Go on training the client's own model, which nobody else ever sees."""

    local: LocalSGD

    def begin(self, client: Client, message: Message) -> tuple[Vector, int]:
        """Return the model of the client's last training, before the first the common initial one."""
        return client.memory.get("model", client.initial_model), -1

    def answer(self, client: Client, message: Message) -> Message:
        """Train and keep the model; send nothing."""
        client.remember(model=self.local.train(client, self.begin(client, message)[0]))
        return {}
