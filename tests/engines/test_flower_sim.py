"""The same runs over Flower: simulated nodes end in the same bits as this process and as workers."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ilk
from ilk.client import Setting
from ilk.engines import Workers, make_engine
from ilk.engines.flower.sim import FlowerSim
from ilk.errors import IlkError
from ilk.methods import make_method, method_class
from ilk.tasks import Fit, LocalSGD

# Ray lets go of files and processes without closing them, whenever Python happens to collect them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
METHODS = ("pacfl", "flis-dc", "ifca", "scaffold", "lg-fedavg", "cafa", "cfl", "ocfl")


@pytest.fixture(scope="module")
def engines():
    made = [FlowerSim(2), Workers(1)]
    yield made
    for engine in made:
        engine.close()
    gc.collect()  # what Ray left, before other tests hear of it


@pytest.fixture(scope="module")
def digits():
    return {n: ilk.federation("digits", split="rotate:2", clients=4, auxiliary=n) for n in (0, 20)}


@pytest.mark.parametrize("name", METHODS)
def test_flower_ends_in_the_same_bits(digits, engines, at_most, name):
    method = make_method(name, {"local": {"epochs": 1, "lr": 0.05}})
    federation = digits[20 if method_class(name).needs_auxiliary else 0]
    with at_most(180):
        inline, *others = [
            ilk.run(method, federation, rounds=3, cohort=0.75, engine=engine) for engine in ("inline", *engines)
        ]
    assert len(set(inline.history["loss"])) > 1
    for run in others:
        assert run.model_digest == inline.model_digest
        assert run.history["loss"] == inline.history["loss"]
        assert run.history["cluster_by_client"] == inline.history["cluster_by_client"]
        assert run.ledger.entries == inline.ledger.entries


def test_a_larger_federation_and_a_run_that_goes_on(digits, engines, make_federation, tmp_path, at_most):
    """More clients than nodes so far: the simulation is started anew. And what clients remember survives a checkpoint."""
    method = make_method("scaffold", {"local": {"epochs": 1}})
    federation = make_federation(clients=6)

    class Killed(BaseException):
        pass

    def stop(row):
        raise Killed

    with at_most(180):
        with pytest.raises(Killed):
            ilk.run(method, federation, rounds=2, engine=engines[0], out=tmp_path / "run", on_round=stop)
        run = ilk.run(method, federation, rounds=2, engine=engines[0], out=tmp_path / "run", resume=True)
    assert run.model_digest == ilk.run(method, federation, rounds=2, engine="inline").model_digest


def test_what_goes_wrong_at_a_node_is_said(digits, engines, at_most):
    with at_most(180):
        with pytest.raises(IlkError, match=r"Round 1: the training of client '.*' diverged"):
            ilk.run(make_method("fedavg", {"local": {"lr": 1e20}}), digits[0], rounds=1, engine=engines[0])
        engines[0].open(Setting(digits[0], "mlp", 0))
        with pytest.raises(RuntimeError, match=r"client 'c01' in round 4.*\n(.*\n)*ValueError: a model of 3 floats"):
            list(engines[0].ask(Fit(LocalSGD()), {1: {"models": np.zeros((1, 3), np.float32)}}, 4))


def test_a_closed_engine_says_so(at_most):
    engine = make_engine("flower-sim", 1)
    engine.close()
    with at_most(5), pytest.raises(RuntimeError, match="closed, or was never opened"):
        list(engine.ask(Fit(LocalSGD()), {0: {}}, 1))
