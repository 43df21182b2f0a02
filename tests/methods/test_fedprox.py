import numpy as np
import pytest

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.fedprox import FedProx

FAST = ilk.LocalSGD(epochs=1)


def test_without_a_pull_it_is_fedavg_bit_for_bit(played, digits):
    settings = {"rounds": 3, "cohort": 0.5, "model": "auto"}
    fedavg = played(FedAvg(local=FAST), digits, **settings)
    assert played(FedProx(local=FAST, mu=0), digits, **settings).model_digest == fedavg.model_digest
    assert played(FedProx(local=FAST), digits, **settings).model_digest != fedavg.model_digest


def test_each_round_pulls_to_the_model_of_that_round(played, toy, hand):
    """Two rounds by hand, with momentum: the gradient contains mu (theta - theta_received)."""
    federation, local, mu = toy(12, 31, 20), ilk.LocalSGD(epochs=3, lr=0.1), 2.0
    theta = hand.start(federation)
    for round in (1, 2):
        pull = lambda now, received=theta: mu * (now - received)  # noqa: E731
        theta = hand.mean([hand.descend(theta, federation, k, round, local, pull) for k in range(3)], federation.sizes)
    state = played(FedProx(local=local, mu=mu), federation, rounds=2).state
    np.testing.assert_allclose(state.models[0], theta, atol=2e-6)
    free = played(FedProx(local=local, mu=0), federation, rounds=2).state
    assert np.abs(state.models[0] - free.models[0]).max() > 0.02


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_a_slope_and_a_spring_in_closed_form(toy, clients_of, mu):
    """A model that is surely wrong has the constant gradient G = (-1, 1) in its biases, so the objective is quadratic.

    d_k = theta_k - theta_received  obeys  d_{k+1} = d_k - lr (G + mu d_k),  hence  d_K = -G/mu (1 - (1 - lr mu)^K).
    """
    zeros = toy(40, classes=2, label=lambda k, x: np.zeros(len(x), np.int64))
    source = zeros.sources["arrays"]
    source.x_train[:] = 0
    source.y_train[:] = 0
    start = np.zeros(10, np.float32)
    start[-2:] = (-200, 200)
    local = ilk.LocalSGD(epochs=5, lr=0.1, momentum=0)
    method = FedProx(local=local, mu=mu)
    model = method.training.answer(clients_of(zeros)(0), {"models": start[None]})["model"]
    moved = (1 - (1 - 0.1 * mu) ** 20) / mu
    np.testing.assert_allclose(model[-2:] - start[-2:], [moved, -moved], atol=2e-4)
    assert (model[:-2] == 0).all()


def test_a_huge_pull_hardly_lets_the_client_move(toy, clients_of, hand):
    """With lr mu = 1 every step begins at the model received: one step is all that is left of forty."""
    federation = toy(40)
    start = hand.start(federation).astype(np.float32)

    def model(mu):
        local = ilk.LocalSGD(epochs=10, lr=1e-3, momentum=0)
        answer = FedProx(local=local, mu=mu).training.answer(clients_of(federation)(0), {"models": start[None]})
        return answer["model"]

    free, held = np.linalg.norm(model(0) - start), np.linalg.norm(model(1e3) - start)
    assert held < free / 10
    *_, last_epoch = hand.batches(federation, 0, 1, ilk.LocalSGD(epochs=10))
    # the last step: from where the one before it ended, one gradient away from the start
    before = start - 1e-3 * hand.gradient(start.astype(np.float64), *last_epoch[-2])
    np.testing.assert_allclose(model(1e3) - start, -1e-3 * hand.gradient(before, *last_epoch[-1]), atol=1e-7)


def test_a_pull_costs_no_message(played, toy):
    run = played(FedProx(local=FAST, mu=1), toy(12, 31, 20), rounds=2, cohort=2)
    assert run.ledger.by_kind() == {"models": 2 * 2 * 15 * 4, "model": 2 * 2 * 15 * 4}


def test_who_is_not_asked_or_does_not_answer(survives):
    survives(FedProx(local=FAST, mu=0.5))


def test_options(documented):
    assert documented(FedProx) == {"mu": 0.001}


@pytest.mark.parametrize("mu", [-0.1, 1e39, float("inf"), float("nan"), "much"])
def test_a_wrong_mu_is_refused_by_name(mu):
    with pytest.raises(ilk.IlkError, match="fedprox: mu"):
        FedProx(mu=mu)
