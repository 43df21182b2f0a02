"""SOLO: everybody alone, and nothing crosses."""

from __future__ import annotations

import numpy as np

import ilk
from ilk.client import Place, Setting
from ilk.engines import one_thread
from ilk.methods import make_method
from ilk.runs.run import cohort_of
from ilk.tasks import LocalSGD

LOCAL = {"epochs": 2, "lr": 0.05}


def test_it_is_each_client_trained_alone(blobs):
    run = ilk.run(make_method("solo", {"local": LOCAL}), blobs, rounds=3, cohort=0.5, seed=2, engine="inline")
    place = Place(Setting(blobs, "mlp", seed=2))
    models = [place.initial_model] * 6
    with one_thread():  # as every run does: on several threads sums have other bits
        for round in (1, 2, 3):
            for k in cohort_of(round, 6, 0.5, 2):
                models[k] = LocalSGD(**LOCAL).train(place.client(int(k), round, {}), models[k])
    untouched = 0
    for memory, model in zip(run.memories, models, strict=True):
        if np.array_equal(model, place.initial_model):
            untouched += 1
            assert memory == {}
        else:
            assert np.array_equal(memory["model"], model)
    assert untouched < 4
    assert run.state.models.shape == (0, 579)


def test_who_trains_with_it_does_not_matter(blobs, make_federation):
    """A client ends in the same model whether there are others or not."""
    x, y = blobs.read(0, "train")
    clients = {"me": (x, y, x, y), "you": (x + 1, y, x, y)}
    together = ilk.run(make_method("solo", {"local": LOCAL}), ilk.from_arrays(clients), rounds=2, engine="inline")
    alone = ilk.run(
        make_method("solo", {"local": LOCAL}), ilk.from_arrays({"me": clients["me"]}), rounds=2, engine="inline"
    )
    assert np.array_equal(together.memories[0]["model"], alone.memories[0]["model"])


def test_everybody_is_a_cluster_and_nothing_is_sent(blobs):
    run = ilk.run(make_method("solo", {"local": LOCAL}), blobs, rounds=2, cohort=2, engine="inline")
    assert run.clusters == [[name] for name in blobs.ids]
    assert run.last["clusters"] == 6
    assert run.ledger.entries == []
