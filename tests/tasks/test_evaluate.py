"""Every protocol measures what its meaning says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

import ilk
from ilk.client import Place, Setting
from ilk.errors import IlkError
from ilk.methods import make_method, registry
from ilk.params import Net
from ilk.protocols import MEANING
from ilk.tasks import Evaluate, Fit, FitOwn, LocalSGD
from ilk.tasks.score import CHUNK, predict, score

LOCAL = LocalSGD(epochs=1, lr=0.05)


@pytest.fixture
def place(blobs):
    return Place(Setting(blobs, "mlp", seed=0))


@pytest.fixture(scope="module")
def fedavg():
    return make_method("fedavg", {"local": {"epochs": 1, "lr": 0.05}})


def by_hand(place, model, x, y):
    place.net.load(model)
    place.net.module.eval()
    with torch.no_grad():
        logits = place.net.module(x).numpy().astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    loss = (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]).mean()
    return (logits.argmax(axis=1) == y.numpy()).mean(), logits.argmax(axis=1), loss


def test_scores_by_hand(place):
    model = LocalSGD(epochs=2).train(place.client(0, 1, {}), place.initial_model)
    x, y = place.client(5, 1, {}).data("train")
    accuracy, predicted, loss = by_hand(place, model, x, y)
    result = score(place.net, model, x, y)
    assert result.accuracy == accuracy
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert 0 < accuracy < 1
    f1s = []
    for label in sorted({*predicted.tolist(), *y.tolist()}):
        right = ((predicted == label) & (y.numpy() == label)).sum()
        f1s.append(2 * right / ((predicted == label).sum() + (y.numpy() == label).sum()))
    assert result.f1 == pytest.approx(np.mean(f1s))
    assert result.f1 == f1_score(y.numpy(), predicted, average="macro")


def test_a_label_that_is_predicted_but_absent_lowers_macro_f1(place):
    model = np.zeros_like(place.initial_model)
    model[-3:] = (0.0, 0.0, 9.0)  # always class 2
    x = torch.zeros(4, 5)
    assert score(place.net, model, x, torch.tensor([0, 0, 0, 0])).f1 == 0.0
    assert score(place.net, model, x, torch.tensor([2, 2, 0, 0])).f1 == pytest.approx((2 / 3 + 0) / 2)
    assert score(place.net, model, x, torch.tensor([2, 2, 2, 2])).f1 == 1.0


def test_scores_do_not_depend_on_the_size_of_a_forward_pass(place):
    x = torch.randn(2 * CHUNK + 3, 5, generator=torch.Generator().manual_seed(0))
    together = predict(place.net, place.initial_model, x)
    alone = [predict(place.net, place.initial_model, row[None])[0] for row in x[CHUNK - 3 : CHUNK + 3]]
    assert together.shape == (2 * CHUNK + 3,)
    assert together[CHUNK - 3 : CHUNK + 3].tolist() == alone


def test_served_is_the_model_sent_now_on_the_own_test_data(place):
    client = place.client(2, 1, {"model": place.initial_model * 0})
    answer = Evaluate(Fit(LOCAL), "served").answer(client, {"models": place.initial_model[None]})
    accuracy, _, loss = by_hand(place, place.initial_model, *client.data("test"))
    assert answer["accuracy"] == accuracy
    assert answer["loss"] == pytest.approx(loss, rel=1e-5)
    assert answer["chosen"] == 0
    assert client.kept == {}


def test_of_several_models_the_one_that_the_client_would_train_is_measured(place):
    good = LocalSGD(epochs=10, lr=0.1).train(place.client(0, 1, {}), place.initial_model)
    client = place.client(0, 1, {})
    answer = Evaluate(Fit(LOCAL), "served").answer(client, {"models": np.stack([place.initial_model, good])})
    assert answer["chosen"] == 1
    assert answer["accuracy"] == by_hand(place, good, *client.data("test"))[0]


def test_after_local_trains_once_more(place):
    client = place.client(2, 3, {})
    answer = Evaluate(Fit(LOCAL), "after-local").answer(client, {"models": place.initial_model[None]})
    trained = LOCAL.train(place.client(2, 3, {}), place.initial_model)
    assert answer["loss"] == pytest.approx(by_hand(place, trained, *client.data("test"))[2], rel=1e-5)
    own = Evaluate(FitOwn(LOCAL), "after-local").answer(place.client(2, 3, {}), {})
    assert own["loss"] == answer["loss"]
    assert own["chosen"] == -1


def test_last_held_is_the_clients_memory_or_the_initial_model(place):
    held = LOCAL.train(place.client(2, 1, {}), place.initial_model)
    sent = {"models": place.initial_model[None] * 2}
    for memory, model in (({"model": held}, held), ({}, place.initial_model)):
        client = place.client(2, 4, memory)
        answer = Evaluate(Fit(LOCAL), "last-held").answer(client, sent)
        assert answer["loss"] == pytest.approx(by_hand(place, model, *client.data("test"))[2], rel=1e-5)


def test_global_is_the_test_set_that_belongs_to_nobody(blobs, place):
    x, y = (torch.from_numpy(array) for array in blobs.read_test())
    answers = [
        Evaluate(Fit(LOCAL), "global").answer(place.client(k, 1, {}), {"models": place.initial_model[None]})
        for k in range(3)
    ]
    assert {float(answer["loss"]) for answer in answers} == {float(answers[0]["loss"])}
    assert answers[0]["loss"] == pytest.approx(by_hand(place, place.initial_model, x, y)[2], rel=1e-5)
    other = Evaluate(Fit(LOCAL), "global").answer(place.client(0, 1, {}), {"models": place.initial_model[None] * 2})
    assert other["loss"] != answers[0]["loss"], "a score is shared only by those who share the model"


def test_global_without_such_a_test_set_is_refused(fedavg):
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    with pytest.raises(IlkError, match="'global' needs a test set"):
        ilk.run(fedavg, ilk.from_arrays({"a": (x, y)}), rounds=1, protocol="global", engine="inline")


@pytest.mark.parametrize("name", registry())
def test_measuring_never_changes_the_run(blobs, name):
    """Neither what is measured nor how often decides what a run ends in."""
    method = make_method(name, {"local": {"epochs": 1}})
    plans = [{"protocol": p} for p in ("served", "after-local", "global")] + [{"eval_every": 3}]
    runs = [ilk.run(method, blobs, rounds=3, cohort=0.5, engine="inline", **plan) for plan in plans]
    assert len({run.model_digest for run in runs}) == 1
    assert len({tuple(run.ledger.entries) for run in runs}) == 1, "an evaluation is no communication"
    assert [sorted(memory) for memory in runs[0].memories] == [sorted(memory) for memory in runs[1].memories]
    losses = [run.last["loss"] for run in runs]
    assert len(set(losses[:3])) == 3
    assert losses[3] == losses[0]
    assert ["loss" in row for row in runs[3].history] == [False, False, True]
    assert {run.last["protocol"] for run in runs} == {"served", "after-local", "global"}


def test_last_held_changes_what_clients_keep_but_not_the_models_of_the_server(blobs, fedavg):
    served = ilk.run(fedavg, blobs, rounds=2, cohort=2, engine="inline")
    held = ilk.run(fedavg, blobs, rounds=2, cohort=2, engine="inline", protocol="last-held")
    assert np.array_equal(served.state.models, held.state.models)
    never = [k for k, memory in enumerate(held.memories) if not memory]
    assert 2 <= len(never) <= 4
    assert served.memories == [{}] * 6
    place = Place(Setting(blobs, "mlp", seed=0))
    for k, memory in enumerate(held.memories):
        model = memory.get("model", place.initial_model)
        accuracy, _, _ = by_hand(place, model, *place.client(k, 1, {}).data("test"))
        assert held.last["accuracy_by_client"][k] == accuracy


def test_every_protocol_has_a_meaning(blobs, fedavg):
    assert set(MEANING) == {"served", "after-local", "last-held", "global"}
    with pytest.raises(IlkError, match=r"protocol = 'serve' is not allowed.*'served'.*'after-local'"):
        ilk.run(fedavg, blobs, rounds=1, protocol="serve")


def test_models_are_measured_in_eval_mode(place):
    """Without dropout, and with the statistics that batch normalisation learned."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(5, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 3)
    )
    place.net = Net(module)
    x, y = place.client(5, 1, {}).data("test")
    model = place.net.read()
    first = score(place.net, model, x, y)
    assert first == score(place.net, model, x, y)
    assert np.array_equal(place.net.read(), model), "measuring must not change the statistics"
    assert first.loss == pytest.approx(by_hand(place, model, x, y)[2], rel=1e-5)
