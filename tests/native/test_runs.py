"""Whole runs: natively the same as with PyTorch, to rounding; and the same bits on every engine and after a resume."""

from __future__ import annotations

import numpy as np
import pytest

import ilk
from ilk.client import Place, Setting
from ilk.errors import IlkError
from ilk.methods import make_method
from ilk.tasks import LocalSGD
from ilk.tasks.score import loss_of, predict

PLAYED = {"rounds": 3, "seed": 1}


def method(name):
    return make_method(name, {"local": {"epochs": 2, "lr": 0.01}})


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fednova", "ifca", "solo", "flis-dc", "lg-fedavg"])
def test_natively_as_with_pytorch(name, blobs):
    native, torch = (
        ilk.run(method(name), blobs, engine="inline", compute=how, **PLAYED) for how in ("native", "torch")
    )
    assert [native.record["config"]["compute"], torch.record["config"]["compute"]] == ["native", "torch"]
    assert native.record["instruction_set"] in ("avx512", "avx2", "baseline")
    assert torch.record["instruction_set"] is None
    assert native.history[-1]["accuracy"] == pytest.approx(torch.history[-1]["accuracy"], abs=0.01)
    np.testing.assert_allclose(native.state.models, torch.state.models, atol=1e-5)
    assert native.model_digest != torch.model_digest, "two ways to round"


def test_the_same_bits_on_every_engine_and_after_a_resume(blobs, tmp_path):
    whole = ilk.run(method("scaffold"), blobs, engine="inline", compute="auto", **PLAYED)
    assert whole.record["config"]["compute"] == "native"
    workers = ilk.run(method("scaffold"), blobs, engine="workers", workers=2, compute="native", **PLAYED)

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(ilk.IlkError):
        ilk.run(method("scaffold"), blobs, engine="inline", out=tmp_path / "run", on_round=stop, **PLAYED)
    resumed = ilk.run(method("scaffold"), blobs, engine="inline", out=tmp_path / "run", resume=True, **PLAYED)
    assert whole.model_digest == workers.model_digest == resumed.model_digest


def test_resume_under_another_compute_is_refused(blobs, tmp_path):
    ilk.run(method("fedavg"), blobs, engine="inline", out=tmp_path / "run", **PLAYED)
    with pytest.raises(IlkError, match="compute: stored 'native', given 'torch'"):
        ilk.run(method("fedavg"), blobs, engine="inline", compute="torch", out=tmp_path / "run", resume=True, **PLAYED)


def test_divergence_is_refused_with_the_same_words(blobs):
    words = []
    for how in ("native", "torch"):
        client = Place(Setting(blobs, "mlp", 0, compute=how)).client(2, 4, {})
        with pytest.raises(IlkError, match=r"Round 4: the training of client 'client-2' diverged") as caught:
            LocalSGD(epochs=20, lr=1e20).train(client, client.initial_model)
        words.append(str(caught.value))
    assert words[0] == words[1]


def test_training_and_scores_of_one_client(blobs):
    native, torch = (Place(Setting(blobs, "mlp", 0, compute=how)).client(0, 1, {}) for how in ("native", "torch"))
    assert native.net.native
    assert torch.net.native is None
    local = LocalSGD(epochs=3, batch_size=7, weight_decay=0.01)
    shift = np.linspace(-0.1, 0.1, native.net.trainable).astype(np.float32)
    options = {"proximal": 0.3, "shift": shift, "drift": shift[::-1].copy()}
    one, other = (local.train(client, client.initial_model, **options) for client in (native, torch))
    np.testing.assert_allclose(one, other, atol=1e-6)
    x, y = native.data("test")
    assert loss_of(native.net, one, x, y) == pytest.approx(loss_of(torch.net, one, x, y), rel=1e-5)
    assert np.array_equal(predict(native.net, one, x), predict(torch.net, one, x))
    assert loss_of(native.net, one * np.float32(np.nan), x, y) == np.inf
