"""Local training against arithmetic by hand and against PyTorch's own optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ilk.client import Place, Setting
from ilk.errors import IlkError
from ilk.params import Net
from ilk.tasks import LocalSGD


@pytest.fixture
def place(blobs):
    return Place(Setting(blobs, "mlp", seed=3))


@pytest.fixture
def pytorch(blobs):
    """A place whose module is called for every batch, so that a hook sees it."""
    return Place(Setting(blobs, "mlp", seed=3, compute="torch"))


@pytest.fixture
def linear(place):
    torch.manual_seed(1)
    place.net = Net(nn.Linear(5, 3))
    return place


def gradient_by_hand(theta, x, y):
    """Softmax regression: mean over the samples of (p - one-hot) x."""
    weight, bias = theta[:15].reshape(3, 5), theta[15:]
    logits = x @ weight.T + bias
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = (p / p.sum(axis=1, keepdims=True) - np.eye(3)[y]) / len(y)
    return np.concatenate([(error.T @ x).ravel(), error.sum(axis=0)])


def by_pytorch(client, module, start, local, proximal=0.0, shift=None):
    """The same training with torch.optim.SGD, the additional terms written as terms of the loss."""
    net = Net(module)
    net.load(start)
    module.train()
    begun, push = torch.tensor(start[: net.trainable]), None if shift is None else torch.tensor(shift)
    parameters = list(module.parameters())
    optimiser = torch.optim.SGD(parameters, local.lr, momentum=local.momentum, weight_decay=local.weight_decay)
    x, y = client.data("train")
    order = client.stream("batches")
    for _ in range(local.epochs):
        shuffled = order.permutation(len(y))
        for first in range(0, len(y), local.batch_size):
            batch = shuffled[first : first + local.batch_size]
            optimiser.zero_grad(set_to_none=False)
            theta = torch.cat([p.reshape(-1) for p in parameters])
            loss = cross_entropy(module(x[batch]), y[batch]) + proximal / 2 * (theta - begun).square().sum()
            if push is not None:
                loss = loss + (push * theta).sum()
            loss.backward()
            optimiser.step()
    return net.read()


def test_two_steps_by_hand_with_every_term(linear):
    client = linear.client(0, 1, {})
    x, y = (tensor.numpy().astype(np.float64) for tensor in client.data("train"))
    y = y.astype(int)
    start = linear.net.read()
    shift = np.linspace(-0.2, 0.3, 18).astype(np.float32)
    local = LocalSGD(epochs=2, batch_size=1000, lr=0.1, momentum=0.6, weight_decay=0.05)
    theta, velocity = start.astype(np.float64), np.zeros(18)
    for _ in range(2):
        g = gradient_by_hand(theta, x, y) + 0.05 * theta + 0.7 * (theta - start) + shift
        velocity = 0.6 * velocity + g
        theta = theta - 0.1 * velocity
    np.testing.assert_allclose(local.train(client, start, proximal=0.7, shift=shift), theta, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "proximal", "shifted"),
    [
        ({}, 0.0, False),
        ({"momentum": 0.0}, 0.0, False),
        ({"weight_decay": 0.03}, 0.0, False),
        ({"momentum": 0.9}, 0.5, False),
        ({}, 0.0, True),
        ({"weight_decay": 0.01}, 0.2, True),
    ],
    ids=["momentum", "plain", "decay", "proximal", "shift", "everything"],
)
def test_several_epochs_against_pytorch(place, options, proximal, shifted):
    client, start = place.client(2, 4, {}), place.initial_model
    local = LocalSGD(**{"epochs": 4, "batch_size": 8, "lr": 0.05, "momentum": 0.5, **options})
    shift = np.sin(np.arange(len(start))).astype(np.float32) * 0.05 if shifted else None
    trained = local.train(client, start, proximal=proximal, shift=shift)
    torch.manual_seed(0)
    twin = nn.Sequential(nn.Flatten(), nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3))
    np.testing.assert_allclose(trained, by_pytorch(client, twin, start, local, proximal, shift), atol=1e-6)
    assert np.abs(trained - start).max() > 1e-3


def test_each_term_makes_a_difference(place):
    client, start, local = place.client(2, 4, {}), place.initial_model, LocalSGD(epochs=2, lr=0.05)
    shift = np.full(len(start), 0.01, np.float32)
    results = [
        local.train(client, start),
        local.train(client, start, proximal=0.5),
        local.train(client, start, shift=shift),
        LocalSGD(epochs=2, lr=0.05, momentum=0.0).train(client, start),
        LocalSGD(epochs=2, lr=0.05, weight_decay=0.1).train(client, start),
    ]
    for i, one in enumerate(results):
        assert not any(np.allclose(one, other, atol=1e-4) for other in results[:i])
    assert np.abs(results[1] - start).sum() < np.abs(results[0] - start).sum(), "the proximal term holds back"


def test_batch_normalisation_trains_its_buffers(place):
    def make():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    place.net = Net(make())
    client, start, local = place.client(1, 1, {}), place.net.read(), LocalSGD(epochs=3, batch_size=6, lr=0.05)
    trained = local.train(client, start)
    np.testing.assert_allclose(trained, by_pytorch(client, make(), start, local), atol=1e-6)
    samples = len(client.data("train")[1])
    assert trained[-1] == local.steps(samples) == 3 * -(-samples // 6), "its counter counts the steps"


def test_every_sample_is_seen_once_an_epoch_and_the_last_batch_is_smaller(pytorch):
    seen, place = [], pytorch
    place.net.module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    client = place.client(3, 1, {})
    x, _ = client.data("train")
    local = LocalSGD(epochs=3, batch_size=len(x) // 3 - 1)
    local.train(client, place.initial_model)
    sizes = [len(batch) for batch in seen]
    size, last = local.batch_size, len(x) % local.batch_size
    assert 0 < last < size
    assert sizes == 3 * [size, size, size, last]
    assert len(seen) == local.steps(len(x)) == 12
    epochs = [torch.cat(seen[i : i + 4]) for i in (0, 4, 8)]
    for epoch in epochs:
        assert torch.equal(epoch[:, 0].sort().values, x[:, 0].sort().values)
    assert not torch.equal(epochs[0], epochs[1]), "samples are shuffled each epoch"
    assert not torch.equal(epochs[0], x)


@pytest.mark.parametrize(("samples", "steps"), [(1, 2), (9, 2), (10, 2), (11, 4), (25, 6)])
def test_the_number_of_steps(samples, steps):
    assert LocalSGD(epochs=2, batch_size=10).steps(samples) == steps


def test_the_network_trains_in_train_mode_whatever_came_before(pytorch):
    modes, place = [], pytorch
    place.net.module.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
    place.net.module.eval()
    LocalSGD(epochs=1).train(place.client(0, 1, {}), place.initial_model)
    assert modes
    assert all(modes)


def test_momentum_starts_at_zero_each_round_and_nothing_else_is_left_behind(blobs, place):
    local = LocalSGD(epochs=2, momentum=0.9, lr=0.05)
    local.train(place.client(4, 1, {}), place.initial_model)
    again = local.train(place.client(0, 2, {}), place.initial_model)
    fresh = Place(Setting(blobs, "mlp", seed=3))
    assert np.array_equal(again, local.train(fresh.client(0, 2, {}), fresh.initial_model))


def test_batches_differ_by_round_client_and_seed(blobs, place):
    local = LocalSGD(epochs=1)
    start = place.initial_model
    one = local.train(place.client(0, 1, {}), start)
    assert not np.array_equal(one, local.train(place.client(0, 2, {}), start))
    other = Place(Setting(blobs, "mlp", seed=4))
    assert not np.array_equal(one, local.train(other.client(0, 1, {}), start))
    assert np.array_equal(one, local.train(place.client(0, 1, {}), start))


def test_the_start_is_not_changed(place):
    start = place.initial_model
    before = start.copy()
    LocalSGD(epochs=1).train(place.client(0, 1, {}), start, proximal=0.1)
    assert np.array_equal(start, before)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_start_that_is_not_finite_is_reported(place, value):
    start = place.initial_model.copy()
    start[7] = value
    with pytest.raises(IlkError, match="Round 7: the training of client 'client-2' diverged"):
        LocalSGD(epochs=1).train(place.client(2, 7, {}), start)


def test_divergence_names_round_client_and_what_to_do(place):
    with pytest.raises(IlkError, match=r"Round 5: the training of client 'client-1' diverged.*1e\+20.*smaller --lr"):
        LocalSGD(epochs=3, lr=1e20).train(place.client(1, 5, {}), place.initial_model)


def test_dropout_has_the_seed_of_round_and_client(place):
    place.net = Net(nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    start, local = place.net.read(), LocalSGD(epochs=1)
    torch.manual_seed(0)
    first = local.train(place.client(0, 1, {}), start)
    torch.manual_seed(1)
    assert np.array_equal(first, local.train(place.client(0, 1, {}), start))
