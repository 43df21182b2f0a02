from types import SimpleNamespace

import numpy as np
import pytest

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.fednova import FedNova
from ilk.server import Answers


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_equal_steps_are_fedavg_bit_for_bit(played, toy, momentum):
    """All take 3 steps an epoch, though no two have as many samples."""
    federation, local = toy(21, 23, 26, 29, 30), ilk.LocalSGD(epochs=2, momentum=momentum)
    for settings in ({"rounds": 3}, {"rounds": 3, "cohort": 3}):
        nova = played(FedNova(local=local), federation, **settings)
        assert nova.model_digest == played(FedAvg(local=local), federation, **settings).model_digest


@pytest.mark.parametrize("reach", [1, 3, 7.123])
def test_equal_reach_leaves_nothing_of_the_old_model(reach):
    """The old model's factor is 0 itself, not a rounding error: not even a huge weight of the old model shows."""
    random = np.random.default_rng(0)
    for clients in range(2, 12):
        sizes = random.integers(1, 1000, size=clients)
        trained = [random.normal(size=50).astype(np.float32) for _ in sizes]
        messages = tuple({"model": model, "reach": np.array(reach, np.float32)} for model in trained)
        answers = Answers(np.arange(clients), sizes, messages)
        server = SimpleNamespace(ask=lambda *_, answers=answers: answers, net=SimpleNamespace(trainable=50))
        for old in (0.0, 1e12):
            state = ilk.State(np.full((1, 50), old, np.float32))
            nova = FedNova().round(server, state, np.arange(clients)).models
            assert np.array_equal(nova, FedAvg().round(server, state, np.arange(clients)).models)


def test_statistics_are_averaged_not_stretched(played, toy):
    """A hundred times the steps stretch the others' updates: variances that were stretched with them would be negative."""
    federation, local = toy(400, 6, 6), ilk.LocalSGD(epochs=2, lr=0.05)
    nova = played(FedNova(local=local), federation, model="normed")
    fedavg = played(FedAvg(local=local), federation, model="normed")
    trainable = 6 * 4 + 6 + 6 + 6 + 3 * 6 + 3
    assert np.array_equal(nova.state.models[:, trainable:], fedavg.state.models[:, trainable:])
    assert not np.allclose(nova.state.models[:, :trainable], fedavg.state.models[:, :trainable])
    run = played(FedNova(local=local), federation, model="normed", rounds=5)
    assert np.isfinite(run.history["loss"]).all()


def reach_by_hand(steps, momentum):
    """Let a constant gradient of 1 go through the optimiser, with a learning rate of 1."""
    velocity = position = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1
        position += velocity
    return position


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_unequal_steps_by_hand(played, toy, hand, momentum):
    federation, local = toy(7, 25, 40), ilk.LocalSGD(epochs=2, lr=0.05, momentum=momentum)
    a = np.array([reach_by_hand(steps, momentum) for steps in (2, 6, 8)])
    p = np.array([7, 25, 40]) / 72
    theta = hand.start(federation)
    for round in (1, 2):
        g = [(theta - hand.descend(theta, federation, k, round, local)) / a[k] for k in range(3)]
        theta = theta - (p @ a) * (p @ np.array(g))
    nova = played(FedNova(local=local), federation, rounds=2).state.models[0]
    np.testing.assert_allclose(nova, theta, atol=2e-6)
    fedavg = played(FedAvg(local=local), federation, rounds=2).state.models[0]
    assert np.abs(nova - fedavg).max() > 1e-3


def test_two_steps_with_momentum_in_figures():
    """rho = 1/2: positions 1, 2.5; three steps reach 4.25."""
    local = ilk.LocalSGD(epochs=1, batch_size=10, momentum=0.5)
    assert [local.reach(n) for n in (1, 10, 11, 20, 21)] == [1, 1, 2.5, 2.5, 4.25]


def test_a_client_of_few_steps_counts_as_much_as_its_samples_say(played, toy, hand):
    """Clients whose gradient is the same everywhere move all alike: FedNova takes the mean of the reaches."""
    federation, local = toy(5, 40), ilk.LocalSGD(epochs=1, lr=1e-5, momentum=0)
    start = hand.start(federation)
    slopes = [hand.gradient(start, *hand.read(federation, k)) for k in range(2)]
    expected = -1e-5 * (5 * 1 + 40 * 4) / 45 * hand.mean(slopes, [5, 40])
    moved = played(FedNova(local=local), federation).state.models[0] - start
    np.testing.assert_allclose(moved, expected, atol=1e-7)


def test_the_reach_is_one_float_on_top_of_the_model(played, toy):
    run = played(FedNova(), toy(12, 31, 20), rounds=2, cohort=2)
    assert run.ledger.total("down") == 2 * 2 * 15 * 4
    assert run.ledger.total("up") == 2 * 2 * (15 + 1) * 4
    assert run.ledger.by_kind()["reach"] == 2 * 2 * 4


def test_who_is_not_asked_or_does_not_answer(survives):
    survives(FedNova(local=ilk.LocalSGD(epochs=1)))


def test_options(documented):
    assert documented(FedNova) == {}
    with pytest.raises(ilk.IlkError, match="fednova has no option 'mu'"):
        FedNova(mu=1)
