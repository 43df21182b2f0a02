"""Measure what a client would have from a method, under a named protocol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ilk.client import Client, Message
from ilk.params import Vector
from ilk.protocols import Protocol
from ilk.tasks.score import Score, score
from ilk.tasks.task import Training


@dataclass(frozen=True)
class Evaluate:
    """Test the model that `protocol` names. `training` knows which model a client starts from, and how it trains."""

    training: Training
    protocol: Protocol

    def answer(self, client: Client, message: Message) -> Message:
        """Return the scores, and which of the received models the client uses (-1: its own)."""
        begun, chosen = self.training.begin(client, message)
        model = self._measured(client, message, begun)
        result = self._on_global_test(client, model) if self.protocol == "global" else self._on_own_test(client, model)
        return {
            "accuracy": np.array(result.accuracy),
            "f1": np.array(result.f1),
            "loss": np.array(result.loss),
            "chosen": np.array(chosen),
        }

    def _measured(self, client: Client, message: Message, begun: Vector) -> Vector:
        if self.protocol == "last-held":
            return client.memory.get("model", client.initial_model)
        if self.protocol == "after-local":
            trained = self.training.answer(client, message)
            return client.kept["model"] if "model" in client.kept else trained["model"]  # what is sent may be a part
        return begun

    def _on_own_test(self, client: Client, model: Vector) -> Score:
        return score(client.net, model, *client.data("test"))

    def _on_global_test(self, client: Client, model: Vector) -> Score:
        """Clients that share a model share this score: it is computed once at each place."""

        def compute() -> Score:
            x, y = client.place.setting.federation.read_test()
            return score(client.net, model, torch.from_numpy(x), torch.from_numpy(y))

        result: Score = client.once(("global test", model.tobytes()), compute)
        return result
