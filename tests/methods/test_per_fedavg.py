import numpy as np
import pytest

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.per_fedavg import PerFedAvg

LOCAL = ilk.LocalSGD(epochs=2, lr=0.05, momentum=0.5)


def meta(theta, federation, k, round, local, alpha, hand, one_buffer=False):
    """First-order MAML in plain numpy: step on one batch, gradient on the next, step from where it was."""
    velocity = 0.0
    for batches in hand.batches(federation, k, round, local):
        for pair in range(len(batches) // 2):
            one, two = batches[2 * pair : 2 * pair + 2]
            step = hand.gradient(theta, *one)
            if one_buffer:
                step = velocity = local.momentum * velocity + step
            ahead = theta - alpha * step
            velocity = local.momentum * velocity + hand.gradient(ahead, *two)
            theta = theta - local.lr * velocity
    return theta


def trained(federation, method, clients_of, start, client=0):
    return method.training.answer(clients_of(federation)(client), {"models": start[None].astype(np.float32)})["model"]


def test_one_pair_of_batches_on_a_quadratic(toy, clients_of, hand):
    """At x = 0 with equal logits the loss has the Hessian H = (I - 11'/3) / 3 in the biases, up to second order.

    One pair with small gradients: theta - beta (g + H (theta' - theta)), theta' = theta - alpha g.
    """
    federation = toy(20, label=lambda k, x: np.arange(len(x)) % 3)
    source = federation.sources["arrays"]
    source.x_train[:] = 0
    local, alpha = ilk.LocalSGD(epochs=1, lr=0.1, momentum=0), 0.3
    start = np.zeros(15)
    start[-3:] = (0.01, -0.02, 0.01)
    ((one, two),) = hand.batches(federation, 0, 1, local)
    hessian = (np.eye(3) - 1 / 3) / 3
    slope = [hessian @ start[-3:] + 1 / 3 - np.eye(3)[y].mean(axis=0) for _, y in (one, two)]
    expected = start[-3:] - 0.1 * (slope[1] - alpha * hessian @ slope[0])
    model = trained(federation, PerFedAvg(local=local, alpha=alpha), clients_of, start)
    np.testing.assert_allclose(model[-3:], expected, atol=3e-5)
    assert np.abs(0.1 * alpha * hessian @ slope[0]).max() > 2e-4, "the adapting step is seen at this tolerance"


def test_two_rounds_by_hand(played, toy, hand):
    """Clients of 2, 4 and (the last of 3 is left out) 2 batches, and one whose second batch is a small one."""
    federation, alpha = toy(20, 40, 25, 14), 0.4
    theta = hand.start(federation)
    for round in (1, 2):
        models = [meta(theta, federation, k, round, LOCAL, alpha, hand) for k in range(4)]
        theta = hand.mean(models, federation.sizes)
    run = played(PerFedAvg(local=LOCAL, alpha=alpha), federation, rounds=2)
    np.testing.assert_allclose(run.state.models[0], theta, atol=2e-6)
    far = played(PerFedAvg(local=LOCAL, alpha=1e-9), federation, rounds=2).state.models[0]
    assert np.abs(far - theta).max() > 1e-3, "the adapting step matters in this test"


def test_momentum_is_the_outer_steps_alone(toy, clients_of, hand):
    """Four pairs; a buffer that also held the inner gradients would end elsewhere."""
    federation, local = toy(80), ilk.LocalSGD(epochs=1, lr=0.05, momentum=0.9)
    start = hand.start(federation)
    model = trained(federation, PerFedAvg(local=local, alpha=0.2), clients_of, start)
    np.testing.assert_allclose(model, meta(start, federation, 0, 1, local, 0.2, hand), atol=1e-6)
    released = trained(federation, PerFedAvg(local=local, alpha=0.2, one_buffer=True), clients_of, start)
    np.testing.assert_allclose(released, meta(start, federation, 0, 1, local, 0.2, hand, one_buffer=True), atol=1e-6)
    assert np.abs(model - released).max() > 0.01


def test_an_odd_last_batch_is_left_out(toy, clients_of, hand):
    federation, local = toy(25), ilk.LocalSGD(epochs=1, lr=0.1)
    (batches,) = hand.batches(federation, 0, 1, local)
    assert [len(y) for _, y in batches] == [10, 10, 5]
    start = hand.start(federation)
    ahead = start - 0.01 * hand.gradient(start, *batches[0])
    model = trained(federation, PerFedAvg(local=local), clients_of, start)
    np.testing.assert_allclose(model, start - 0.1 * hand.gradient(ahead, *batches[1]), atol=1e-6)


@pytest.mark.parametrize(("samples", "moves"), [(1, False), (9, False), (10, False), (11, True)])
def test_a_client_of_a_single_batch_does_not_move(toy, clients_of, hand, samples, moves):
    federation = toy(samples)
    start = hand.start(federation).astype(np.float32)
    model = trained(federation, PerFedAvg(local=LOCAL), clients_of, start)
    assert np.array_equal(model, start) != moves


def test_who_does_not_move_weighs_in_the_mean(played, toy, hand):
    federation = toy(10, 20)
    start = hand.start(federation)
    expected = (10 * start + 20 * meta(start, federation, 1, 1, LOCAL, 0.01, hand)) / 30
    np.testing.assert_allclose(played(PerFedAvg(local=LOCAL), federation).state.models[0], expected, atol=1e-6)


def test_weight_decay_counts_in_the_outer_step(toy, clients_of, hand):
    """An option of local training that is taken must do something: here as in `LocalSGD`, g + weight_decay theta."""
    federation = toy(20)
    start = hand.start(federation)
    local = ilk.LocalSGD(epochs=1, lr=0.1, momentum=0, weight_decay=0.5)
    ((one, two),) = hand.batches(federation, 0, 1, local)
    slope = hand.gradient(start - 0.01 * hand.gradient(start, *one), *two)
    model = trained(federation, PerFedAvg(local=local), clients_of, start)
    np.testing.assert_allclose(model, start - 0.1 * (slope + 0.5 * start), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.01, 0.7])
