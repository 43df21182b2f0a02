"""A model as one flat float32 vector.

Averaging is a weighted sum of vectors, the bytes on the wire are the bytes of the vector, and the optimiser steps on one
tensor. A module's parameters are views into that vector, so nothing is copied between the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    from ilk.native import Native

Vector = NDArray[np.float32]
Models = Sequence[Vector] | NDArray[np.float32]  # several models; a list need not be stacked

GRAM_BYTES = 1 << 26  # of updates that `gram` holds at a time


class Net:
    """A module whose trainable parameters, then buffers, lie in one vector: ``[parameters | buffers]``.

    Buffers (BatchNorm's running statistics) travel with the model, because the receiver needs them; gradients exist for
    the first `trainable` entries only. Integer buffers (BatchNorm's counter) are carried as floats.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.native: Native | None = None  # computes this network in place of the module, see `ilk.native`
        parameters = [p for p in module.parameters() if p.requires_grad]
        frozen = [p for p in module.parameters() if not p.requires_grad]
        buffers = [b for b in module.buffers() if b.numel()]
        tensors: list[Tensor] = [*parameters, *frozen, *(b for b in buffers if b.is_floating_point())]
        if any(t.dtype != torch.float32 for t in tensors):
            raise TypeError("a model's parameters and floating-point buffers must be float32")
        self._counters = [b for b in buffers if not b.is_floating_point()]
        self.trainable = sum(p.numel() for p in parameters)
        viewed = sum(t.numel() for t in tensors)
        self.vector = torch.zeros(viewed + sum(b.numel() for b in self._counters))
        self.gradient = torch.zeros(self.trainable)
        start = 0
        for tensor in tensors:
            stop = start + tensor.numel()
            self.vector[start:stop] = tensor.detach().reshape(-1)
            tensor.data = self.vector[start:stop].view(tensor.shape)
            if stop <= self.trainable:
                tensor.grad = self.gradient[start:stop].view(tensor.shape)
            start = stop
        self._viewed = viewed
        self.layers = _layers(module)

    @property
    def weights(self) -> Tensor:
        """The trainable part of the vector; changing it changes the module."""
        return self.vector[: self.trainable]

    def load(self, vector: Vector) -> None:
        """Make the module the model that `vector` describes."""
        if vector.shape != self.vector.shape:
            raise ValueError(f"a model of {vector.size} floats was given to a network of {self.vector.numel()}")
        self.vector.numpy()[:] = vector
        start = self._viewed
        for counter in self._counters:
            stop = start + counter.numel()
            counter.copy_(self.vector[start:stop].view(counter.shape))
            start = stop

    def read(self) -> Vector:
        """Return a copy of the model as it is now."""
        if self._counters:
            self.vector[self._viewed :] = torch.cat([c.reshape(-1).float() for c in self._counters])
        return self.vector.numpy().copy()


def _layers(module: nn.Module) -> list[int]:
    """Return where each layer that has trainable parameters of its own begins in the vector."""
    first: list[int] = []
    start = 0
    owner = ""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            if not first or name.rpartition(".")[0] != owner:
                first.append(start)
            owner = name.rpartition(".")[0]
            start += parameter.numel()
    return first


def average(models: Models, weights: ArrayLike) -> NDArray[np.float32]:
    """Return one weighted mean of `models` (m of P floats) for each row of `weights` (k x m, or m for one row).

    Rows need not sum to 1. A row is summed model by model in double precision, so that its bits depend on its own
    members only: a cluster that holds everybody is the same model as the mean over everybody.
    """
    rows = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if rows.shape[1] != len(models):
        raise ValueError(f"{len(models)} models, but weights for {rows.shape[1]}")
    if (rows < 0).any() or not (rows.sum(axis=1) > 0).all():
        raise ValueError("every row of weights must be non-negative with a positive sum")
    means = np.empty((len(rows), len(models[0])), dtype=np.float32)
    for mean, row in zip(means, rows, strict=True):
        combine(models, row / row.sum(), out=mean)
    return means


def combine(models: Models, factors: ArrayLike, block: int = 1 << 18, out: Vector | None = None) -> Vector:
    """Return the sum of `models` times `factors` (in `out`, if given), one model and one block of entries at a time.

    Sums are in double precision, and nothing as large as a model is made but the result.
    """
    weights = np.asarray(factors, dtype=np.float64)
    if len(weights) != len(models):
        raise ValueError(f"{len(models)} models, but factors for {len(weights)}")
    result = np.empty(len(models[0]), dtype=np.float32) if out is None else out
    for start in range(0, len(result), block):
        part = slice(start, start + block)
        total = np.zeros(len(result[part]))
        for model, weight in zip(models, weights, strict=True):
            if weight:
                total += weight * model[part].astype(np.float64)
        result[part] = total
    return result


def average_clusters(
    old: NDArray[np.float32], trained: Models, cluster: NDArray[np.int64], weights: ArrayLike
) -> NDArray[np.float32]:
    """Return cluster models: the weighted mean of the models trained in each cluster; without any, the old one.

    `cluster` says which cluster each trained model belongs to; -1 belongs to none.
    """
    models, sizes = old.copy(), np.asarray(weights)
    for z in np.unique(cluster[cluster >= 0]):
        weights_here = (cluster == z) * sizes
        combine(trained, weights_here / weights_here.sum(), out=models[z])
    return models


def gram(models: Models, base: Vector, block: int = 1 << 16) -> NDArray[np.float64]:
    """Return all inner products of ``model - base``, summed over blocks of entries so that nothing large is made."""
    block = max(min(block, GRAM_BYTES // (8 * max(len(models), 1))), 1)
    products = np.zeros((len(models), len(models)))
    for start in range(0, len(base), block):
        part = slice(start, start + block)
        updates = np.stack([model[part] for model in models], dtype=np.float64)
        updates -= base[part]
        products += updates @ updates.T
    return products


def digest(arrays: Iterable[NDArray[np.generic]]) -> str:
    """SHA-256 over arrays: their types, shapes and bytes, in the order given."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()
