"""Measure what a client would have from a method, under a named protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ilk.client import Client, Message
from ilk.params import Vector
from ilk.protocols import Protocol
from ilk.tasks.score import Score, forward, score
from ilk.tasks.task import Training


@dataclass(frozen=True)
class Evaluate:
    """Test the model that `protocol` names. `training` knows which model a client starts from, and how it trains.

    Clients that are sent the same model need not each run it on samples that they have in common (ilk/evaluate.py says
    who does). So a part of the whole can be asked for: only which model the client would choose (`choose`), or what the
    one model that it is sent gives for its share of the samples (`outputs`).
    """

    training: Training
    protocol: Protocol
    part: Literal["whole", "choose", "outputs"] = "whole"

    def answer(self, client: Client, message: Message) -> Message:
        """Return the scores, and which of the received models the client uses (-1: its own)."""
        if self.part == "outputs":
            return self._outputs(client, message)
        begun, chosen = self.training.begin(client, message)
        if self.part == "choose":
            return {"chosen": np.array(chosen)}
        return {**_plain(self._score(client, self._measured(client, message, begun))), "chosen": np.array(chosen)}

    def _measured(self, client: Client, message: Message, begun: Vector) -> Vector:
        if self.protocol == "last-held":
            return client.memory.get("model", client.initial_model)
        if self.protocol == "after-local":
            trained = self.training.answer(client, message)
            return client.kept["model"] if "model" in client.kept else trained["model"]  # what is sent may be a part
        return begun

    def _outputs(self, client: Client, message: Message) -> Message:
        """Say what the model gives for some samples; without samples, score it on all of the client's."""
        model = message["models"][0] if "models" in message else client.memory.get("model", client.initial_model)
        if "samples" not in message:
            return _plain(self._score(client, model))
        federation, which = client.place.setting.federation, message["samples"]
        if not len(which):
            return {"outputs": np.empty((0, client.classes), dtype=np.float32)}
        on_global = self.protocol == "global"
        x = federation.read_test(which)[0] if on_global else federation.read_test_part(client.index, which)
        return {"outputs": forward(client.net, model, torch.from_numpy(x)).numpy()}

    def _score(self, client: Client, model: Vector) -> Score:
        if self.protocol != "global":
            return score(client.net, model, *client.data("test"))
        x, y = client.once("global test", client.place.setting.federation.read_test)
        return score(client.net, model, torch.from_numpy(x), torch.from_numpy(y))


def _plain(result: Score) -> dict[str, np.ndarray]:
    return {kind: np.array(getattr(result, kind)) for kind in ("accuracy", "f1", "loss")}
