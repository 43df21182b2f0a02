import numpy as np
import pytest
import torch
from torch.optim.adagrad import adagrad

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.fedopt import FedOpt

FAST = ilk.LocalSGD(epochs=1, lr=0.05)
ALL = ("sgd", "avgm", "adagrad", "adam", "yogi")


@pytest.mark.parametrize("model", ["mlp", "normed"])
def test_sgd_with_a_learning_rate_of_1_is_fedavg_bit_for_bit(played, toy, digits, model):
    federation = digits if model == "mlp" else toy(20, 30, 10, 40)
    settings = {"rounds": 3, "cohort": 0.5, "model": model}
    fedavg = played(FedAvg(local=FAST), federation, **settings)
    assert played(FedOpt(local=FAST), federation, **settings).model_digest == fedavg.model_digest
    other = played(FedOpt(local=FAST, server_lr=0.9), federation, **settings)
    assert other.model_digest != fedavg.model_digest


def updates(engine, federation, rounds, weighted=True):
    """The models that were sent in each round, and D = sum_k p_k (theta_k - theta) of what came back."""
    for round in range(1, rounds + 1):
        answers = engine.answers(round)
        theta = next(iter(engine.asked(round).values()))["models"][0].astype(np.float64)
        n = np.array([federation.sizes[k] if weighted else 1 for k in answers], float)
        came = np.array([message["model"] for message in answers.values()], float)
        yield theta, ((came - theta) * (n / n.sum())[:, None]).sum(axis=0)


@pytest.mark.parametrize("optimiser", ALL)
@pytest.mark.parametrize("tau", [1e-3, 0.05])
def test_three_rounds_by_hand(played, toy, watched, optimiser, tau):
    """Each parameter by itself, in plain Python, with the formulas of Reddi et al., Algorithm 2."""
    federation, engine, eta, b1, b2 = toy(12, 31, 20), watched(), 0.3, 0.8, 0.7
    method = FedOpt(local=FAST, optimiser=optimiser, server_lr=eta, beta1=b1, beta2=b2, tau=tau)
    run = played(method, federation, rounds=3, engine=engine)
    history = list(updates(engine, federation, 3))
    reached = [theta for theta, _ in history[1:]] + [run.state.models[0]]
    for i in range(15):
        m, v = 0.0, tau * tau
        for (theta, update), after in zip(history, reached, strict=True):
            d = update[i]
            if optimiser == "sgd":
                step = d
            elif optimiser == "avgm":
                step = m = b1 * m + d
            else:
                m = b1 * m + (1 - b1) * d
                if optimiser == "adagrad":
                    v += d * d
                elif optimiser == "adam":
                    v = b2 * v + (1 - b2) * d * d
                elif v > d * d:
                    v -= (1 - b2) * d * d
                else:
                    v += (1 - b2) * d * d
                step = m / (v**0.5 + tau)
            assert after[i] == pytest.approx(theta[i] + eta * step, abs=2e-5)
    moved = [np.abs(update).max() for _, update in history]
    assert min(moved) > 0.01, "the updates are large against the tolerance"


def test_the_five_are_different(played, toy):
    federation = toy(12, 31, 20)
    ends = {played(FedOpt(local=FAST, optimiser=o, server_lr=0.1), federation, rounds=3).model_digest for o in ALL}
    assert len(ends) == 5


def test_without_momentum_adagrad_is_torchs(played, toy, watched):
    """PyTorch's own arithmetic (as a function: making its optimiser class takes seconds)."""
    federation, engine = toy(12, 31, 20), watched()
    method = FedOpt(local=FAST, server_lr=0.1, optimiser="adagrad", beta1=0, tau=0.01)
    run = played(method, federation, rounds=3, engine=engine)
    history = list(updates(engine, federation, 3))
    theta, squares, steps = (
        torch.tensor(history[0][0]),
        torch.full((15,), 0.01**2, dtype=torch.float64),
        torch.tensor(0.0),
    )
    for _, update in history:
        gradient = -torch.tensor(update)
        options = {"lr": 0.1, "weight_decay": 0.0, "lr_decay": 0.0, "eps": 0.01, "maximize": False, "foreach": False}
        adagrad([theta], [gradient], [squares], [steps], **options)
    np.testing.assert_allclose(run.state.models[0], theta.numpy(), atol=1e-5)


