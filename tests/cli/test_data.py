"""`ilk data` and `ilk data split`; data sets, partition files and folders of the user's as `ilk run` takes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ilk.data.datasets import FACTS
from ilk.data.federation import federation
from ilk.data.partition import Partition


@pytest.fixture
def mnist():
    """A made-up MNIST in a folder of its own."""
    random = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 80), ("test", 40)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)
    Path("D").mkdir()
    np.savez("D/mnist.npz", **arrays)
    return "D"


@pytest.fixture
def folder():
    """A folder with one file a client."""
    random = np.random.default_rng(0)
    Path("F").mkdir()
    for name, count in (("anna", 30), ("ben", 20), ("cleo", 40)):
        np.savez(f"F/{name}.npz", x=random.normal(size=(count, 5)), y=np.arange(count) % 3)
    return Path("F")


# ---- the list


def test_list(ilk):
    shown = ilk("data").out
    assert all(name in shown for name in FACTS)
    assert "here: scikit-learn" in shown
    assert "ylecun/mnist" in shown
    assert "fashion_mnist.npz" in shown


def test_list_json(ilk):
    found = {row["name"]: row for row in ilk("data", "--json").json["data"]}
    assert [*found] == [*FACTS]
    assert found["digits"]["available_from"]
    assert found["mnist"]["available_from"] is None
    assert "ILK_DATA" in found["mnist"]["how_to_get"]
    assert (found["mnist"]["shape"], found["mnist"]["classes"]) == ([1, 28, 28], 10)


@pytest.mark.parametrize("way", ["option", "environment"])
def test_list_sees_the_users_folder(ilk, mnist, monkeypatch, way):
    if way == "environment":
        monkeypatch.setenv("ILK_DATA", mnist)
    given = ["--data-dir", mnist] if way == "option" else []
    found = {row["name"]: row["available_from"] for row in ilk("data", *given, "--json").json["data"]}
    assert found["mnist"] == "D/mnist.npz"
    assert found["svhn"] is None


@pytest.mark.parametrize("way", ["option", "environment"])
def test_run_on_the_users_files(fast, mnist, monkeypatch, way):
    if way == "environment":
        monkeypatch.setenv("ILK_DATA", mnist)
    given = ["--data-dir", mnist] if way == "option" else []
    found = fast("run", "fedavg", "--data", "mnist", *given, "--json").json
    assert found["data"] == "mnist"
    assert found["bytes_up"] == 2 * 4 * 4 * 44426  # LeNet-5


# ---- frozen partitions


def test_split_writes_what_federation_makes(ilk):
    options = ["--split", "label-skew:0.3", "--clients", "6", "--seed", "5", "--test-policy", "holdout"]
    found = ilk("data", "split", "p.json", *options, "--auxiliary", "30", "--json").json
    made = federation(
        "digits", split="label-skew:0.3", clients=6, seed=5, test_policy="holdout", auxiliary=30
    )  # fmt: skip
    assert Partition.load("p.json") == made.partition
    assert found == {
        "file": "p.json",
        "clients": 6,
        "sizes": made.sizes.tolist(),
        "tests": [len(share.test) for share in made.partition.shares],
    }


def test_split_tells_how_to_use_it(ilk):
    ended = ilk("data", "split", "p.json", "--clients", "4")
    assert ended.code == 0
    assert "digits by rotate:4 among 4 clients" in ended.out
    assert "ilk run METHOD --split p.json" in ended.out


def test_a_frozen_partition_is_the_same_federation(fast, ilk):
    ilk("data", "split", "p.json", "--clients", "4")
    frozen = fast("run", "fedavg", "--split", "p.json", "--json", "--out", "r").json
    direct = fast("run", "fedavg", "--json").json
    assert frozen["model_digest"] == direct["model_digest"]
    assert (frozen["data"], frozen["split"], frozen["clients"]) == ("digits", "rotate:4", 4)
    assert Partition.load("r/partition.json") == Partition.load("p.json")


def test_the_clients_of_a_partition_file_need_not_be_told(ilk):
    ilk("data", "split", "p.json", "--clients", "3")
    found = ilk("run", "solo", "--split", "p.json", "--rounds", "1", "--epochs", "1", "--engine", "inline", "--json")
    assert found.json["clients"] == 3


def test_a_partition_file_with_auxiliary_data_serves_flis(fast, ilk):
    ilk("data", "split", "p.json", "--clients", "4", "--auxiliary", "50")
    fast("run", "flis-dc", "--split", "p.json", "--json", "--out", "r")
    assert json.loads(Path("r/run.json").read_text())["config"]["auxiliary"] == 50


def test_a_partition_of_another_seed_can_be_run_with_any_seed(fast, ilk):
    ilk("data", "split", "p.json", "--clients", "4")
    fast("run", "fedavg", "--split", "p.json", "--seed", "7", "--json", "--out", "r")
    stored = json.loads(Path("r/run.json").read_text())["config"]
    assert (stored["seed"], stored["split_seed"]) == (7, 0)


# ---- a folder of the user's


def test_folder(ilk, folder):
    small = ["--rounds", "1", "--epochs", "1", "--engine", "inline"]
    found = ilk("run", "fedavg", "--data", folder, *small, "--json").json
    assert [*found["accuracy_by_client"]] == ["anna", "ben", "cleo"]
    assert found["true_groups"] is None
    assert found["test_policy"] == "holdout"
    assert found["bytes_up"] == 3 * 4 * (5 * 64 + 64 + 64 * 3 + 3)


def test_folder_with_data_of_nobody(ilk, folder):
    random = np.random.default_rng(1)
    np.savez(folder / "_test.npz", x=random.normal(size=(9, 5)), y=np.arange(9) % 3)
    np.savez(folder / "_auxiliary.npz", x=random.normal(size=(12, 5)))
    small = ["--rounds", "1", "--epochs", "1", "--engine", "inline"]
    found = ilk("run", "flis-dc", "--data", folder, *small, "--protocol", "global", "--json").json
    assert found["clients"] == 3
    assert all(round(9 * accuracy, 6) % 1 == 0 for accuracy in found["accuracy_by_client"].values())


def test_a_client_that_knows_one_class_only(ilk, folder):
    np.savez(folder / "dora.npz", x=np.ones((10, 5)), y=np.ones(10, np.int64))
    small = ["--rounds", "1", "--epochs", "1", "--engine", "inline"]
    assert ilk("run", "fedavg", "--data", folder, *small, "--json").json["clients"] == 4


def test_a_file_with_test_data(ilk, folder):
    for path in folder.iterdir():
        path.unlink()
    x, y = np.eye(4), np.arange(4)
    np.savez(folder / "a.npz", x_train=x, y_train=y, x_test=x[:3], y_test=y[:3])
    small = ["--rounds", "1", "--epochs", "1", "--engine", "inline"]
    found = ilk("run", "fedavg", "--data", folder, *small, "--json").json
    assert found["test_policy"] == "given"
    assert round(3 * found["accuracy"], 6) % 1 == 0
