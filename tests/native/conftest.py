"""Networks of the family at random, what PyTorch makes of them, and every instruction set that this machine has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from ilk.engines import one_thread
from ilk.native import Native, read
from ilk.native.choose import sets
from ilk.params import Net

SETS = sets()


def pytest_collection_modifyitems(items):
    if not SETS:
        for item in items:
            if "native" in item.path.parts and "needs_no_kernels" not in item.keywords:
                item.add_marker(pytest.mark.skip(reason="the kernels are not built"))


@pytest.fixture(params=SETS or ["none"], scope="session")
def instructions(request):
    """Every instruction set that this machine has, in turn."""
    return request.param


@pytest.fixture(scope="session", autouse=True)
def alone():
    with one_thread():
        yield


@dataclass(frozen=True)
class Drawn:
    """A network at random, and samples for it."""

    module: nn.Module
    shape: tuple[int, ...]
    x: np.ndarray
    y: np.ndarray

    def net(self):
        return Net(self.module)

    def native(self, net, instructions):
        return Native(read(net, self.shape), net.trainable, instructions)


def convolutions(draw, shape):
    """One to three convolutions, each with or without ReLU and pooling; and the shape that is left."""
    layers = []
    for _ in range(draw(st.integers(1, 3))):
        channels, height, width = shape
        pads = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
        kernel = tuple(
            draw(st.integers(1, min(5, side + 2 * pad))) for side, pad in zip((height, width), pads, strict=True)
        )
        out = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 20, 33]))
        layers.append(nn.Conv2d(channels, out, kernel, padding=pads, bias=draw(st.booleans())))
        shape = (out, height + 2 * pads[0] - kernel[0] + 1, width + 2 * pads[1] - kernel[1] + 1)
        if draw(st.booleans()):
            layers.append(nn.ReLU())
        if min(shape[1:]) >= 2 and draw(st.booleans()):
            layers.append(nn.MaxPool2d(2))
            shape = (out, shape[1] // 2, shape[2] // 2)
    return layers, shape


@st.composite
def drawings(draw, samples=None):
    """A network of the family and at most 23 samples."""
    seed = draw(st.integers(0, 2**31))
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    layers = []
    if draw(st.integers(0, 2)):
        shape = (draw(st.integers(1, 4)), draw(st.integers(1, 13)), draw(st.integers(1, 13)))
        layers, left = convolutions(draw, shape)
    else:
        shape = left = (draw(st.integers(1, 70)),)
    layers.append(nn.Flatten())
    width = int(np.prod(left))
    for _ in range(draw(st.integers(0, 2))):
        units = draw(st.integers(1, 70))
        layers.append(nn.Linear(width, units, bias=draw(st.booleans())))
        width = units
        if draw(st.booleans()):
            layers.append(nn.ReLU())
    classes = draw(st.integers(1, 40))
    layers.append(nn.Linear(width, classes, bias=draw(st.booleans())))
    n = samples or draw(st.integers(1, 23))
    x = random.normal(size=(n, *shape)).astype(np.float32)
    x[random.random(x.shape) < draw(st.sampled_from([0.0, 0.5]))] = 0
    return Drawn(nn.Sequential(*layers), shape, x, random.integers(0, classes, n))


@pytest.fixture(scope="session")
def drawn():
    return drawings()


@pytest.fixture(scope="session")
def by_pytorch():
    """Train a network's module as the kernels should, the additional terms written as they are in tasks/sgd.py."""

    def train(net, start, x, y, order, *, batch, lr, momentum=0.0, decay=0.0, proximal=0.0, shift=None, drift=None):
        net.load(start)
        net.module.train()
        theta, received, velocity = net.weights, torch.tensor(start), torch.zeros(len(start))
        inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
        for epoch in order:
            for which in torch.from_numpy(epoch).split(batch):
                net.gradient.zero_()
                cross_entropy(net.module(inputs[which]), labels[which]).backward()
                with torch.no_grad():
                    g = net.gradient + decay * theta + proximal * (theta - received)
                    velocity = momentum * velocity + (g if shift is None else g + torch.from_numpy(shift))
                    theta -= lr * (velocity if drift is None else velocity + torch.from_numpy(drift))
        return net.read()

    return train