def test_adam_with_no_memory_is_the_sign_where_tau_is_small(played, toy, watched):
    """beta1 = beta2 = 0: m / sqrt(v) = D / |D|."""
    engine = watched()
    method = FedOpt(local=FAST, optimiser="adam", server_lr=0.1, beta1=0, beta2=0, tau=1e-9)
    run = played(method, toy(12, 31, 20), engine=engine)
    ((theta, update),) = updates(engine, toy(12, 31, 20), 1)
    np.testing.assert_allclose(run.state.models[0] - theta, 0.1 * np.sign(update), atol=1e-4)


def test_yogi_lets_the_squares_fall_slowly(played, toy):
    """Where D^2 is far below v, Adam forgets by a share of v, Yogi by a share of D^2."""
    d, m, v = np.array([0.1]), np.zeros(1), np.ones(1)
    assert FedOpt(optimiser="yogi").step(d, m, v)[2] == pytest.approx(1 - 0.01 * 0.01)
    assert FedOpt(optimiser="adam").step(d, m, v)[2] == pytest.approx(0.99 + 0.01 * 0.01)
    assert FedOpt(optimiser="yogi").step(d, m, v * 0.001)[2] == pytest.approx(0.001 + 0.01 * 0.01)
    assert FedOpt(optimiser="adagrad").step(d, m, v)[2] == pytest.approx(1.01)


def test_the_moments_begin_at_rest(played, toy, watched):
    engine = watched(lost=lambda round, client: True)
    state = played(FedOpt(local=FAST, optimiser="yogi", tau=0.1), toy(12, 31), engine=engine).state
    np.testing.assert_array_equal(state.m, np.zeros(15))
    np.testing.assert_allclose(state.v, np.full(15, 0.01))


def test_the_plain_mean_is_ocfls(played, toy, watched):
    federation, engine = toy(12, 31, 20), watched()
    run = played(FedOpt(local=FAST, weighted=False), federation, engine=engine)
    ((theta, update),) = updates(engine, federation, 1, weighted=False)
    np.testing.assert_allclose(run.state.models[0], theta + update, atol=1e-6)
    assert run.model_digest != played(FedOpt(local=FAST), federation).model_digest


def test_buffers_are_averaged_not_optimised(played, toy, watched):
    federation, engine = toy(20, 30, 10), watched()
    method = FedOpt(local=FAST, optimiser="adam", server_lr=0.1)
    run = played(method, federation, model="normed", engine=engine)
    assert run.state.m.shape == run.state.v.shape == (63,)
    came = [message["model"][63:].astype(np.float64) for message in engine.answers(1).values()]
    np.testing.assert_allclose(run.state.models[0, 63:], np.array([20, 30, 10]) @ np.array(came) / 60, rtol=1e-6)


@pytest.mark.parametrize("optimiser", ALL)
def test_it_costs_what_fedavg_costs(played, toy, optimiser):
    run = played(FedOpt(local=FAST, optimiser=optimiser), toy(12, 31, 20), rounds=2, cohort=2)
    assert run.ledger.by_kind() == {"models": 2 * 2 * 15 * 4, "model": 2 * 2 * 15 * 4}


@pytest.mark.parametrize("optimiser", ["avgm", "yogi"])
def test_who_is_not_asked_or_does_not_answer(survives, optimiser):
    survives(FedOpt(local=FAST, optimiser=optimiser, server_lr=0.1))


def test_options(documented):
    assert documented(FedOpt) == {
        "optimiser": "sgd",
        "server_lr": 1.0,
        "beta1": 0.9,
        "beta2": 0.99,
        "tau": 1e-3,
        "weighted": True,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimiser", "lion"),
        ("server_lr", 0),
        ("server_lr", -1),
        ("server_lr", 1e39),
        ("beta1", 1),
        ("beta1", -0.1),
        ("beta2", 1),
        ("beta2", -0.1),
        ("tau", 0),
        ("tau", 1e300),
        ("weighted", "perhaps"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name, value):
    with pytest.raises(ilk.IlkError, match=f"fedopt: {name} = "):
        FedOpt(**{name: value})
