import numpy as np
import pytest

import ilk
from ilk.methods.fedavg import FedAvg
from ilk.methods.scaffold import Scaffold

PLAIN = ilk.LocalSGD(epochs=1, lr=0.05, momentum=0)


def reach_by_hand(steps, momentum):
    velocity = position = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1
        position += velocity
    return position


def test_its_first_round_is_fedavg_bit_for_bit(played, digits):
    settings = {"rounds": 1, "cohort": 0.5, "model": "auto"}
    first = played(Scaffold(local=PLAIN), digits, **settings).state.models
    assert np.array_equal(first, played(FedAvg(local=PLAIN), digits, **settings).state.models)
    settings |= {"rounds": 2}
    second = played(Scaffold(local=PLAIN), digits, **settings).state.models
    assert not np.array_equal(second, played(FedAvg(local=PLAIN), digits, **settings).state.models)


@pytest.mark.parametrize("scale", ["all", "cohort"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("correct", ["gradient", "step"])
def test_three_rounds_by_hand(played, toy, hand, watched, correct, scale, momentum):
    """Three of five are asked each round; c, every c_k and the model in plain numpy."""
    federation = toy(12, 31, 20, 9, 44)
    local = ilk.LocalSGD(epochs=2, lr=0.05, momentum=momentum)
    engine = watched()
    run = played(Scaffold(local=local, scale=scale, correct=correct), federation, rounds=3, cohort=3, engine=engine)

    theta, c, own = hand.start(federation), np.zeros(15), {}
    corrected = 0.0
    for round in (1, 2, 3):
        cohort = list(engine.asked(round))
        assert len(cohort) == 3
        trained, changes = [], []
        for k in cohort:
            before = own.get(k, np.zeros(15))
            corrected = max(corrected, np.abs(c - before).max())
            push = c - before
            terms = {"more": lambda _, push=push: push} if correct == "gradient" else {"beside": push}
            model = hand.descend(theta, federation, k, round, local, **terms)
            steps = 2 * -(-int(federation.sizes[k]) // 10)
            reach = reach_by_hand(steps, momentum) if correct == "gradient" else steps
            own[k] = before - c + (theta - model) / (reach * 0.05)
            trained.append(model)
            changes.append(own[k] - before)
        theta = hand.mean(trained, federation.sizes[cohort])
        c = c + np.sum(changes, axis=0) / (5 if scale == "all" else 3)

    np.testing.assert_allclose(run.state.models[0], theta, atol=3e-6)
    np.testing.assert_allclose(run.state.control, c, atol=2e-5)
    for k in range(5):
        assert (k in own) == ("control" in run.memories[k])
        if k in own:
            np.testing.assert_allclose(run.memories[k]["control"], own[k], atol=2e-5)
    assert corrected > 0.02, "the corrections matter in this test"


def test_without_momentum_a_control_is_the_mean_gradient_along_the_way(toy, hand, clients_of):
    """c_k+ = c_k - c + (theta_t - theta_k) / (K lr): the correction drops out, and the client's own gradients stay."""
    federation, start = toy(33), None
    client = clients_of(federation)(0)
    start = hand.start(federation).astype(np.float32)
    c = np.linspace(-0.3, 0.3, 15).astype(np.float32)
    answer = Scaffold(local=PLAIN).training.answer(client, {"models": start[None], "control": c})
    theta, gradients = start.astype(np.float64), []
    (batches,) = hand.batches(federation, 0, 1, PLAIN)
    for x, y in batches:
        gradients.append(hand.gradient(theta, x, y))
        theta = theta - 0.05 * (gradients[-1] + c)
    np.testing.assert_allclose(answer["model"], theta, atol=1e-6)
    np.testing.assert_allclose(client.kept["control"], np.mean(gradients, axis=0), atol=1e-5)
    assert np.array_equal(answer["control"], client.kept["control"])


@pytest.mark.parametrize(("scale", "over"), [("all", 5), ("cohort", 2)])
def test_by_how_much_the_servers_control_moves(played, toy, watched, scale, over):
    engine = watched()
    run = played(Scaffold(local=PLAIN, scale=scale), toy(12, 31, 20, 9, 44), cohort=2, engine=engine)
    total = sum(message["control"].astype(np.float64) for message in engine.answers(1).values())
    np.testing.assert_allclose(run.state.control, total / over, rtol=1e-6)


@pytest.mark.parametrize(("scale", "over"), [("all", 5), ("cohort", 3)])
def test_the_cohort_is_who_answered(played, toy, watched, scale, over):
    engine = watched(lost=lambda round, client: client in (1, 4))
    run = played(Scaffold(local=PLAIN, scale=scale), toy(12, 31, 20, 9, 44), engine=engine)
    total = sum(message["control"].astype(np.float64) for message in engine.answers(1).values())
    assert len(engine.answers(1)) == 3
    np.testing.assert_allclose(run.state.control, total / over, rtol=1e-6)


def test_with_everybody_asked_the_control_is_the_mean_of_all_controls(played, toy):
    for scale in ("all", "cohort"):
        run = played(Scaffold(local=PLAIN, scale=scale), toy(12, 31, 20), rounds=3)
        mean = np.mean([memory["control"] for memory in run.memories], axis=0)
        np.testing.assert_allclose(run.state.control, mean, atol=1e-6)


def test_a_control_is_kept_only_when_the_answer_was_accepted(played, toy, watched):
    """Client 1's second answer is lost: what it remembers is still its first."""
    federation = toy(12, 31, 20)
    first = played(Scaffold(local=PLAIN), federation, rounds=1)
    engine = watched(lost=lambda round, client: (round, client) in {(1, 2), (2, 1)})
    run = played(Scaffold(local=PLAIN), federation, rounds=2, engine=engine)
    assert np.array_equal(run.memories[1]["control"], first.memories[1]["control"])
    assert not np.array_equal(run.memories[0]["control"], first.memories[0]["control"])
    engine = watched(lost=lambda round, client: client == 2)
    assert played(Scaffold(local=PLAIN), federation, rounds=2, engine=engine).memories[2] == {}


def test_two_models_each_way(played, toy):
    run = played(Scaffold(local=PLAIN), toy(12, 31, 20), rounds=2, cohort=2)
    assert run.ledger.total("down") == run.ledger.total("up") == 2 * 2 * 2 * 15 * 4
    assert run.ledger.by_kind() == {"models": 240, "control": 480, "model": 240}


def test_controls_cover_trainable_parameters_only(played, toy):
    """A model with BatchNorm: 63 trainable parameters and 13 buffers, which are averaged like the rest."""
    federation = toy(20, 30, 20)
    run = played(Scaffold(local=PLAIN), federation, rounds=2, model="normed")
    assert run.state.control.shape == (4 * 6 + 6 + 6 + 6 + 6 * 3 + 3,) == (63,)
    assert run.state.models.shape == (1, 63 + 13)
    assert np.isfinite(run.state.models).all()
    once = played(Scaffold(local=PLAIN), federation, rounds=1, model="normed")
    fedavg = played(FedAvg(local=PLAIN), federation, rounds=1, model="normed")
    assert np.array_equal(once.state.models, fedavg.state.models)


def test_clients_hold_their_last_model_only_where_it_is_measured(played, toy):
    run = played(Scaffold(local=PLAIN), toy(12, 31), protocol="last-held")
    assert [set(memory) for memory in run.memories] == [{"control", "model"}] * 2
    run = played(Scaffold(local=PLAIN), toy(12, 31), protocol="after-local")
    assert [set(memory) for memory in run.memories] == [{"control"}] * 2


@pytest.mark.parametrize("scale", ["all", "cohort"])
def test_who_is_not_asked_or_does_not_answer(survives, scale):
    survives(Scaffold(local=PLAIN, scale=scale))


def test_options(documented):
    assert documented(Scaffold) == {"correct": "gradient", "scale": "all"}
    assert Scaffold().local.momentum == 0


def test_a_wrong_scale_is_refused_by_name():
    with pytest.raises(ilk.IlkError, match=r"scaffold: scale = 'none'.*'all' or 'cohort'"):
        Scaffold(scale="none")
