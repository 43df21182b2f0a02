"""PACFL's data signature, and how much of a distance between signatures is noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ilk.client import Client, Message
from ilk.clusters.angles import MEASURES
from ilk.clusters.blocks import Measure
from ilk.clusters.signatures import class_signature, plain_signature, weighted_signature

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sign:
    """Send the leading singular vectors of one's own raw inputs, and the mean distance of two random halves' vectors."""

    signature: Literal["whole", "per-class"]
    vectors: int
    measure: Measure
    repeats: int

    def answer(self, client: Client, message: Message) -> Message:
        """Sign with all samples that are not for testing."""
        inputs, labels = client.raw("train+validation")
        x = inputs.reshape(len(inputs), -1).T.astype(np.float64)
        random = client.stream("signature")
        halves = [self._halves(x, labels, random.permutation(len(labels))) for _ in range(self.repeats)]
        return {
            "signature": self._sign(x, labels).astype(np.float32),
            "noise": np.array(np.mean(halves), dtype=np.float32),
        }

    def _sign(self, x: Array, labels: NDArray[np.int64]) -> Array:
        if self.signature == "per-class":
            return class_signature(x, labels, self.vectors)
        return (weighted_signature if self.measure == "overlap" else plain_signature)(x, self.vectors)

    def _halves(self, x: Array, labels: NDArray[np.int64], order: NDArray[np.int64]) -> float:
        """The distance between the signatures of two halves; one sample has none, and tells nothing (the largest)."""
        middle = len(order) // 2
        if not middle:
            return 1.0 if self.measure == "overlap" else 90.0
        one, other = (self._sign(x[:, part], labels[part]) for part in (order[:middle], order[middle : 2 * middle]))
        return float(MEASURES[self.measure]([one], [other])[0, 0])
