"""Clients that share a model share the work of testing it, and get what they would have got alone."""

from __future__ import annotations

import numpy as np
import pytest

import ilk
from ilk.client import Setting
from ilk.engines import Inline, Workers, one_thread
from ilk.evaluate import evaluate
from ilk.measure import measured
from ilk.methods import make_method, registry
from ilk.protocols import MEANING
from ilk.server import Server
from ilk.tasks import Evaluate
from ilk.tasks import evaluate as evaluating
from ilk.tasks import score as scoring

FAST = {"local": {"epochs": 1, "lr": 0.05}}
SHARING = ("fedavg", "pacfl", "ifca", "flis-dc", "scaffold")  # their clients begin with a model as it was sent


@pytest.fixture(scope="module")
def overlapping():
    """Clients whose test sets overlap: all test samples of a client's own labels."""
    return ilk.federation("digits", split="label-skew:0.3", clients=12, test_policy="label-set", auxiliary=40)


@pytest.fixture(scope="module")
def workers():
    engine = Workers(2)
    yield engine
    engine.close()


@pytest.fixture
def forwards(monkeypatch):
    """How many samples each forward pass of an evaluation has, and of which model."""
    seen = []
    original = scoring.forward

    def counted(net, model, x):
        seen.append((model.tobytes(), len(x)))
        return original(net, model, x)

    monkeypatch.setattr(scoring, "forward", counted)
    monkeypatch.setattr(evaluating, "forward", counted)
    return seen


def opened(federation, name="fedavg", rounds=1, keep_models=False, engine=None, **options):
    engine, method = engine or Inline(), make_method(name, {**FAST, **options})
    engine.open(Setting(federation, "mlp", 0, keep_models=keep_models))
    server = Server(engine.place.setting, engine)
    with one_thread():
        state = method.start(server)
        for server.round in range(1, rounds + 1):
            state = method.round(server, state, np.arange(0, len(federation.ids), 2))
    return engine, method, state


def messages_of(engine, method, state):
    send = method.message(state)
    return {k: send(k) for k in range(len(engine.memories))}


@pytest.mark.parametrize("protocol", MEANING)
@pytest.mark.parametrize("name", registry())
def test_as_if_every_client_were_asked_by_itself(overlapping, name, protocol):
    engine, method, state = opened(overlapping, name, keep_models=protocol == "last-held")
    task, messages = Evaluate(method.training, protocol), messages_of(engine, method, state)
    with one_thread():
        shared = measured(engine, task, messages, 1)
        alone = {answer.client: answer.message for answer in engine.ask(task, messages, 1)}
    assert sorted(shared) == sorted(alone) == list(range(12))
    for k in alone:
        assert shared[k]["accuracy"] == alone[k]["accuracy"]
        assert shared[k]["f1"] == alone[k]["f1"]
        assert shared[k]["loss"] == pytest.approx(float(alone[k]["loss"]), rel=1e-5)
        assert shared[k]["chosen"] == alone[k]["chosen"]


def test_one_model_for_all_runs_once_on_each_test_sample(overlapping, forwards):
    engine, method, state = opened(overlapping)
    forwards.clear()
    evaluate(engine, method, state, "served", 1)
    shares = overlapping.partition.shares
    distinct = np.unique(np.concatenate([share.test for share in shares]))
    assert sum(len(share.test) for share in shares) > 2 * len(distinct), "or this test shows nothing"
    assert sum(count for _, count in forwards) == len(distinct)


def test_one_model_for_all_runs_once_on_the_global_test_set(overlapping, forwards):
    engine, method, state = opened(overlapping)
    forwards.clear()
    evaluate(engine, method, state, "global", 1)
    assert sum(count for _, count in forwards) == len(overlapping.read_test()[1])


