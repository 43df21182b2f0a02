"""FLIS-DC between its two ends: everybody together, and everybody alone."""

from __future__ import annotations

import numpy as np
import pytest

import ilk
from ilk.client import Setting
from ilk.engines import Inline
from ilk.method import State
from ilk.methods import make_method, method_class
from ilk.server import Server
from ilk.tasks import LocalSGD
from ilk.tasks.score import loss_of, predict

CHOICES = ("validation-loss", "train-loss", "test-accuracy")
LOCAL = {"epochs": 2, "lr": 0.05}


def flis(threshold):
    return make_method("flis-dc", {"local": LOCAL, "threshold": threshold})


def open_server(federation, seed=0, round=1):
    engine = Inline()
    engine.open(Setting(federation, "mlp", seed))
    return Server(engine.place.setting, engine, round=round)


@pytest.mark.parametrize("cohort", [1.0, 0.5])
def test_threshold_0_is_fedavg_bit_for_bit(blobs, cohort):
    fedavg = ilk.run(make_method("fedavg", {"local": LOCAL}), blobs, rounds=3, cohort=cohort, engine="inline")
    run = ilk.run(flis(0.0), blobs, rounds=3, cohort=cohort, engine="inline")
    assert len(run.state.models) == round(6 * cohort)
    for model in run.state.models:
        assert model.tobytes() == fedavg.state.models[0].tobytes()
    assert run.history["accuracy_by_client"] == fedavg.history["accuracy_by_client"]


@pytest.mark.parametrize("threshold", [1.0001, 5])
def test_a_threshold_above_1_leaves_every_client_alone(blobs, threshold):
    server = open_server(blobs)
    method = flis(threshold)
    state = method.round(server, method.start(server), server.everyone)
    place = server.place
    for k in range(6):
        own = LocalSGD(**LOCAL).train(place.client(k, 1, {}), place.initial_model)
        assert np.array_equal(state.models[k], own)


def test_equal_models_stay_apart_above_1(make_federation):
    """Clients with the same data agree on everything, which is a reason to train together only up to threshold 1."""
    x, y = make_federation(clients=1).read(0, "train")
    twins = ilk.from_arrays({"a": (x, y, x, y), "b": (x, y, x, y)}, auxiliary=x)
    alike = np.stack([open_server(twins).initial_model] * 2)

    class Echo(Inline):
        def ask(self, task, messages, round):
            for answer in super().ask(task, messages, round):
                answer.message["model"] = alike[0] + np.float32(answer.client) * np.float32(1e-6)
                yield answer

    models = {}
    for threshold in (1.0, 1.01):
        engine = Echo()
        engine.open(Setting(twins, "mlp", 0))
        server = Server(engine.place.setting, engine, round=1)
        models[threshold] = flis(threshold).round(server, State(alike[:1]), server.everyone).models
    assert np.array_equal(models[1.0][0], models[1.0][1])
    assert not np.array_equal(models[1.01][0], models[1.01][1])


def test_a_round_by_hand(make_federation):
    federation = make_federation(groups=2, samples=60)
    server = open_server(federation, round=2)
    place = server.place
    started = server.initial_models(3)
    cohort = np.array([1, 2, 4, 5])
    threshold = 0.6
    after = flis(threshold).round(server, State(started), cohort).models
    trained = []
    for k in cohort:
        client = place.client(int(k), 2, {})
        x, y = client.data("validation")
        best = started[np.argmin([loss_of(place.net, model, x, y) for model in started])]
        trained.append(LocalSGD(**LOCAL).train(client, best))
    import torch

    said = np.stack([predict(place.net, model, torch.from_numpy(federation.read_auxiliary())) for model in trained])
    assert after.shape == (4, 579)
    sizes, joined = federation.sizes[cohort], 0
    for i in range(4):
        members = [j for j in range(4) if (said[i] == said[j]).mean() >= threshold]
        joined += len(members)
        expected = np.average(np.array(trained)[members], axis=0, weights=sizes[members])
        np.testing.assert_allclose(after[i], expected, rtol=1e-5, atol=1e-6)
    assert 4 < joined < 16, "neither alone nor all together, or this test shows nothing"


def test_by_test_accuracy_a_client_looks_at_its_test_data(make_federation):
    """As in the released code: where test labels mean something else, it takes the model that is right about them."""
    x, y = make_federation(clients=1, samples=90).read(0, "train")
    federation = ilk.from_arrays({"a": (x, y, x, (y + 1) % 3)}, auxiliary=x)
    client = open_server(federation).place.client(0, 1, {})
    trained = LocalSGD(epochs=20, lr=0.1).train(client, client.initial_model)
    shifted = trained.copy()  # the last layer: 3 x 64 weights and 3 biases, a row for each class
    shifted[-195:-3] = np.roll(trained[-195:-3].reshape(3, 64), 1, axis=0).ravel()
    shifted[-3:] = np.roll(trained[-3:], 1)
    models = {"models": np.stack([trained, shifted])}
    chosen = {c: make_method("flis-dc", {"choose": c}).training.begin(client, models)[1] for c in CHOICES}
    assert chosen == {"validation-loss": 0, "train-loss": 0, "test-accuracy": 1}


def test_clusters_with_the_same_members_are_kept_once_if_asked(blobs):
    """The same models for everybody, and fewer of them to send."""
    local = {"epochs": 5, "lr": 0.1}
    every = ilk.run(make_method("flis-dc", {"local": local}), blobs, rounds=3, engine="inline")
    merged = ilk.run(
        make_method("flis-dc", {"local": local, "merge_identical": True}), blobs, rounds=3, engine="inline"
    )
    assert len(merged.state.models) < len(every.state.models) == 6
    assert {m.tobytes() for m in merged.state.models} == {m.tobytes() for m in every.state.models}
    assert merged.history["accuracy_by_client"] == every.history["accuracy_by_client"]
    assert merged.ledger.total("down") < every.ledger.total("down")


def test_it_finds_who_contradicts_whom(make_federation):
    federation = make_federation(clients=6, samples=80, groups=2)
    method = make_method("flis-dc", {"local": {"epochs": 5, "lr": 0.1}})
    run = ilk.run(method, federation, rounds=3, engine="inline")
    fedavg = ilk.run(make_method("fedavg", {"local": {"epochs": 5, "lr": 0.1}}), federation, rounds=3, engine="inline")
    assert run.accuracy > fedavg.accuracy + 0.2
    for members in run.clusters:
        assert len({federation.groups[federation.ids.index(name)] for name in members}) == 1


def test_options(documented):
    assert documented(method_class("flis-dc")) == {
        "threshold": 0.5,
        "choose": "validation-loss",
        "merge_identical": False,
    }
