"""PACFL's data signature, and how much of a distance between signatures is noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ilk.client import Client, Message
from ilk.clusters.angles import MEASURES
from ilk.clusters.blocks import Measure
from ilk.clusters.signatures import class_signature, gram_of, half_grams, plain_signature, weighted_signature

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sign:
    """Send the leading singular vectors of one's own raw inputs, and the mean distance of two random halves' vectors."""

    signature: Literal["whole", "per-class"]
    vectors: int
    measure: Measure
    repeats: int  # 0: nobody wants to know the noise
    inputs: Literal["raw", "normalised"] = "raw"

    def answer(self, client: Client, message: Message) -> Message:
        """Sign with all samples that are not for testing."""
        inputs, labels = self._samples(client)
        x = inputs.reshape(len(inputs), -1).T.astype(np.float64)
        gram = None if self.signature == "per-class" else gram_of(x)
        signature = {"signature": self._sign(x, labels, gram).astype(np.float32)}
        if not self.repeats:
            return signature
        random = client.stream("signature")
        halves = [self._halves(x, labels, random.permutation(len(labels)), gram) for _ in range(self.repeats)]
        return {**signature, "noise": np.array(np.mean(halves), dtype=np.float32)}

    def _samples(self, client: Client) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        if self.inputs == "raw":
            return client.raw("train+validation")
        x, y = client.data("train+validation")
        return x.numpy(), y.numpy()

    def _sign(self, x: Array, labels: NDArray[np.int64], gram: Array | None) -> Array:
        if self.signature == "per-class":
            return class_signature(x, labels, self.vectors)
        return (weighted_signature if self.measure == "overlap" else plain_signature)(x, self.vectors, gram)

    def _halves(self, x: Array, labels: NDArray[np.int64], order: NDArray[np.int64], gram: Array | None) -> float:
        """The distance between the signatures of two halves; one sample has none, and tells nothing (the largest)."""
        middle = len(order) // 2
        if not middle:
            return 1.0 if self.measure == "overlap" else 90.0
        one, other = order[:middle], order[middle : 2 * middle]
        grams = (None, None) if gram is None else half_grams(x, gram, one, other)
        signed = [[self._sign(x[:, p], labels[p], g)] for p, g in zip((one, other), grams, strict=True)]
        return float(MEASURES[self.measure](*signed)[0, 0])
