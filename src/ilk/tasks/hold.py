"""Hand a client the model that is its to use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ilk.client import Client, Message
from ilk.tasks.task import Training


@dataclass(frozen=True)
class Hold:
    """Keep the model that one would start from: of those received the cluster's, or the best, or one's own."""

    training: Training

    def answer(self, client: Client, message: Message) -> Message:
        """Hold it, and tell which of the received models it is (-1: the client's own)."""
        client.held, chosen = self.training.begin(client, message)
        return {"chosen": np.array(chosen, dtype=np.int32)}
