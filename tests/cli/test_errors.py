"""Bad input: exit code 2, one short message that says what was given, what is allowed and what to do; no traceback."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ilk import Run
from ilk.data.partition import Partition
from ilk.errors import IlkError
from ilk.runs.run import cohort_of


def refused(ended, *fragments):
    """Check that a command was refused as it should be."""
    assert ended.code == 2, ended
    assert ended.out == ""
    last = ended.err[ended.err.rindex("Error: ") :]
    assert "Traceback" not in ended.err
    assert "mistake in ilk" not in ended.err
    assert "\nError: " not in last
    assert len(last) < 800
    for fragment in fragments:
        assert fragment in last, f"{fragment!r} is not in {last!r}"


# ---- a table of bad command lines: what is given, and what the message must contain

NUMBER = [
    *[(f"--rounds {bad}", [bad, "whole number", ">= 1"]) for bad in ("0", "-1", "1.5", "two", "nan", "inf", "true")],
    *[(f"--clients {bad}", [bad, "whole number", ">= 1"]) for bad in ("0", "-3", "2.5", "many")],
    *[(f"--epochs {bad}", [bad, "whole number", ">= 1"]) for bad in ("0", "-1", "nan")],
    *[(f"--batch-size {bad}", [bad, "whole number", ">= 1"]) for bad in ("0", "-5", "x")],
    *[(f"--eval-every {bad}", [bad, "whole number", ">= 1"]) for bad in ("0", "0.5")],
    *[(f"--seed {bad}", [bad, "whole number", ">= 0"]) for bad in ("-1", "1.5", "x")],
    *[(f"--auxiliary {bad}", [bad, "whole number", ">= 0"]) for bad in ("-1", "1.5")],
    *[(f"--lr {bad}", [bad, "number", "> 0"]) for bad in ("0", "-1", "nan", "inf", "-inf", "abc", "true")],
    *[(f"--momentum {bad}", [bad, "number", ">= 0 and < 1"]) for bad in ("1", "-0.1", "nan")],
    *[(f"--cohort {bad}", [bad, ">= 1", "> 0 and <= 1"]) for bad in ("0", "0.0", "1.5", "-0.1", "-2", "nan", "true")],
    *[(f"--workers {bad}", [bad, "whole number", ">= 1"]) for bad in ("0", "-1", "x", "1.5", "true")],
    *[(f"--{name}=", [name]) for name in ("rounds", "lr", "clients", "cohort", "batch-size")],
    ("--rounds 1e400", ["rounds", "inf"]),
    ("--rounds 1_0", ["1_0", "whole number"]),
    ("--rounds ٣", ["٣", "whole number"]),
    ("--lr none", ["none", "number"]),
    ("--cohort 50", ["50", "4"]),
    ("--clients 5000", ["5000 clients", "1437", "at most"]),
    ("--auxiliary 5000", ["5000 auxiliary", "1437", "at most 1433"]),
    ("--seeds 0,x", ["seeds", "'x'", "whole number"]),
    ("--seeds 0,-1", ["seeds", "-1", ">= 0"]),
    ("--seeds 0.5", ["seeds", "0.5", "whole number"]),
    ("--seeds ,", ["seeds"]),
    ("--seeds=", ["seeds"]),
    ("--seeds 0,0", ["seeds", "0", "twice"]),
    ("--set local.lr=1e300", ["lr", "1e+300"]),
]

NAME = [
    ("--data digitz", ["'digitz'", "Did you mean 'digits'", "fashion-mnist"]),
    ("--data=", ["data"]),
    ("--data ./nowhere", ["nowhere", "folder"]),
    ("--split rotat:4", ["'rotat'", "Did you mean 'rotate'", "label-skew"]),
    ("--split=", ["split"]),
    ("--model lenet6", ["'lenet6'", "Did you mean 'lenet5'", "mlp", "module:callable"]),
    ("--model=", ["model", "mlp"]),
    ("--model lenet5", ["lenet5", "16x16", "8, 8"]),
    ("--engine inlin", ["'inlin'", "Did you mean 'inline'", "workers"]),
    ("--engine=", ["engine", "workers"]),
    ("--protocol servd", ["'servd'", "'served'", "'last-held'"]),
    ("--test-policy owwn", ["'owwn'", "'own'", "'label-set'", "'holdout'"]),
    ("--rouns 1", ["--rouns", "--rounds"]),
    ("--engine inline --workers 2", ["inline", "workers"]),
]

SPLIT = [
    ("--split rotate", ["rotate", "gives none", "1, 2 or 4", "rotate:4"]),
    ("--split rotate:3", ["'3'", "1, 2 or 4"]),
    ("--split rotate:x", ["'x'", "1, 2 or 4"]),
    ("--split iid:3", ["iid:3", "no parameter"]),
    ("--split label-skew:0", ["'0'", "above 0 and at most 1"]),
    ("--split label-skew:1.1", ["'1.1'", "above 0 and at most 1"]),
    ("--split label-skew:nan", ["'nan'", "above 0 and at most 1"]),
    ("--split dirichlet:0", ["'0'", "above 0"]),
    ("--split dirichlet:inf", ["'inf'", "above 0"]),
    ("--split dirichlet:1e400", ["'1e400'", "above 0"]),
    ("--split dirichlet:0.001 --clients 40", ["dirichlet:0.001", "larger ALPHA"]),
    ("--split permute-labels:0", ["'0'", "1 or more"]),
    ("--split permute-labels:11", ["11", "10 classes", "1 to 10"]),
    ("--split mix4", ["usps", "ILK_DATA"]),
    ("--data mnist", ["mnist", "mnist.npz", "ILK_DATA", "--data-dir", "--download"]),
    ("--data mnist --data-dir nowhere", ["nowhere", "does not exist"]),
    ("--split label-skew:0.1 --clients 1437 --auxiliary 0", ["Client 'c", "training sample"]),
]

SET = [
    ("--set threshold", ["threshold", "option=value"]),
    ("--set =3", ["=3", "option=value"]),
    ("--set foo=1", ["'foo'", "flis-dc", "threshold"]),
    ("--set threshhold=1", ["'threshhold'", "Did you mean 'threshold'"]),
    ("--set threshold=abc", ["threshold", "'abc'", "number", ">= 0"]),
    ("--set threshold=-1", ["threshold", "-1", ">= 0"]),
    ("--set threshold=nan", ["threshold", "nan", ">= 0"]),
    ("--set threshold=1e400", ["threshold", ">= 0"]),
    ("--set threshold=", ["threshold", "''", ">= 0"]),
    ("--set local.lr=-1", ["local.lr", "-1", "> 0"]),
    ("--set local=3", ["'local'", "--lr"]),
    ("--set flis-dc=3", ["'flis-dc'"]),
    ("--set flis-dc.foo=3", ["'foo'", "threshold"]),
    ("--set fedavg.threshold=3", ["fedavg"]),
    ("--set lr=0.1", ["--lr"]),
]


@pytest.mark.parametrize(
    ("line", "fragments"), [*NUMBER, *NAME, *SPLIT, *SET], ids=lambda v: v if type(v) is str else ""
)
def test_run(fast, line, fragments):  # fmt: skip
    refused(fast("run", "flis-dc", *line.split()), *fragments)


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ("run", ["No method", "ilk methods"]),
        ("compare", ["No method", "ilk methods"]),
        ("run fedavgg", ["'fedavgg'", "Did you mean 'fedavg'", "solo"]),
        ("run FEDAVG", ["'FEDAVG'", "Did you mean 'fedavg'"]),
        ("run solo fedavg", ["one method", "ilk compare"]),
        ("compare solo fedavh", ["'fedavh'", "Did you mean 'fedavg'"]),
        ("methods fedavgg", ["'fedavgg'", "Did you mean 'fedavg'"]),
        ("runn solo", ["runn", "run"]),
        ("data splitt", ["splitt", "split"]),
        ("data split x.txt", ["x.txt", ".json"]),
        ("data split", ["Missing argument"]),
        ("data split /proc/x.json", ["/proc/x.json", "cannot be written"]),
        ("data split y.json --clients 0", ["at least 1", "0"]),
        ("data split y.json --clients x", ["clients", "integer"]),
        ("data split y.json --split roate:4", ["'roate'", "Did you mean 'rotate'"]),
        ("data split y.json --data digitz", ["'digitz'", "Did you mean 'digits'"]),
        ("data split y.json --test-policy owm", ["'owm'", "Did you mean 'own'"]),
        ("data split y.json --auxiliary -1", ["-1", "0 or more"]),
        ("data split y.json --seed -1", ["seed", "-1"]),
        ("data --data-dir nowhere", ["nowhere", "does not exist"]),
        ("run solo --config nowhere.toml", ["nowhere.toml"]),
        ("run solo --config .", ["configuration"]),
    ],
    ids=lambda v: v if type(v) is str else "",
)
def test_commands(ilk, line, fragments):
    refused(ilk(*line.split()), *fragments)


def test_flis_without_data_of_the_server(fast):
    refused(fast("run", "flis-dc", "--auxiliary", "0"), "flis-dc", "--auxiliary 100")


def test_compare_of_a_method_with_itself(fast):
    refused(fast("compare", "solo", "solo", "--out", "r"), "solo", "twice")
    assert not Path("r").exists()


@pytest.mark.parametrize(
    "line",
    [
        *("--cohort 50", "--model lenet6", "--model nowhere:net", "--model lenet5", "--split rotate:3", "--lr 0"),
        *("--data digitz", "--set foo=1", "--engine inlin"),
    ],
)
def test_the_same_folder_can_be_used_after_a_refusal(fast, line):
    assert fast("run", "solo", "--out", "r", *line.split()).code == 2
    assert fast("run", "solo", "--out", "r").code == 0


def test_a_mistake_of_ours_is_not_blamed_on_the_user(fast, monkeypatch):
    monkeypatch.setattr("ilk.runs.play.federation_of", lambda experiment, seed: 1 / 0)
    ended = fast("run", "solo", "--out", "r")
    assert (ended.code, ended.out) == (1, "")
    assert "ZeroDivisionError" in ended.err
    assert "ILK_DEBUG=1" in ended.err
    assert "Traceback" not in ended.err


# ---- configuration files


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("rouds = 1", ["'rouds'", "Did you mean 'rounds'", "c.toml"]),
        ('rounds = "x"', ["rounds", "'x'", "whole number"]),
        ("rounds = [1]", ["rounds", "[1]", "whole number"]),
        ("lr = nan", ["lr", "nan", "> 0"]),
        ("lr = 2020-01-01", ["lr", "number"]),
        ("data = 3", ["data", "3", "text"]),
        ("out = 3", ["out", "3"]),
        ("engine = 3", ["engine", "3", "workers"]),
        ("workers = true", ["workers", "True", "whole number"]),
        ('workers = "2"', ["workers", "'2'", "whole number"]),
        ('download = "maybe"', ["download", "'maybe'", "true or false"]),
        ("set = 3", ["set", "3"]),
        ("[set]\nthreshold = 'x'", ["threshold", "'x'", "number"]),
        ("[set]\nthreshhold = 1", ["'threshhold'", "Did you mean 'threshold'"]),
        ("[set.flis-dc]\nthreshold = 'x'", ["threshold", "'x'"]),
        ("seeds = 0.5", ["seeds", "0.5"]),
        ("seeds = [0, 0]", ["seeds", "twice"]),
        ("batch-size = 5\nbatch_size = 6", ["batch_size", "twice"]),
        ("[run]\nrounds = 1", ["'run'", "c.toml"]),
        ("this is not = = toml", ["c.toml", "not TOML", "line"]),
        ("rounds = 1\nrounds = 2", ["c.toml", "not TOML"]),
        ("methods = 3", ["methods", "3"]),
        ("method = 3", ["method", "3"]),
    ],
    ids=lambda v: v if type(v) is str else "",
)
def test_config(ilk, text, fragments):
    small = {"clients": 4, "epochs": 1, "rounds": 1, "engine": '"inline"'}
    lines = [f"{name} = {value}" for name, value in small.items() if name not in text]
    Path("c.toml").write_text("\n".join([*lines, text]))
    method = [] if text.startswith("method") else ["flis-dc"]
    refused(ilk("run", *method, "--config", "c.toml"), *fragments)


def test_config_that_is_not_text(ilk):
    Path("c.toml").write_bytes('method = "sol\xf6"'.encode("latin1"))
    refused(ilk("run", "--config", "c.toml"), "c.toml")


# ---- data


def made(count=40, side=28):
    random = np.random.default_rng(0)
    return {
        f"{kind}_{part}": random.integers(0, 256, (count, side, side), dtype=np.uint8)
        if kind == "x"
        else (np.arange(count) % 10).astype(np.uint8)
        for part in ("train", "test")
        for kind in ("x", "y")
    }


@pytest.mark.parametrize(
    ("damage", "fragments"),
    [
        ("shape", ["27", "28"]),
        ("kind", ["float32", "uint8"]),
        ("labels", ["11", "0 to 9"]),
        ("missing array", ["y_test", "it has"]),
        ("uneven", ["40", "39"]),
        ("truncated", ["cut short"]),
        ("empty", ["empty"]),
        ("text", ["archive"]),
        ("flipped bytes", ["CRC"]),
    ],
    ids=lambda v: v if type(v) is str else "",
)
def test_data_file(fast, monkeypatch, damage, fragments):
    arrays = made(side=27 if damage == "shape" else 28)
    if damage == "kind":
        arrays["x_train"] = arrays["x_train"].astype(np.float32)
    if damage == "labels":
        arrays["y_train"][0] = 11
    if damage == "missing array":
        del arrays["y_test"]
    if damage == "uneven":
        arrays["y_train"] = arrays["y_train"][:-1]
    path = Path("D/mnist.npz")
    path.parent.mkdir()
    np.savez(path, **arrays)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    if damage == "empty":
        path.write_bytes(b"")
    if damage == "text":
        path.write_text("hello")
    if damage == "flipped bytes":
        content[3000:3100] = bytes(100)
        path.write_bytes(content)
    monkeypatch.setenv("ILK_DATA", "D")
    refused(fast("run", "solo", "--data", "mnist", "--out", "r"), "mnist.npz", *fragments)
    assert not Path("r").exists()


def client(count=30, width=5):
    return {"x": np.random.default_rng(0).normal(size=(count, width)), "y": np.arange(count) % 3}


def changed(**arrays):
    return {**client(), **arrays}


def with_first(name, value, **kinds):
    arrays = client()
    arrays[name] = arrays[name].astype(kinds.get("kind", arrays[name].dtype))
    arrays[name][0] = value
    return arrays


FOLDERS = {
    "no file": ({}, [".npz", "x and y"]),
    "only of nobody": ({"_test": client()}, [".npz", "x and y"]),
    "wrong keys": ({"a": {"X": np.ones(3), "Y": np.ones(3)}}, ["a.npz", "X, Y", "x and y"]),
    "NaN": ({"a": with_first("x", np.nan), "b": client()}, ["'a'", "finite"]),
    "too large for float32": ({"a": with_first("x", 1e300), "b": client()}, ["'a'", "finite"]),
    "complex": ({"a": with_first("x", 1j, kind=complex), "b": client()}, ["'a'", "complex"]),
    "texts": ({"a": changed(x=client()["x"].astype(str))}, ["'a'", "numbers"]),
    "float labels": ({"a": changed(y=client()["y"] * 1.0)}, ["'a'", "float64", "whole numbers"]),
    "negative labels": ({"a": with_first("y", -1)}, ["'a'", "-1", "from 0"]),
    "one huge label": ({"a": with_first("y", 10**12)}, ["'a'", "1000000000000"]),
    "other shape": ({"a": client(), "b": client(width=6)}, ["one shape", "(5,)", "(6,)"]),
    "one sample": ({"a": client(1), "b": client()}, ["'a'", "1 sample"]),
    "no sample": ({"a": client(0), "b": client()}, ["'a'", "0 samples"]),
    "no features": ({"a": client(width=0)}, ["'a'", "(30, 0)"]),
    "uneven": ({"a": changed(y=np.arange(29) % 3)}, ["'a'", "(30, 5)", "(29,)"]),
    "scalars": ({"a": {"x": np.float32(1), "y": np.int64(1)}}, ["'a'", "shape ()"]),
    "test of other shape": (
        {"a": {"x_train": np.ones((5, 3)), "y_train": np.arange(5), "x_test": np.ones((2, 4)), "y_test": np.arange(2)}},
        ["'a'", "3", "4"],
    ),
    "global test without y": ({"a": client(), "_test": {"x": np.ones((3, 5))}}, ["_test.npz", "y"]),
    "global test of other shape": ({"a": client(), "_test": client(width=7)}, ["test", "(5,)", "(7,)"]),
    "server's data of other shape": ({"a": client(), "_auxiliary": {"x": np.ones((3, 9))}}, ["auxiliary", "5", "9"]),
    "server's data without x": ({"a": client(), "_auxiliary": {"z": np.ones((3, 5))}}, ["_auxiliary.npz", "x"]),
    "server's data with NaN": ({"a": client(), "_auxiliary": {"x": np.full((3, 5), np.nan)}}, ["auxiliary", "finite"]),
    "server's data are texts": ({"a": client(), "_auxiliary": {"x": np.array([["a"] * 5])}}, ["auxiliary", "numbers"]),
}


@pytest.mark.filterwarnings("default:overflow encountered in cast", "default:Casting complex values")
@pytest.mark.parametrize("what", FOLDERS)
def test_folder(ilk, what):
    files, fragments = FOLDERS[what]
    Path("F").mkdir()
    for name, arrays in files.items():
        np.savez(f"F/{name}.npz", **arrays)
    small = ["--rounds", "1", "--epochs", "1", "--engine", "inline", "--out", "r"]
    refused(ilk("run", "fedavg", "--data", "./F", *small), *fragments)
    assert not Path("r").exists()


@pytest.mark.parametrize("content", ["text", "truncated", "npy", "objects", "folder"])
def test_folder_with_a_bad_file(ilk, content):
    path = Path("F/a.npz")
    path.parent.mkdir()
    if content == "text":
        path.write_text("hello")
    if content == "truncated":
        np.savez(path, **client())
        path.write_bytes(path.read_bytes()[:300])
    if content == "npy":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    if content == "objects":
        np.savez(path, x=np.array([{}], dtype=object), y=np.arange(1))
    if content == "folder":
        path.mkdir()
    ended = ilk("run", "fedavg", "--data", "./F", "--engine", "inline")
    refused(ended, "F/a.npz")
    assert "unsafe" not in ended.err  # NumPy's advice to load pickles is not ours


def test_split_options_do_not_go_with_a_folder(ilk):
    Path("F").mkdir()
    np.savez("F/a.npz", **client())
    small = ["--rounds", "1", "--epochs", "1", "--engine", "inline"]
    refused(ilk("run", "fedavg", "--data", "F", *small, "--clients", "7"), "clients", "7")
    refused(ilk("run", "fedavg", "--data", "F", *small, "--split", "iid"), "split", "iid")
    refused(ilk("run", "fedavg", "--data", "F", *small, "--test-policy", "own"), "test", "own")


# ---- partition files


@pytest.fixture
def partition(ilk):
    """Write a partition file with some fields changed."""
    ilk("data", "split", "p.json", "--clients", "4")

    def change(edit):
        fields = json.loads(Path("p.json").read_text())
        edit(fields)
        Path("p.json").write_text(json.dumps(fields))

    return change


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ("--split nowhere.json", ["nowhere.json", "no partition file"]),
        ("--split p.json --clients 5", ["p.json", "clients 4", "5"]),
        ("--split p.json --clients 4 --data mnist", ["p.json", "'digits'", "'mnist'"]),
        ("--split p.json --clients 4 --test-policy holdout", ["p.json", "'own'", "'holdout'"]),
        ("--split p.json --clients 4 --auxiliary 20", ["p.json", "auxiliary", "20"]),
    ],
    ids=lambda v: v if type(v) is str else "",
)
def test_partition_conflicts(fast, partition, line, fragments):
    refused(fast("run", "fedavg", *line.split()), *fragments)


def test_partition_truncated(fast, partition):
    Path("p.json").write_text(Path("p.json").read_text()[:2000])
    refused(fast("run", "fedavg", "--split", "p.json"), "p.json", "not JSON")


@pytest.mark.parametrize(
    ("edit", "fragments"),
    [
        (lambda fields: fields["fingerprints"].update(digits="0" * 64), ["digits", "labels differ"]),
        (lambda fields: fields.update(classes="x"), ["p.json", "classes"]),
        (lambda fields: fields.update(shares=[]), ["no clients"]),
        (lambda fields: fields["shares"][0].update(test=[]), ["c00", "test"]),
        (lambda fields: fields["shares"][0].update(train=[], validation=[]), ["c00", "train"]),
        (lambda fields: fields["shares"][0].update(train=[99999]), ["c00", "99999"]),
    ],
    ids=["other data", "wrong type", "no clients", "no test", "no train", "out of range"],
)
def test_partition_damaged(fast, partition, edit, fragments):
    partition(edit)
    ended = fast("run", "fedavg", "--split", "p.json")
    refused(ended, *fragments)
    assert "diverged" not in ended.err


def test_partition_file_is_never_overwritten(ilk, partition):
    before = Partition.load("p.json")
    refused(ilk("data", "split", "p.json", "--clients", "9"), "p.json", "exists already")
    assert Partition.load("p.json") == before


# ---- the run folder


def test_out_holds_a_run(fast):
    assert fast("run", "solo", "--out", "r").code == 0
    before = Path("r/run.json").read_text()
    refused(fast("run", "solo", "--out", "r"), "r holds a run already", "--resume r", "--out")
    refused(fast("compare", "solo", "fedavg", "--out", "r"), "r holds", "--resume r", "--out")
    assert Path("r/run.json").read_text() == before


def test_out_holds_a_comparison(fast):
    assert fast("compare", "solo", "fedavg", "--out", "r").code == 0
    refused(fast("run", "solo", "--out", "r"), "holds a run already", "--resume r")
    refused(fast("compare", "solo", "fedavg", "--out", "r"), "holds a run already", "--resume r")


@pytest.mark.parametrize("command", [["run", "solo"], ["compare", "solo", "fedavg"]], ids=" ".join)
def test_out_is_not_a_folder_for_it(fast, command):
    Path("file").write_text("x")
    Path("full").mkdir()
    Path("full/x").write_text("x")
    refused(fast(*command, "--out", "file"), "file", "--out")
    refused(fast(*command, "--out", "file/below"), "file/below", "cannot be written")
    refused(fast(*command, "--out", "full"), "full", "not an empty folder", "--out")
    refused(fast(*command, "--out", "/proc/ilk"), "/proc/ilk", "cannot be written")
    assert Path("file").read_text() == "x"
    assert [path.name for path in Path("full").iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("line", "fragments"),
    [
        ("--lr 0.5", ["lr", "0.5"]),
        ("--rounds 3", ["rounds", "2", "3"]),
        ("--seed 1", ["seed", "0", "1"]),
        ("--clients 5", ["clients", "4", "5"]),
        ("--split iid", ["split", "iid"]),
        ("--set local.weight_decay=1", ["local.weight_decay"]),
        ("--seeds 0,1", ["seeds", "[0, 1]"]),
        ("--cohort 1", ["cohort", "1.0", "1"]),  # one client, not all of them
        ("--lr nan", ["lr", "nan"]),
        ("--out elsewhere", ["--out", "--resume"]),
    ],
    ids=lambda v: v if type(v) is str else "",
)
def test_resume_with_another_configuration(fast, ilk, line, fragments):
    assert fast("run", "fedavg", "--out", "r").code == 0
    before = Path("r/result.json").read_text()
    refused(ilk("run", "--resume", "r", "--engine", "inline", *line.split()), *fragments)
    assert Path("r/result.json").read_text() == before


def test_resume_with_another_method(fast, ilk):
    assert fast("run", "fedavg", "--out", "r").code == 0
    refused(ilk("run", "solo", "--resume", "r", "--engine", "inline"), "fedavg", "solo", "another configuration")


def test_resume_of_no_run(ilk):
    Path("empty").mkdir()
    Path("file").write_text("x")
    for name in ("nowhere", "empty", "file"):
        refused(ilk("run", "--resume", name, "--engine", "inline"), name)


@pytest.mark.parametrize(
    ("file", "damage", "fragments"),
    [
        ("run.json", lambda content: content[:100], ["run.json"]),
        ("checkpoint.safetensors", lambda content: content[:100], ["checkpoint"]),
        ("history.jsonl", lambda content: b"", ["history.jsonl", "shorter"]),
        ("history.jsonl", lambda content: b"x" * 50 + content[50:], ["history.jsonl"]),
        ("ledger.jsonl", lambda content: b"x" * 50 + content[50:], ["ledger.jsonl"]),
    ],
    ids=["run cut", "checkpoint cut", "history emptied", "history garbled", "ledger garbled"],
)
def test_resume_of_a_damaged_run(fast, ilk, file, damage, fragments):
    assert fast("run", "fedavg", "--out", "r").code == 0
    path = Path("r", file)
    path.write_bytes(damage(path.read_bytes()))
    refused(ilk("run", "--resume", "r", "--engine", "inline"), *fragments)


def test_another_process_works_on_it(fast, ilk):
    import fcntl

    assert fast("run", "fedavg", "--out", "r").code == 0
    with Path("r/run.json").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused(ilk("run", "--resume", "r", "--engine", "inline"), "r", "another process")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 300 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk]).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)  # lazily: a failed test may still hold a file


def test_full_disk(fast, ilk, small_disk):
    whole = fast("run", "fedavg", "--rounds", "3", "--json").json["model_digest"]
    filler = small_disk / "filler"
    filler.write_bytes(bytes(240 * 1024))  # room for one checkpoint, not for the next beside it
    ended = fast("run", "fedavg", "--rounds", "3", "--out", small_disk / "r")
    refused(ended, "disk is full", f"--resume {small_disk / 'r'}")
    filler.unlink()
    found = ilk("run", "--resume", small_disk / "r", "--engine", "inline", "--json").json
    assert found["model_digest"] == whole


@pytest.mark.parametrize("room", [0, 4, 12])
def test_disk_that_is_full_from_the_beginning(fast, ilk, small_disk, room):
    filler = small_disk / "filler"
    filler.write_bytes(bytes((300 - 4 - room) * 1024))
    refused(fast("run", "fedavg", "--out", small_disk / "r"), "space")
    filler.unlink()
    begun = (small_disk / "r/run.json").exists()
    again = ["--resume", small_disk / "r"] if begun else ["--out", small_disk / "r"]
    assert fast("run", "fedavg", *again).code == 0


# ---- the user's own model

MODELS = {
    "raises": ("def make(): raise RuntimeError('boom')", ["RuntimeError", "boom"]),
    "raises a KeyError": ("def make(): return {}['x']", ["KeyError"]),
    "returns nothing": ("def make(): pass", ["NoneType", "nn.Module"]),
    "is a number": ("make = 3", ["callable"]),
    "wants more": ("def make(shape, classes, width): pass", ["width"]),
    "too few outputs": ("def make(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))", ["3", "10"]),
    "too many outputs": ("def make(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 30))", ["30", "10"]),
    "other inputs": ("def make(): return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))", ["(1, 8, 8)"]),
    "no parameters": ("def make(): return nn.Flatten()", ["parameter"]),
    "float64": ("def make(): return nn.Linear(64, 10).double()", ["float32"]),
    "raises in forward": (
        "class make(nn.Linear):\n    def __init__(self): super().__init__(64, 10)\n"
        "    def forward(self, x): raise KeyError('lost')",
        ["lost"],
    ),
    "returns a tuple": (
        "class make(nn.Linear):\n    def __init__(self): super().__init__(64, 10)\n"
        "    def forward(self, x): return (x,)",
        ["tuple"],
    ),
    "exits": ("def make(): raise SystemExit(3)", ["3"]),
    "import raises": ("raise RuntimeError('at import')", ["at import"]),
    "syntax": ("def make(:", ["syntax"]),
    "import of another": ("import no_such_module_anywhere", ["no_such_module_anywhere"]),
}


@pytest.mark.parametrize("what", MODELS)
def test_model(fast, module, what):
    text, fragments = MODELS[what]
    name = "net_" + what.replace(" ", "_")
    module(name, f"from torch import nn\n{text}\n")
    refused(fast("run", "fedavg", "--model", f"{name}:make", "--out", "r"), f"{name}:make", *fragments)
    assert not Path("r").exists()


@pytest.mark.parametrize("name", ["no_such_module:net", "torch:no_such_thing", "torch:", ":", ":x", "..:x"])
def test_model_that_does_not_exist(fast, name):
    refused(fast("run", "fedavg", "--model", name), f"'{name}'", "module:callable")


def test_model_that_fails_in_a_worker(fast, module):
    module("net_in_worker", "def make(): raise RuntimeError('boom')")
    ended = fast("run", "fedavg", "--model", "net_in_worker:make", "--engine", "workers", "--workers", "1")
    refused(ended, "net_in_worker:make", "boom")


# ---- training that diverges


@pytest.mark.parametrize("method", ["solo", "fedavg", "flis-dc", "pacfl"])
def test_divergence_in_the_first_round(fast, ilk, method):
    ended = fast("run", method, "--lr", "1e6", "--epochs", "5", "--out", "r")
    refused(ended, "Round 1", "client 'c0", "1000000", "--lr")
    assert ilk("run", "--resume", "r", "--engine", "inline").err == ended.err  # the folder is whole


def test_divergence_keeps_the_last_good_checkpoint(ilk):
    seed = next(s for s in range(99) if [cohort_of(r, 2, 1, s)[0] for r in (1, 2, 3)] == [0, 0, 1])
    Path("F").mkdir()
    np.savez("F/good.npz", **client())
    np.savez("F/wild.npz", **changed(x=client()["x"] * 1e25))
    small = ["--rounds", "4", "--epochs", "2", "--engine", "inline", "--cohort", "1", "--seed", seed, "--out", "r"]
    refused(ilk("run", "fedavg", "--data", "F", *small), "Round 3", "'wild'")
    assert Run.load("r").history["round"] == [1, 2]
    refused(ilk("run", "--resume", "r", "--engine", "inline"), "Round 3", "'wild'")
    assert Run.load("r").history["round"] == [1, 2]


def test_a_run_without_a_whole_round_says_so(fast):
    fast("run", "fedavg", "--lr", "1e6", "--epochs", "5", "--out", "r")
    with pytest.raises(IlkError, match="no finished round"):
        _ = Run.load("r").accuracy