def test_a_client_uses_the_model_after_one_step_on_all_its_training_data(toy, clients_of, hand, alpha):
    federation = toy(33)
    start = hand.start(federation)
    adapted, which = PerFedAvg(alpha=alpha).training.begin(
        clients_of(federation)(0), {"models": start[None].astype(np.float32)}
    )
    assert which == 0
    np.testing.assert_allclose(adapted, start - alpha * hand.gradient(start, *hand.read(federation, 0)), atol=1e-6)


def test_without_adapting_it_is_the_shared_model(toy, clients_of, hand):
    federation = toy(33)
    start = hand.start(federation).astype(np.float32)
    model, which = PerFedAvg(adapt=False).training.begin(clients_of(federation)(0), {"models": start[None]})
    assert which == 0
    assert np.array_equal(model, start)


@pytest.mark.parametrize("adapt", [True, False])
def test_what_is_measured_is_what_is_used(played, toy, hand, adapt):
    """The loss over all clients' test data, also of one that is not asked; and adapting changes no model."""
    federation, alpha = toy(20, 40, 10), 0.5
    run = played(PerFedAvg(local=LOCAL, alpha=alpha, adapt=adapt), federation, cohort=2)
    theta = run.state.models[0].astype(np.float64)
    losses = []
    for k in range(3):
        model = theta - adapt * alpha * hand.gradient(theta, *hand.read(federation, k))
        losses.append(hand.loss(model, *hand.read(federation, k, "test")))
    assert run.last["loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    other = played(PerFedAvg(local=LOCAL, alpha=alpha, adapt=not adapt), federation, cohort=2)
    assert other.last["loss"] != pytest.approx(run.last["loss"], abs=1e-4)
    assert other.model_digest == run.model_digest


def test_the_last_held_model_is_that_of_the_training(played, toy, hand):
    federation = toy(20, 40)
    run = played(PerFedAvg(local=LOCAL), federation, protocol="last-held")
    for k in range(2):
        expected = meta(hand.start(federation), federation, k, 1, LOCAL, 0.01, hand)
        np.testing.assert_allclose(run.memories[k]["model"], expected, atol=1e-6)


def test_a_training_that_diverges_is_reported(played, toy):
    federation = toy(40)
    federation.sources["arrays"].x_train[:] *= 1e10
    with pytest.raises(ilk.IlkError, match="client 'client-0' diverged"):
        played(PerFedAvg(local=ilk.LocalSGD(lr=1e30)), federation)


def test_dropout_and_batchnorm_are_in_training_mode(played, toy):
    run = played(PerFedAvg(local=LOCAL), toy(20, 40), rounds=2, model="normed")
    fedavg = played(FedAvg(local=LOCAL), toy(20, 40), rounds=2, model="normed")
    assert np.isfinite(run.state.models).all()
    assert run.state.models.shape == fedavg.state.models.shape
    assert (run.state.models[0, 63:69] != 0).all(), "running means have moved"


def test_it_costs_what_fedavg_costs(played, toy):
    run = played(PerFedAvg(local=LOCAL), toy(12, 31, 20), rounds=2, cohort=2)
    assert run.ledger.by_kind() == {"models": 2 * 2 * 15 * 4, "model": 2 * 2 * 15 * 4}


@pytest.mark.parametrize("adapt", [True, False])
def test_who_is_not_asked_or_does_not_answer(survives, adapt):
    survives(PerFedAvg(local=LOCAL, adapt=adapt))


def test_options(documented):
    assert documented(PerFedAvg) == {"alpha": 0.01, "adapt": True, "one_buffer": False}
    assert PerFedAvg().local == ilk.LocalSGD(lr=0.001)


@pytest.mark.parametrize(
    ("name", "value"), [("alpha", 0), ("alpha", 1e39), ("alpha", -0.1), ("alpha", float("nan")), ("adapt", "some")]
)
def test_a_wrong_option_is_refused_by_name(name, value):
    with pytest.raises(ilk.IlkError, match=f"per-fedavg: {name} = "):
        PerFedAvg(**{name: value})