@pytest.mark.parametrize("name", ["pacfl", "ifca"])
def test_several_models_run_once_on_each_sample_of_those_who_use_them(overlapping, forwards, name):
    options = {"clusters": 3} if name == "pacfl" else {"k": 3}
    engine, method, state = opened(overlapping, name, **options)
    forwards.clear()
    result = evaluate(engine, method, state, "served", 1)
    shares = overlapping.partition.shares
    least = sum(
        len(np.unique(np.concatenate([shares[k].test for k in np.flatnonzero(result.cluster == z)])))
        for z in np.unique(result.cluster)
    )
    chosen_by = sum(len(overlapping.read(k, "train")[1]) * 3 for k in range(12)) if name == "ifca" else 0
    assert sum(count for _, count in forwards) == least + chosen_by
    assert len(np.unique(result.cluster)) > 1


def test_who_never_trained_shares_the_initial_model(overlapping, forwards):
    engine, method, state = opened(overlapping, keep_models=True)
    forwards.clear()
    evaluate(engine, method, state, "last-held", 1)
    idle = np.concatenate([overlapping.partition.shares[k].test for k in range(1, 12, 2)])
    held = sum(len(overlapping.partition.shares[k].test) for k in range(0, 12, 2))
    assert sum(count for _, count in forwards) == len(np.unique(idle)) + held


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.parametrize("protocol", ["served", "last-held", "global"])
def test_the_same_bits_with_workers(overlapping, workers, name, protocol):
    plan = {"rounds": 2, "cohort": 0.5, "protocol": protocol}
    one, other = (ilk.run(make_method(name, FAST), overlapping, engine=e, **plan) for e in (Inline(), workers))
    for row, same in zip(one.history, other.history, strict=True):
        for kind in ("accuracy_by_client", "cluster_by_client", "loss", "f1"):
            assert row[kind] == same[kind]


class Unreachable(Inline):
    """Some clients cannot be reached when models are measured."""

    lost: tuple[int, ...] = (0, 5)

    def ask(self, task, messages, round):
        for answer in super().ask(task, messages, round):
            if not isinstance(task, Evaluate) or answer.client not in self.lost:
                yield answer


@pytest.mark.parametrize("name", SHARING)
def test_a_client_that_cannot_be_reached_costs_nobody_else_its_score(overlapping, name):
    whole = evaluate(*opened(overlapping, name), "served", 1)
    partly = evaluate(*opened(overlapping, name, engine=Unreachable()), "served", 1)
    lost = np.isin(np.arange(12), Unreachable.lost)
    assert np.isnan(partly.accuracy).tolist() == lost.tolist()
    assert partly.accuracy[~lost].tolist() == whole.accuracy[~lost].tolist()
    np.testing.assert_allclose(partly.loss[~lost], whole.loss[~lost], rtol=1e-5)


def test_where_data_cannot_be_seen_every_client_is_asked_by_itself(overlapping, forwards):
    engine, method, state = opened(overlapping)
    whole = evaluate(engine, method, state, "served", 1)
    engine.visible = None
    forwards.clear()
    apart = evaluate(engine, method, state, "served", 1)
    assert len(forwards) == 12
    assert apart.accuracy.tolist() == whole.accuracy.tolist()


def test_clients_that_see_a_sample_differently_do_not_share_it(forwards):
    """Under rotations the same image is another input; under permuted labels it is the same with another label."""
    turned = ilk.federation("digits", split="rotate:2", clients=4, test_policy="label-set")
    engine, method, state = opened(turned)
    forwards.clear()
    evaluate(engine, method, state, "served", 1)
    assert sum(count for _, count in forwards) == 2 * len(np.unique(turned.partition.shares[0].test))
    permuted = ilk.federation("digits", split="permute-labels:2", clients=4, test_policy="label-set")
    engine, method, state = opened(permuted)
    forwards.clear()
    found = evaluate(engine, method, state, "served", 1)
    assert sum(count for _, count in forwards) == len(np.unique(permuted.partition.shares[0].test))
    alone = [
        scoring.score(engine.place.net, state.models[0], *engine.place.client(k, 1, {}).data("test")) for k in range(4)
    ]
    assert found.accuracy.tolist() == [score.accuracy for score in alone]
