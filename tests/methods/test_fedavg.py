"""FedAvg's rounds by hand."""

from __future__ import annotations

import numpy as np
import pytest

import ilk
from ilk.client import Place, Setting
from ilk.methods import make_method
from ilk.randomness import stream
from ilk.runs.run import cohort_of
from ilk.tasks import LocalSGD

LOCAL = {"epochs": 2, "lr": 0.05}


@pytest.mark.parametrize("cohort", [1.0, 0.5, 1])
def test_the_model_is_the_mean_weighted_by_samples(blobs, cohort):
    run = ilk.run(make_method("fedavg", {"local": LOCAL}), blobs, rounds=3, cohort=cohort, engine="inline")
    place = Place(Setting(blobs, "mlp", seed=0))
    model = place.initial_model
    for round in (1, 2, 3):
        members = [int(k) for k in cohort_of(round, 6, cohort, 0)]
        trained = [LocalSGD(**LOCAL).train(place.client(k, round, {}), model) for k in members]
        sizes = np.array([len(blobs.partition.shares[k].train) for k in members])
        mean = sum(n * theta.astype(np.float64) for n, theta in zip(sizes, trained, strict=True)) / sizes.sum()
        model = mean.astype(np.float32)
    np.testing.assert_allclose(run.state.models, model[None], rtol=1e-5, atol=1e-6)
    assert run.state.models.dtype == np.float32
    assert len(set(blobs.sizes)) == 6, "equal sizes would not show a wrong weight"
    assert run.clusters == [list(blobs.ids)]


def test_only_the_answers_that_came_are_averaged(blobs, losing):
    run = ilk.run(make_method("fedavg", {"local": LOCAL}), blobs, rounds=1, engine=losing(share=0.5))
    came = [k for k in range(6) if stream(99, "lost", 1, k).random() >= 0.5]
    assert 0 < len(came) < 6
    place = Place(Setting(blobs, "mlp", seed=0))
    trained = [LocalSGD(**LOCAL).train(place.client(k, 1, {}), place.initial_model) for k in came]
    np.testing.assert_allclose(
        run.state.models[0], np.average(trained, axis=0, weights=blobs.sizes[came]), rtol=1e-5, atol=1e-6
    )
