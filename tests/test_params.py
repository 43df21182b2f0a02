"""A model as one vector, and the mean of models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ilk import params
from ilk.params import Net, average, digest, gram

quick = settings(max_examples=60, deadline=None, database=None)


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


def train_a_little(net, steps=3):
    optimiser = torch.optim.SGD(net.module.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.full((5, 4), float(step)) + torch.arange(20.0).view(5, 4)
        net.gradient.zero_()
        net.module(x).square().sum().backward()
        optimiser.step()


def test_the_vector_holds_parameters_then_buffers_then_counters():
    module = normed()
    parameters = [p.detach().clone().reshape(-1) for p in module.parameters()]
    net = Net(module)
    assert net.trainable == sum(len(p) for p in parameters) == 4 * 6 + 6 + 6 + 6 + 6 * 3 + 3
    assert np.array_equal(net.read()[: net.trainable], torch.cat(parameters).numpy())
    assert net.read()[net.trainable :].tolist() == [0.0] * 6 + [1.0] * 6 + [0.0]
    assert net.read().dtype == np.float32


def test_a_step_on_the_weights_changes_the_module_and_the_other_way_round():
    net = Net(nn.Linear(3, 2))
    net.weights.add_(1.0)
    seen = torch.cat([p.detach().reshape(-1) for p in net.module.parameters()])
    assert torch.equal(seen, net.weights)
    with torch.no_grad():
        net.module.weight.fill_(7.0)
    assert net.read()[:6].tolist() == [7.0] * 6


def test_gradients_lie_in_one_vector_and_backward_adds_to_it():
    net = Net(nn.Linear(3, 2))
    x = torch.tensor([[1.0, 2.0, 3.0]])
    for _ in range(2):
        net.module(x).sum().backward()
    assert net.gradient.tolist() == [2.0, 4.0, 6.0, 2.0, 4.0, 6.0, 2.0, 2.0]


def test_an_optimiser_of_pytorch_works_on_the_views():
    net, plain = Net(normed()), normed()
    train_a_little(net)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(3):
        x = torch.full((5, 4), float(step)) + torch.arange(20.0).view(5, 4)
        optimiser.zero_grad()
        plain(x).square().sum().backward()
        optimiser.step()
    assert torch.equal(net.weights, torch.cat([p.detach().reshape(-1) for p in plain.parameters()]))


def test_buffers_travel_with_the_model_and_the_counter_stays_a_whole_number():
    there, here = Net(normed()), Net(normed())
    train_a_little(there)
    here.load(there.read())
    norm, original = here.module[1], there.module[1]
    assert original.running_mean.abs().sum() > 0
    assert torch.equal(norm.running_mean, original.running_mean)
    assert torch.equal(norm.running_var, original.running_var)
    assert norm.num_batches_tracked.dtype == torch.int64
    assert norm.num_batches_tracked.item() == 3
    assert np.array_equal(here.read(), there.read())
    here.module.train()
    here.module(torch.ones(2, 4))
    assert here.read()[-1] == 4.0, "a counter that was loaded must go on from there"


def test_what_was_read_does_not_change_with_the_network():
    net = Net(nn.Linear(2, 2))
    before = net.read()
    copy = before.copy()
    net.weights.add_(1.0)
    assert np.array_equal(before, copy)
    given = copy + 5
    net.load(given)
    net.weights.zero_()
    assert np.array_equal(given, copy + 5), "load must not hold on to the vector that it was given"


def test_frozen_parameters_travel_but_are_not_trained():
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    module[0].requires_grad_(False)
    frozen = module[0].weight.detach().clone()
    net = Net(module)
    assert net.trainable == 4
    assert net.vector.numel() == 4 + 9
    assert net.gradient.numel() == 4
    net.module(torch.ones(1, 2)).sum().backward()
    assert module[0].weight.grad is None
    assert net.gradient.abs().sum() > 0
    net.weights.add_(1.0)
    assert torch.equal(module[0].weight, frozen)
    vector = net.read()
    vector[4:] = 2.0
    net.load(vector)
    assert (module[0].weight == 2.0).all()


def test_weights_that_two_layers_share_are_one():
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    net = Net(nn.Sequential(first, second))
    assert net.trainable == 4
    net.weights.fill_(1.0)
    assert torch.equal(second.weight, torch.ones(2, 2))


def test_other_types_than_float32_are_refused():
    with pytest.raises(TypeError, match="float32"):
        Net(nn.Linear(2, 2).double())
    module = nn.BatchNorm1d(2)
    module.running_mean = module.running_mean.double()
    with pytest.raises(TypeError, match="float32"):
        Net(module)


def test_a_vector_of_another_length_is_refused():
    net = Net(nn.Linear(2, 2))
    for count in (1, 5, 7):
        with pytest.raises(ValueError, match=f"a model of {count} floats was given to a network of 6"):
            net.load(np.zeros(count, np.float32))


def test_average_by_hand():
    models = np.array([[1, 2], [3, 4], [5, 12]], dtype=np.float32)
    assert average(models, [1, 1, 2]).tolist() == [[3.5, 7.5]]
    assert average(models, [[1, 1, 0], [0, 0, 9]]).tolist() == [[2, 3], [5, 12]]
    assert average(models, [2, 1, 1]).dtype == np.float32


@st.composite
def problems(draw):
    rows, members, length = (draw(st.integers(1, n)) for n in (4, 7, 5))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    models = (random.normal(size=(members, length)) * 10.0 ** random.integers(-6, 6)).astype(np.float32)
    weights = random.integers(0, 50, (rows, members)).astype(np.float64) * random.integers(0, 2, (rows, members))
    weights[np.arange(rows), random.integers(0, members, rows)] += 3
    return models, weights


@quick
@given(problems())
def test_average_is_the_weighted_mean(problem):
    models, weights = problem
    exact = np.stack([np.average(models.astype(np.float64), axis=0, weights=row) for row in weights])
    largest = np.abs(models).max()
    np.testing.assert_allclose(average(models, weights), exact, rtol=2e-7, atol=1e-7 * largest)


@quick
@given(problems())
def test_the_bits_of_a_row_are_its_own(problem):
    models, weights = problem
    together = average(models, weights)
    for row, mean in zip(weights, together, strict=True):
        assert average(models, row).tobytes() == mean.tobytes()
    poisoned = models.copy()
    absent = weights[0] == 0
    poisoned[absent] = np.nan
    assert average(poisoned, weights[0]).tobytes() == together[0].tobytes(), "who has no weight must not matter"


@quick
@given(problems(), st.data())
def test_all_weight_on_one_model_is_that_model(problem, data):
    models, _ = problem
    alone = data.draw(st.integers(0, len(models) - 1))
    weight = data.draw(st.floats(0.001, 1e6))
    assert np.array_equal(average(models, np.eye(len(models))[alone] * weight)[0], models[alone])


@quick
@given(problems())
def test_a_cluster_of_everybody_is_the_mean_over_everybody(problem):
    models, _ = problem
    sizes = np.arange(3, 3 + len(models))
    mask = np.ones((3, len(models)), dtype=bool)
    for mean in average(models, mask * sizes):
        assert mean.tobytes() == average(models, sizes)[0].tobytes()


@pytest.mark.parametrize(
    "weights", [[1, -1, 2], [0, 0, 0], [[1, 1, 1], [0, 0, 0]], [np.nan, 1, 1]], ids=["negative", "zero", "row", "nan"]
)
def test_average_refuses_weights_that_mean_nothing(weights):
    with pytest.raises(ValueError, match="non-negative with a positive sum"):
        average(np.ones((3, 2), np.float32), weights)


def test_average_refuses_weights_for_other_models():
    with pytest.raises(ValueError, match="3 models, but weights for 2"):
        average(np.ones((3, 2), np.float32), [1, 1])


def test_the_digest_tells_type_shape_order_and_content_apart():
    a, b = np.arange(6, dtype=np.float32), np.arange(6, 12, dtype=np.float32)
    variants = [
        [a, b],
        [b, a],
        [a],
        [a.reshape(2, 3), b],
        [a.view(np.int32), b],
        [a.astype(np.float64), b],
        [a + np.float32(1e-6), b],
        [a, b, np.empty(0, np.float32)],
    ]
    assert len({digest(arrays) for arrays in variants}) == len(variants)
    assert digest([a, b]) == digest([a.copy(), b.copy()])
    assert digest([np.arange(6).reshape(2, 3).T]) == digest([np.arange(6).reshape(2, 3).T.copy()])


@pytest.mark.parametrize("room", [1, 8 * 7 * 10, 1 << 26])
def test_inner_products_of_updates_in_blocks(room, monkeypatch):
    monkeypatch.setattr(params, "GRAM_BYTES", room)
    random = np.random.default_rng(0)
    models, base = random.standard_normal((7, 103)).astype(np.float32), random.standard_normal(103).astype(np.float32)
    updates = models.astype(np.float64) - base
    found = gram(list(models), base)
    np.testing.assert_allclose(found, updates @ updates.T, rtol=1e-12)
    assert (found == found.T).all()
