"""Train a model on a client's own data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ilk.client import Client, Message
from ilk.params import Vector
from ilk.tasks.score import loss_of, score
from ilk.tasks.sgd import LocalSGD
from ilk.tasks.task import Training

Choice = Literal["validation-loss", "train-loss", "test-accuracy"]
TEST_CHOICE = "clients choose a model by their own test data (choose = 'test-accuracy', as in the released code)"


@dataclass(frozen=True)
class Fit:
    """Train the model received; of several, the one that is best on the client's own data."""

    local: LocalSGD
    choose: Choice = "validation-loss"
    proximal: float = 0.0
    tell: bool = False  # send the number of the model chosen, where there was a choice

    def begin(self, client: Client, message: Message) -> tuple[Vector, int]:
        """Return the model that training starts from; of equally good ones the first."""
        models = message["models"]
        chosen = best(client, models, self.choose) if len(models) > 1 else 0
        return models[chosen], chosen

    def answer(self, client: Client, message: Message) -> Message:
        """Train and send the model back."""
        start, chosen = self.begin(client, message)
        model = self.local.train(client, start, proximal=self.proximal)
        if client.place.setting.keep_models:
            client.remember(model=model)
        told = {"chosen": np.array(chosen, dtype=np.int32)} if self.tell and len(message["models"]) > 1 else {}
        return {"model": model, **told}


def begins_as_sent(training: Training) -> bool:
    """Say whether a client begins with one of the models that it is sent, unchanged: so it may be run by another one."""
    return getattr(type(training), "begin", None) is Fit.begin


def best(client: Client, models: NDArray[np.float32], choose: Choice) -> int:
    """Return which model is best for this client."""
    if choose == "test-accuracy":
        x, y = client.data("test")
        return int(np.argmax([score(client.net, model, x, y).accuracy for model in models]))
    x, y = client.data("train" if choose == "train-loss" else "validation")
    return int(np.argmin([loss_of(client.net, model, x, y) for model in models]))


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
