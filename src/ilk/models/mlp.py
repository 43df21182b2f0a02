"""A small multi-layer perceptron, for tables and for very small images."""

from __future__ import annotations

import math

from torch import nn


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer of 64 ReLU units over the flattened input."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.ReLU(), nn.Linear(64, classes))
