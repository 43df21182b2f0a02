"""`ilk run`: its options, its JSON, its configuration file, and what a person sees."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from ilk.checked import plain
from ilk.cli.arguments import assignments, number
from ilk.methods import registry

KEYS = {
    "run": str,
    "method": str,
    "options": dict,
    "data": str,
    "split": str,
    "clients": int,
    "rounds": int,
    "seed": int,
    "engine": str,
    "protocol": str,
    "test_policy": str,
    "leaks": list,
    "accuracy": float,
    "accuracy_by_client": dict,
    "clusters": list,
    "true_groups": list,
    "ari": float,
    "rand_index": float,
    "ami": float,
    "homogeneity": float,
    "completeness": float,
    "v_measure": float,
    "bytes_up": int,
    "bytes_down": int,
    "paper_mb": float,
    "seconds": float,
    "model_digest": str,
}
MODEL = 4 * (64 * 64 + 64 + 64 * 10 + 10)  # bytes of the MLP for the digits


# ---- --json


@pytest.mark.parametrize("method", [*registry()])
def test_json_of_every_method(fast, method):
    """Keys and types as documented; the numbers agree with each other."""
    found = fast("run", method, "--json", "--out", "r").json
    assert list(found) == list(KEYS)
    assert {key: type(value) for key, value in found.items()} == KEYS
    ids = ["c00", "c01", "c02", "c03"]
    assert (found["run"], found["method"], found["data"], found["split"]) == ("r", method, "digits", "rotate:4")
    assert (found["clients"], found["rounds"], found["seed"], found["engine"]) == (4, 2, 0, "inline")
    assert (found["protocol"], found["test_policy"]) == ("served", "own")
    assert list(found["accuracy_by_client"]) == ids
    assert all(0 <= accuracy <= 1 for accuracy in found["accuracy_by_client"].values())
    assert found["accuracy"] == pytest.approx(np.mean([*found["accuracy_by_client"].values()]))
    assert sorted(client for cluster in found["clusters"] for client in cluster) == ids
    assert found["true_groups"] == [[client] for client in ids]
    assert -1 <= found["ari"] <= 1
    assert found["seconds"] > 0
    assert re.fullmatch("[0-9a-f]{64}", found["model_digest"])
    own = plain(registry()[method]().local)  # what was not given is the method's own
    assert found["options"]["local"] == {**own, "epochs": 1, "batch_size": 50}
    assert json.loads(Path("r/result.json").read_text()) == found


def test_json_goes_alone_to_stdout(fast):
    ended = fast("run", "fedavg", "--json")
    assert ended.json["method"] == "fedavg"
    assert "accuracy" in ended.err
    assert "digits, rotate:4, 4 clients, 2 rounds" in ended.err


@pytest.mark.parametrize("when", ["import", "build", "forward"])
def test_json_stays_alone_when_the_model_prints(fast, module, when):
    module(
        f"talks_{when}",
        f"from torch import nn\nwhen = {when!r}\n"
        "if when == 'import': print('SAID')\n"
        "class Net(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        if when == 'forward': print('SAID')\n"
        "        return super().forward(x.flatten(1))\n"
        "def make(classes):\n"
        "    if when == 'build': print('SAID')\n"
        "    return Net(64, classes)\n",
    )
    ended = fast("run", "fedavg", "--json", "--model", f"talks_{when}:make")
    assert ended.json["clients"] == 4
    assert "SAID" in ended.err


def test_bytes(fast):
    found = fast("run", "fedavg", "--json").json
    assert found["bytes_up"] == found["bytes_down"] == 2 * 4 * MODEL
    assert found["paper_mb"] == pytest.approx(2 * 2 * MODEL * 8 / 1e6)
    assert fast("run", "solo", "--json").json["bytes_up"] == 0


def test_no_true_groups(fast):
    found = fast("run", "fedavg", "--json", "--split", "dirichlet:1").json
    assert found["true_groups"] is None
    assert found["ari"] is None


# ---- options


@pytest.mark.parametrize(("cohort", "asked"), [("1", 1), ("3", 3), ("4", 4), ("1.0", 4), ("0.5", 2), ("0.01", 1)])
def test_cohort_is_a_number_or_a_fraction(fast, cohort, asked):
    assert fast("run", "fedavg", "--json", "--cohort", cohort).json["bytes_up"] == 2 * asked * MODEL


def test_options_arrive(fast):
    found = fast(
        *("run", "fedavg", "--json", "--lr", "0.05", "--momentum", "0", "--epochs", "2", "--batch-size", "30"),
        *("--set", "local.weight_decay=0.001", "--rounds", "1", "--seed", "3", "--split", "label-skew:.50"),
        *("--test-policy", "label-set", "--protocol", "after-local", "--model", "mlp", "--clients", "5"),
    ).json
    assert found["options"]["local"] == {
        **{"epochs": 2, "batch_size": 30, "lr": 0.05, "momentum": 0.0, "weight_decay": 0.001}
    }
    assert (found["rounds"], found["seed"], found["split"], found["clients"]) == (1, 3, "label-skew:0.5", 5)
    assert (found["test_policy"], found["protocol"]) == ("label-set", "after-local")


@pytest.mark.parametrize(
    "changed",
    [
        *(["--seed", "1"], ["--lr", "0.02"], ["--momentum", "0"], ["--epochs", "2"], ["--batch-size", "20"]),
        *(["--rounds", "3"], ["--cohort", "2"], ["--split", "iid"], ["--clients", "5"], ["--test-policy", "holdout"]),
        *(["--auxiliary", "40"], ["--set", "local.weight_decay=0.1"]),
    ],
    ids=" ".join,
)
def test_what_matters_changes_the_digest(fast, changed):
    first, again = (fast("run", "fedavg", "--json").json["model_digest"] for _ in range(2))
    assert first == again
    assert fast("run", "fedavg", "--json", *changed).json["model_digest"] != first


@pytest.mark.parametrize("ignored", [["--protocol", "after-local"], ["--eval-every", "2"]], ids=" ".join)
def test_looking_does_not_change_the_digest(fast, ignored):
    first = fast("run", "fedavg", "--json").json["model_digest"]
    assert fast("run", "fedavg", "--json", *ignored).json["model_digest"] == first


def test_protocols_measure_different_things(fast):
    protocols = ["served", "after-local", "last-held", "global"]
    found = [fast("run", "fedavg", "--json", "--protocol", name).json for name in protocols]
    assert len({run["accuracy"] for run in found}) == 4
    assert len(set(found[3]["accuracy_by_client"].values())) == 1  # one model, one test set


def test_workers_end_in_the_same_digest(fast):
    inline = fast("run", "fedavg", "--json").json
    workers = fast("run", "fedavg", "--json", "--engine", "workers", "--workers", "1").json
    assert workers["engine"] == "workers"
    assert workers["model_digest"] == inline["model_digest"]


def test_seeds(fast):
    found = fast("run", "fedavg", "--json", "--seeds", "0,1,2", "--out", "r").json["runs"]
    assert [run["seed"] for run in found] == [0, 1, 2]
    assert [run["run"] for run in found] == [f"r/fedavg-seed{seed}" for seed in range(3)]
    assert len({run["model_digest"] for run in found}) == 3
    assert fast("run", "fedavg", "--json", "--seed", "2").json["model_digest"] == found[2]["model_digest"]


def test_threshold_of_flis(fast):
    nobody = fast("run", "flis-dc", "--json", "--set", "threshold=1.1").json
    everybody = fast("run", "flis-dc", "--json", "--set", "flis-dc.threshold=0").json
    assert nobody["options"]["threshold"] == 1.1
    assert len(everybody["clusters"]) <= len(nobody["clusters"])
    assert everybody["model_digest"] != nobody["model_digest"]


def test_own_model(fast, module):
    module("own_net", "from torch import nn\ndef make(shape, classes):\n"
           "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))\n")  # fmt: skip
    assert fast("run", "fedavg", "--json", "--model", "own_net:make").json["bytes_up"] == 2 * 4 * 4 * 650


def test_default_folders_do_not_collide(fast):
    first, second = (fast("run", "solo", "--json").json["run"] for _ in range(2))
    assert first != second
    assert Path(first, "run.json").exists()
    assert Path(second, "run.json").exists()


# ---- resume


def test_resume_of_a_finished_run_shows_it_again(fast, ilk):
    first = fast("run", "fedavg", "--json", "--out", "r").json
    lines = Path("r/history.jsonl").read_text()
    assert ilk("run", "--resume", "r", "--engine", "inline", "--json").json == first
    assert Path("r/history.jsonl").read_text() == lines


def test_resume_with_the_same_options(fast):
    first = fast("run", "fedavg", "--json", "--out", "r").json
    assert fast("run", "fedavg", "--json", "--resume", "r").json == first


# ---- configuration


def config(text, name="c.toml"):
    Path(name).write_text(text)
    return name


SMALL = 'clients = 4\nrounds = 2\nepochs = 1\nengine = "inline"\n'


@pytest.mark.parametrize("name", ["batch-size", "batch_size"])
def test_config(fast, ilk, name):
    path = config(SMALL + f'method = "fedavg"\n{name} = 50\nout = "there"\ntest-policy = "own"\n')
    found = ilk("run", "--config", path, "--json").json
    assert found["run"] == "there"
    assert found["model_digest"] == fast("run", "fedavg", "--json").json["model_digest"]


def test_command_line_wins_over_config(ilk):
    path = config(SMALL + 'method = "solo"\nlr = 0.5\nseed = 4\n[set]\nthreshold = 0.9\n"local.weight_decay" = 0.01\n')
    line = ["--lr", "0.02", "--rounds", "1", "--set", "threshold=0.7"]
    found = ilk("run", "flis-dc", "--config", path, *line, "--json").json
    assert (found["method"], found["rounds"], found["seed"], found["clients"]) == ("flis-dc", 1, 4, 4)
    assert found["options"]["threshold"] == 0.7
    assert (found["options"]["local"]["lr"], found["options"]["local"]["weight_decay"]) == (0.02, 0.01)


@pytest.mark.parametrize("seeds", ["seeds = [0, 1]", 'seeds = "0,1"'])
def test_seeds_in_config(ilk, seeds):
    path = config(SMALL + 'method = "solo"\n' + seeds)
    assert [run["seed"] for run in ilk("run", "--config", path, "--json").json["runs"]] == [0, 1]


def test_json_in_config(ilk):
    path = config(SMALL + 'method = "solo"\njson = true\n')
    assert ilk("run", "--config", path).json["method"] == "solo"


# ---- what a person sees


def test_one_log_line_a_round(fast):
    ended = fast("run", "fedavg", "--rounds", "3", "--out", "r")
    lines = ended.err.splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"fedavg seed 0 round {n}/3" for n in (1, 2, 3)]
    assert all(re.search(r"accuracy +\d+\.\d %.* 1 cluster .* MB", line) for line in lines)
    assert "\x1b" not in ended.out + ended.err
    assert "r" in ended.out.split()


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_numbers_are_whole_in_any_terminal(fast, monkeypatch, columns):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    ended = fast("run", "fedavg", "--out", "r")
    found = json.loads(Path("r/result.json").read_text())
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", ended.out)
    worst = min(found["accuracy_by_client"].values())
    assert f"{100 * found['accuracy']:.1f} %" in shown
    assert f"{100 * worst:.1f} %" in shown
    assert "…" not in shown


def test_live_progress(fast, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", fast("run", "fedavg").err)
    assert re.search(r"fedavg .*2/2 accuracy +\d+\.\d % +1 cluster +\d+\.\d MB +\d+:\d+", shown)
    assert "round 1/2" not in shown


def test_no_color(fast, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    ended = fast("run", "fedavg")
    codes = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", ended.out + ended.err) for code in codes.split(";")}
    assert not {code for code in codes if code and (30 <= int(code) <= 49 or int(code) >= 90)}


def test_words_for_the_global_protocol_name_its_test_set_only(fast):
    shown = fast("run", "fedavg", "--protocol", "global").out
    assert "belongs to nobody" in shown
    assert "class proportions" not in " ".join(shown.split())


def test_demo_asks_for_the_main_job(ilk, monkeypatch):
    asked = []
    monkeypatch.setattr("ilk.cli.demo.play", lambda what, several: asked.append((what, several)))
    ended = ilk("demo", "--json")
    assert (ended.code, ended.out) == (0, "")
    assert "four" in ended.err
    ((what, several),) = asked
    assert what.methods == ["solo", "fedavg", "pacfl"]
    assert what.values == {"data": "digits", "split": "rotate:4", "clients": 40}
    assert what.playing.json
    assert several


# ---- values as a person writes them


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-3", -3), ("1.0", 1.0), (".5", 0.5), ("1e-3", 0.001), ("true", "true"), ("none", "none"), ("1_0", "1_0"),
     ("٣", "٣"), ("nan", "nan"), ("", "")],
)  # fmt: skip
def test_number(text, value):
    assert number(text) == value
    assert type(number(text)) is type(value)


def test_too_large_a_number_is_infinite_and_so_refused_as_any_other():
    assert number("1e400") == math.inf


def test_assignments():
    assert assignments(["a=1", "flis-dc.b=x=y", " c-d = 2 "]) == {"a": 1, "flis-dc.b": "x=y", "c-d": 2}
