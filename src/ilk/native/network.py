"""A network as the kernels compute it: made of layers that were read, fed with arrays, without state of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from ilk.native.read import Layer

Vector = NDArray[np.float32]


class Native:
    """Training and forward passes of one network on one instruction set. Models and shifts are flat vectors.

    Nothing is kept between calls, and no call holds the GIL while it computes: threads may share it. The same input gives
    the same bits, wherever it stands in the samples given.
    """

    def __init__(self, layers: Sequence[Layer], parameters: int, instructions: str) -> None:
        from ilk.native import _kernel

        self.layers, self.parameters, self.instructions = tuple(layers), parameters, instructions
        self._network = _kernel.Network(
            np.array([astuple(layer) for layer in layers], np.int64), parameters, instructions
        )

    def fit(
        self,
        start: Vector,
        x: Vector,
        y: NDArray[np.int64],
        order: NDArray[np.int64],
        *,
        batch: int,
        lr: float,
        momentum: float = 0.0,
        decay: float = 0.0,
        proximal: float = 0.0,
        shift: Vector | None = None,
        drift: Vector | None = None,
    ) -> tuple[Vector, bool]:
        """Train as `LocalSGD` says, on samples in this order (epochs x samples); return the model.

        And whether the loss and the model are finite numbers; it stops after the epoch in which they are not.
        """
        push, pull = (None if term is None else floats(term) for term in (shift, drift))
        arrays = self._model(start), floats(x), integers(y), integers(order)
        model, _, finite = self._network.fit(*arrays, batch, lr, momentum, decay, proximal, push, pull)
        return model, finite

    def gradient(self, model: Vector, x: Vector, y: NDArray[np.int64]) -> Vector:
        """Return the gradient of the mean cross-entropy over these samples."""
        return self._network.gradient(self._model(model), floats(x), integers(y))

    def forward(self, model: Vector, x: Vector) -> Vector:
        """Return the outputs (logits) for all samples."""
        return self._network.forward(self._model(model), floats(x))

    def _model(self, model: Vector) -> Vector:
        checked = floats(model)
        if model.shape != (self.parameters,):
            raise ValueError(f"a model of {model.size} floats was given to a network of {self.parameters}")
        return checked


def floats(array: Vector) -> Vector:
    """Return the array as the kernels take it; of another type, it is refused and not converted."""
    if array.dtype != np.float32:
        raise TypeError(f"float32 is needed, but {array.dtype} was given")
    return np.ascontiguousarray(array)


def integers(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the array as the kernels take it; of another type, it is refused and not converted."""
    if array.dtype != np.int64:
        raise TypeError(f"int64 is needed, but {array.dtype} was given")
    return np.ascontiguousarray(array)
