from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ilk.errors
from ilk.data import dataset_cache, sources
from ilk.data.datasets import FACTS, catalogue, load
from ilk.data.formats import Split
from ilk.errors import IlkError
from ilk.randomness import stream


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ILK_CACHE", str(tmp_path / "cache"))
    for variable in ("ILK_DATA", "ILK_DOWNLOAD", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "cache" / "datasets"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "data"
    made.mkdir()
    write(made / "mnist.npz", seed=0)
    return made


def write(path: Path, *, seed: int, train: int = 50) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    made = {}
    for part, count in (("train", train), ("test", 20)):
        made[f"x_{part}"] = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        made[f"y_{part}"] = random.integers(0, 10, count, dtype=np.uint8)
    np.savez(path, **made)
    return made


def contents(dataset) -> list[np.ndarray]:
    return [dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test]


def assert_same(one, other) -> None:
    for left, right in zip(contents(one), contents(other), strict=True):
        np.testing.assert_array_equal(left, right)


def forbid_decoding(monkeypatch) -> None:
    def fail(files, expected):
        raise AssertionError("decoded again")

    monkeypatch.setattr(sources, "read_npz", fail)


# What is loaded


def test_load(folder):
    made = write(folder / "mnist.npz", seed=3)
    dataset = load("mnist", folder)
    np.testing.assert_array_equal(dataset.x_train[:, 0], made["x_train"])
    np.testing.assert_array_equal(dataset.y_test, made["y_test"])
    assert dataset.x_train.dtype == np.uint8
    assert dataset.y_train.dtype == np.int64
    assert (dataset.name, dataset.shape, dataset.classes, dataset.scale) == ("mnist", (1, 28, 28), 10, 255)
    assert (dataset.mean, dataset.std) == ((0.1307,), (0.3081,))
    assert dataset.origin == str(folder / "mnist.npz")
    for array in contents(dataset):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable


def test_the_folder_of_the_environment(folder, monkeypatch):
    monkeypatch.setenv("ILK_DATA", str(folder))
    assert load("mnist").origin == str(folder / "mnist.npz")


def test_unknown_names_get_the_nearest_one():
    with pytest.raises(IlkError, match="Did you mean 'fashion-mnist'"):
        load("fashion_mnist")


def test_nothing_is_downloaded_unasked(monkeypatch):
    monkeypatch.setattr(sources, "from_hub", lambda copy, expected: pytest.fail("the hub was asked"))
    with pytest.raises(IlkError, match="No data folder was given; the hub was not asked: no download was allowed"):
        load("cifar10")


def test_a_download_is_kept_and_needs_no_permission_later(monkeypatch):
    random = np.random.default_rng(0)
    split = Split(random.integers(0, 9, (4, 3, 32, 32), dtype=np.uint8), np.arange(4))
    asked = []
    monkeypatch.setattr(sources, "refusal", lambda download: None if download else "no")
    monkeypatch.setattr(sources, "from_hub", lambda copy, expected: asked.append(copy.repository) or (split, split))
    first = load("cifar10", download=True)
    assert first.origin == "Hugging Face hub: uoft-cs/cifar10"
    assert_same(load("cifar10"), first)
    assert asked == ["uoft-cs/cifar10"]
    assert {line.name: line.available_from for line in catalogue()}["cifar10"] == first.origin


def test_digits():
    dataset = load("digits")
    assert dataset.x_train.shape == (1437, 1, 8, 8)
    assert dataset.x_test.shape == (360, 1, 8, 8)
    assert dataset.x_train.max() == dataset.scale == 16
    assert set(dataset.y_test.tolist()) == set(range(10))
    scaled = dataset.x_train / dataset.scale
    assert scaled.mean() == pytest.approx(dataset.mean[0], abs=5e-5)
    assert scaled.std() == pytest.approx(dataset.std[0], abs=5e-5)


def test_digits_keep_image_and_label_together():
    from sklearn.datasets import load_digits

    bunch, dataset = load_digits(), load("digits")
    order = stream(0, "digits").permutation(1797)
    images, labels = (
        np.concatenate([dataset.x_train, dataset.x_test]),
        np.concatenate([dataset.y_train, dataset.y_test]),
    )
    np.testing.assert_array_equal(images[:, 0], bunch.images[order])
    np.testing.assert_array_equal(labels, bunch.target[order])


def test_every_data_set_has_its_facts_and_sources():
    assert set(sources.LAYOUTS) == set(FACTS) - {"digits"}
    for facts in FACTS.values():
        assert len(facts.mean) == len(facts.std) == facts.shape[0]


# The cache


def test_the_second_load_does_not_decode(folder, monkeypatch):
    first = load("mnist", folder)
    forbid_decoding(monkeypatch)
    assert_same(load("mnist", folder), first)


def test_a_changed_source_is_decoded_anew(folder):
    before = load("mnist", folder)
    write(folder / "mnist.npz", seed=1)
    os.utime(folder / "mnist.npz", (1, 1))
    after = load("mnist", folder)
    assert after.folder != before.folder
    assert not np.array_equal(after.x_train, before.x_train)


@pytest.mark.parametrize(
    ("file", "keep"), [("x_train.npy", 5000), ("y_test.npy", 0), ("x_test.npy", 50), ("origin.json", 3)]
)
def test_a_damaged_copy_is_made_anew(folder, cache_folder, file, keep):
    first = load("mnist", folder)
    expected = [array.copy() for array in contents(first)]
    where = first.folder / file
    data = where.read_bytes()
    where.unlink()  # what is mapped stays as it is
    where.write_bytes(data[:keep])
    again = load("mnist", folder)
    for left, right in zip(contents(again), expected, strict=True):
        np.testing.assert_array_equal(left, right)
    assert [path.name for path in cache_folder.iterdir()] == [first.folder.name]


def test_a_copy_with_other_arrays_is_made_anew(folder):
    first = load("mnist", folder)
    (first.folder / "x_test.npy").unlink()
    np.save(first.folder / "x_test.npy", np.zeros((20, 1, 32, 32), np.uint8))
    assert load("mnist", folder).x_test.shape == (20, 1, 28, 28)


def test_a_kill_in_the_middle_leaves_nothing(folder, cache_folder, monkeypatch):
    save, saved = np.save, []

    def interrupted(path, array):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(path)
        save(path, array)

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load("mnist", folder)
    assert len(saved) == 2
    assert list(cache_folder.iterdir()) == []
    assert len(load("mnist", folder).x_train) == 50


def test_what_a_killed_process_left_is_swept_a_day_later(folder, cache_folder):
    old, young = cache_folder / ".mnist-old.part", cache_folder / ".mnist-young.part"
    old.mkdir(parents=True)
    young.mkdir()
    os.utime(old, (1, 1))
    load("mnist", folder)
    assert not old.exists()
    assert young.exists()


def test_a_full_disk_is_a_warning(folder, cache_folder, monkeypatch):
    def full(path, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.warns(UserWarning, match=r"No space left.*Set ILK_CACHE"):
        dataset = load("mnist", folder)
    assert dataset.folder is None
    assert len(dataset.x_train) == 50
    assert list(cache_folder.iterdir()) == []
    assert_same(pickle.loads(pickle.dumps(dataset)), dataset)


def test_a_cache_that_cannot_be_made_is_a_warning(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ILK_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be kept"):
        dataset = load("mnist", folder)
    assert not dataset.x_train.flags.writeable


def test_who_comes_second_takes_the_copy_of_the_first(folder, cache_folder):
    first = load("mnist", folder)
    expected = FACTS["mnist"].expected
    splits, _ = dataset_cache.open_copy(first.folder, expected)
    inode = (first.folder / "x_train.npy").stat().st_ino
    dataset_cache.store_copy(first.folder, splits, "elsewhere", expected)
    assert (first.folder / "x_train.npy").stat().st_ino == inode
    assert list(cache_folder.iterdir()) == [first.folder]


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    source = str(Path(ilk.errors.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once(folder, cache_folder, tmp_path):
    made = write(folder / "mnist.npz", seed=5, train=4000)
    code = """
import pathlib, sys, time
from ilk.data.datasets import load
pathlib.Path(sys.argv[2]).touch()
deadline = time.monotonic() + 30
while not all(pathlib.Path(path).exists() for path in sys.argv[2:4]) and time.monotonic() < deadline:
    pass
print(load("mnist", sys.argv[1]).x_train.sum(dtype=int))
"""
    flags = [str(tmp_path / "one"), str(tmp_path / "two")]
    both = [start(code, str(folder), *flags), start(code, str(folder), *reversed(flags))]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs == [f"{made['x_train'].sum(dtype=int)}\n"] * 2
    assert len(list(cache_folder.iterdir())) == 1


# Sending to worker processes


def test_a_sent_data_set_is_small_and_maps_the_same_files(folder, tmp_path):
    dataset = load("mnist", folder)
    sent = pickle.dumps(dataset)
    assert len(sent) < 1000
    arrived = pickle.loads(sent)
    assert_same(arrived, dataset)
    assert isinstance(arrived.x_train, np.memmap)
    assert arrived.x_train.filename == dataset.x_train.filename
    assert (arrived.origin, arrived.folder) == (dataset.origin, dataset.folder)
    (tmp_path / "sent").write_bytes(sent)
    code = """
import pathlib, pickle, sys
print(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()).x_train.sum(dtype=int))
"""
    output, _ = start(code, str(tmp_path / "sent")).communicate(timeout=60)
    assert output == f"{dataset.x_train.sum(dtype=int)}\n"


def test_digits_are_sent_by_name():
    dataset = load("digits")
    sent = pickle.dumps(dataset)
    assert len(sent) < 1000
    assert pickle.loads(sent) is dataset


def test_a_changed_copy_is_sent_as_it_is(folder):
    for dataset in (load("digits"), load("mnist", folder)):
        changed = replace(dataset, x_train=dataset.x_train[5:9], y_train=dataset.y_train[5:9])
        assert_same(pickle.loads(pickle.dumps(changed)), changed)


def test_a_copy_that_vanished_before_it_arrived(folder):
    dataset = load("mnist", folder)
    sent = pickle.dumps(dataset)
    (dataset.folder / "x_test.npy").unlink()
    with pytest.raises(IlkError, match="gone or damaged"):
        pickle.loads(sent)


# The catalogue


def test_catalogue(folder, monkeypatch):
    forbid_decoding(monkeypatch)
    lines = {line.name: line for line in catalogue(folder)}
    assert list(lines) == list(FACTS)
    assert lines["mnist"].available_from == str(folder / "mnist.npz")
    assert lines["digits"].available_from == "scikit-learn"
    assert lines["svhn"].available_from is None
    assert (lines["svhn"].train, lines["svhn"].test) == (73_257, 26_032)
    assert "zalando-datasets/fashion_mnist" in lines["fashion-mnist"].how_to_get
