"""The kernels against PyTorch: any network of the family, any batches, any options, on every instruction set."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from ilk import models
from ilk.native import Native, read
from ilk.params import Net

STEPS = 60
SAME = 1e-5
STABLE = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck)}


def agrees(found, wanted, train, start):
    """Whether two trainings end in the same model to 1e-5; where they do not, a kink must be the reason.

    At a kink (ReLU at 0, two equal maxima) a gradient jumps, and which side a float32 lies on is decided by its rounding:
    PyTorch in float32 and in float64 part there too. Near one, PyTorch ends elsewhere as well when it starts a few
    roundings beside.
    """
    if np.abs(found - wanted).max() <= SAME:
        return True
    noise = (np.random.default_rng(k).uniform(-1e-6, 1e-6, len(start)) for k in range(8))
    elsewhere = [np.abs(train(start * (1 + n).astype(np.float32)) - wanted).max() for n in noise]
    assert max(elsewhere) > SAME, f"differs by {np.abs(found - wanted).max():.1e}, and no kink is near"
    return False


def orders(random, samples, batch):
    """As many epochs as make 60 steps."""
    epochs = -(-STEPS // -(-samples // batch))
    return np.stack([random.permutation(samples) for _ in range(epochs)])


@settings(max_examples=60, **STABLE)
@given(data=st.data())
def test_sixty_steps_of_any_network(data, drawn, instructions, by_pytorch):
    given = data.draw(drawn)
    random, net = np.random.default_rng(len(given.x)), given.net()
    batch = data.draw(st.integers(1, len(given.x) + 2))
    momentum = data.draw(st.sampled_from([0.0, 0.5, 0.9]))
    options = {
        "batch": batch,
        "lr": 0.05 * (1 - momentum),
        "momentum": momentum,
        "decay": data.draw(st.sampled_from([0.0, 0.01])),
        "proximal": data.draw(st.sampled_from([0.0, 0.5])),
    }
    for term in data.draw(st.sampled_from([(), ("shift",), ("drift",), ("shift", "drift")])):
        options[term] = random.normal(size=net.trainable, scale=0.01).astype(np.float32)
    start, order = net.read(), orders(random, len(given.x), batch)
    model, finite = given.native(net, instructions).fit(start, given.x, given.y, order, **options)
    assert finite

    def train(start):
        return by_pytorch(net, start, given.x, given.y, order, **options)

    agrees(model, train(start), train, start)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("lenet5", (1, 28, 28), 10),
        ("lenet5", (3, 32, 32), 10),
        ("lenet5", (3, 32, 32), 40),
        ("lenet5", (3, 32, 32), 100),
        ("lenet5", (2, 16, 19), 3),
        ("mlp", (64,), 10),
        ("mlp", (1, 28, 28), 10),
        ("mlp", (5,), 3),
    ],
)
@pytest.mark.parametrize("batch", [1, 10, 32])
def test_sixty_steps_of_the_networks_that_ship(name, shape, classes, batch, instructions, by_pytorch):
    net = models.build(name, shape, classes, seed=1)
    native, start, agreed = Native(read(net, shape), net.trainable, instructions), net.read(), []
    for seed in range(3):
        random = np.random.default_rng(seed)
        x = random.random((STEPS if batch == 1 else 47, *shape), dtype=np.float32)
        y, order = random.integers(0, classes, len(x)), orders(random, len(x), batch)
        train = partial(by_pytorch, net, x=x, y=y, order=order, batch=batch, lr=0.01, momentum=0.5)
        model, _ = native.fit(start, x, y, order, batch=batch, lr=0.01, momentum=0.5)
        agreed.append(agrees(model, train(start), train, start))
    assert any(agreed)


@settings(max_examples=80, **STABLE)
@given(data=st.data())
def test_gradients_are_those_of_float64(data, drawn, instructions):
    given = data.draw(drawn)
    double = copy.deepcopy(given.module).double()
    cross_entropy(double(torch.from_numpy(given.x).double()), torch.from_numpy(given.y)).backward()
    wanted = torch.cat([parameter.grad.reshape(-1) for parameter in double.parameters()]).numpy()
    net = given.net()
    found = given.native(net, instructions).gradient(net.read(), given.x, given.y)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * max(1.0, np.abs(wanted).max()))


@settings(max_examples=80, **STABLE)
@given(data=st.data())
def test_outputs_are_those_of_float64(data, drawn, instructions):
    given = data.draw(drawn)
    with torch.no_grad():
        wanted = copy.deepcopy(given.module).double()(torch.from_numpy(given.x).double()).numpy()
    net = given.net()
    found = given.native(net, instructions).forward(net.read(), given.x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * max(1.0, np.abs(wanted).max()))


@settings(max_examples=30, **STABLE)
@given(data=st.data())
def test_same_bits_again_and_however_samples_are_grouped(data, drawn, instructions):
    given = data.draw(drawn)
    net = given.net()
    native, start = given.native(net, instructions), net.read()
    together = native.forward(start, np.concatenate([given.x] * 3))
    alone = np.concatenate([native.forward(start, row[None]) for row in given.x] * 3)
    assert np.array_equal(together, alone)
    order = orders(np.random.default_rng(0), len(given.x), 4)
    first, again = (native.fit(start, given.x, given.y, order, batch=4, lr=0.01, momentum=0.5)[0] for _ in range(2))
    assert np.array_equal(first, again)


def test_equal_maxima_pass_back_to_the_first(instructions):
    """A flat image is one great tie: PyTorch takes the first position of a window, which the input's gradient shows."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 3, 1), torch.nn.Conv2d(3, 5, 2, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(5 * 9, 4)),
    )
    x, y = np.ones((3, 1, 6, 6), np.float32), np.array([0, 1, 3])
    cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    wanted = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters()]).numpy()
    net = Net(module)
    found = Native(read(net, (1, 6, 6)), net.trainable, instructions).gradient(net.read(), x, y)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_seen(value, instructions):
    net = models.build("lenet5", (1, 16, 16), 3, seed=0)
    native = Native(read(net, (1, 16, 16)), net.trainable, instructions)
    x, y, order = np.ones((4, 1, 16, 16), np.float32), np.array([0, 1, 2, 0]), np.tile(np.arange(4), (3, 1))
    assert native.fit(net.read(), x, y, order, batch=2, lr=0.1)[1]
    x[2, 0, 8, 8] = value
    assert not native.fit(net.read(), x, y, order, batch=2, lr=0.1)[1]
    assert not np.isfinite(native.forward(net.read(), x)[2]).all()
    x[2, 0, 8, 8] = 1
    assert not native.fit(net.read() * np.float32(1e30), x, y, order, batch=2, lr=0.1)[1]
