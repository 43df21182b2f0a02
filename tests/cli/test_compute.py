"""--compute: on the command line, in a file, and when a run is resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ilk.native import choose
from ilk.native.choose import sets

OUTSIDE = """
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
"""
built = pytest.mark.skipif(not sets(), reason="the kernels are not built")


def computed(folder):
    record = json.loads((Path(folder) / "run.json").read_text())
    return record["config"]["compute"], record["instruction_set"]


@built
def test_the_run_says_what_computed(fast):
    digests = [
        fast("run", "fedavg", "--compute", how, "--out", how, "--json").json["model_digest"]
        for how in ("auto", "native", "torch")
    ]
    assert [computed("auto"), computed("native"), computed("torch")] == [("native", sets()[0])] * 2 + [("torch", None)]
    assert digests[0] == digests[1] != digests[2]


@built
def test_in_a_file_and_for_a_comparison(fast):
    Path("e.toml").write_text('compute = "torch"\n')
    assert fast("compare", "solo", "fedavg", "--config", "e.toml", "--out", "c").code == 0
    assert computed("c/solo-seed0") == ("torch", None)


@built
def test_resume_under_another(fast, ilk):
    assert fast("run", "fedavg", "--out", "r").code == 0
    ended = ilk("run", "--resume", "r", "--compute", "torch")
    assert ended.code == 2
    assert "compute: stored 'auto', given 'torch'" in ended.err


@built
@pytest.mark.filterwarnings("default::ilk.errors.IlkWarning")
def test_resume_where_the_kernels_are_not_built_any_more(fast, ilk, monkeypatch):
    assert fast("run", "fedavg", "--out", "r").code == 0
    monkeypatch.setattr("ilk.native.choose.sets", list)
    choose._warn_once.cache_clear()
    ended = ilk("run", "--resume", "r")
    assert ended.code == 2
    assert "compute: stored 'native', given 'torch'" in ended.err
    assert ended.err.count("kernels are not built") == 1


def test_a_run_from_before_there_was_a_choice_was_pytorchs(fast, ilk):
    whole = fast("run", "fedavg", "--compute", "torch", "--out", "r", "--json").json["model_digest"]
    record = json.loads(Path("r/run.json").read_text())
    del record["config"]["compute"]
    Path("r/run.json").write_text(json.dumps(record))
    assert ilk("run", "--resume", "r", "--json").json["model_digest"] == whole


@built
def test_native_for_a_network_outside_the_family(fast, module):
    module("tanh_net", OUTSIDE)
    ended = fast("run", "fedavg", "--model", "tanh_net:make", "--compute", "native")
    assert (ended.code, ended.out) == (2, "")
    assert "--compute native is not possible, because it has a layer of type Tanh" in ended.err
    assert fast("run", "fedavg", "--model", "tanh_net:make", "--out", "r").code == 0
    assert computed("r") == ("torch", None)


def test_a_value_that_there_is_not(fast):
    ended = fast("run", "fedavg", "--compute", "gpu")
    assert ended.code == 2
    assert "--compute 'gpu' is not allowed. Allowed: 'auto' or 'native' or 'torch'" in ended.err
