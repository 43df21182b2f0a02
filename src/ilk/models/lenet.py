"""LeNet-5 as the PACFL and FLIS experiments use it: ReLU, max-pooling, no dropout."""

from __future__ import annotations

from torch import nn


def lenet5(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 5x5 convolutions (6 and 16 channels), each pooled by 2, then 120, 84 and `classes` units."""
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise ValueError(f"lenet5 needs images of at least 16x16, channels first; this data has shape {shape}")
    channels, height, width = shape
    features = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
