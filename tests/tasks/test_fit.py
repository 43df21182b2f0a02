"""Which model a client trains, and what it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ilk.client import Place, Setting
from ilk.params import Net
from ilk.tasks import Fit, FitOwn, LocalSGD
from ilk.tasks.score import loss_of

LOCAL = LocalSGD(epochs=1, lr=0.05)


@pytest.fixture
def place(blobs):
    return Place(Setting(blobs, "mlp", seed=0))


def trained_on(place, client):
    return LocalSGD(epochs=10, lr=0.1).train(place.client(client, 1, {}), place.initial_model)


def contrary(blobs):
    """The same federation, but the validation samples of everybody have another label than the training samples."""
    source = blobs.sources["arrays"]
    y = source.y_train.copy()
    for share in blobs.partition.shares:
        y[share.validation] = (y[share.validation] + 1) % 3
    return replace(blobs, sources={"arrays": replace(source, y_train=y)})


def test_one_model_is_trained_without_a_question(place):
    client = place.client(0, 1, {})
    model = place.initial_model
    asked = []
    client.data = lambda part: asked.append(part)
    assert Fit(LOCAL).begin(client, {"models": model[None]})[1] == 0
    assert asked == []


def test_the_least_validation_loss_is_chosen(place):
    models = np.stack([place.initial_model, trained_on(place, 0), place.initial_model * 3])
    client = place.client(0, 1, {})
    start, chosen = Fit(LOCAL).begin(client, {"models": models})
    x, y = client.data("validation")
    assert chosen == 1 == int(np.argmin([loss_of(place.net, m, x, y) for m in models]))
    assert np.array_equal(start, models[1])
    answer = Fit(LOCAL).answer(client, {"models": models})
    assert answer.keys() == {"model"}
    assert np.array_equal(answer["model"], LOCAL.train(client, models[1]))


def test_it_is_validation_data_that_decides_unless_train_is_asked_for(blobs):
    place = Place(Setting(contrary(blobs), "mlp", seed=0))
    good_on_train = trained_on(place, 0)
    models = np.stack([good_on_train, place.initial_model])
    client = place.client(0, 1, {})
    assert Fit(LOCAL).begin(client, {"models": models})[1] == 1
    assert Fit(LOCAL, choose="train-loss").begin(client, {"models": models})[1] == 0


def test_of_equal_models_the_first_is_chosen(place):
    good = trained_on(place, 0)
    models = np.stack([place.initial_model, good, good, good])
    assert Fit(LOCAL).begin(place.client(0, 1, {}), {"models": models})[1] == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("position", [0, 1])
def test_a_model_without_finite_numbers_is_never_chosen(place, bad, position):
    models = np.stack([place.initial_model * 5, place.initial_model * 5])
    models[position] = bad
    assert Fit(LOCAL).begin(place.client(0, 1, {}), {"models": models})[1] == 1 - position


def test_the_loss_is_the_mean_cross_entropy(place):
    place.net = Net(nn.Linear(2, 2, bias=False))
    x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0])
    identity = np.eye(2, dtype=np.float32).ravel()
    by_hand = (np.log(1 + np.exp(-1)) + np.log(1 + np.exp(2))) / 2
    assert loss_of(place.net, identity, x, y) == pytest.approx(by_hand, rel=1e-6)
    assert loss_of(place.net, identity * np.float32(np.nan), x, y) == np.inf


def test_fit_keeps_its_model_only_when_the_protocol_needs_it(blobs, place):
    for keep in (False, True):
        client = Place(Setting(blobs, "mlp", 0, keep_models=keep)).client(0, 1, {})
        answer = Fit(LOCAL).answer(client, {"models": place.initial_model[None]})
        assert list(client.kept) == (["model"] if keep else [])
        if keep:
            assert np.array_equal(client.kept["model"], answer["model"])


def test_fit_own_begins_with_the_initial_model_and_sends_nothing(place):
    client = place.client(1, 1, {})
    assert FitOwn(LOCAL).answer(client, {}) == {}
    assert np.array_equal(client.kept["model"], LOCAL.train(client, place.initial_model))


def test_fit_own_goes_on_from_its_memory(place):
    first = place.client(1, 1, {})
    FitOwn(LOCAL).answer(first, {})
    second = place.client(1, 2, first.kept)
    model, chosen = FitOwn(LOCAL).begin(second, {})
    assert chosen == -1
    assert np.array_equal(model, first.kept["model"])
    FitOwn(LOCAL).answer(second, {})
    assert np.array_equal(second.kept["model"], LOCAL.train(second, first.kept["model"]))
    assert not np.array_equal(second.kept["model"], first.kept["model"])
