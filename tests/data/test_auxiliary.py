"""The server's own inputs: held out, from a file, or (a leak) from the test split."""

import warnings

import numpy as np
import pytest

import ilk
from ilk.data.auxiliary import from_file, from_test, wanted
from ilk.data.datasets import load
from ilk.errors import IlkError, IlkWarning
from ilk.methods.flis_hc import FLISHierarchical

FAST = ilk.LocalSGD(epochs=1)


@pytest.fixture
def file(tmp_path):
    """Write arrays into a file and return its path."""

    def write(**arrays):
        path = tmp_path / "own.npz"
        np.savez(path, **arrays)
        return path

    return write


IMAGES = np.random.default_rng(0).integers(0, 17, size=(30, 8, 8), dtype=np.uint8)


def test_what_is_asked_for():
    assert [wanted(given).count for given in (0, 7, "7", "test:20")] == [0, 7, 7, 20]
    assert [wanted(given).split for given in (7, "7", "test:20")] == ["train", "train", "test"]
    assert wanted("a/b.npz").file.name == "b.npz"
    for wrong in ("x", "7.5", "test:", "test:-1", "train:5", "validation:5", "a.csv", "٣"):
        with pytest.raises(IlkError, match=r"not understood\. Allowed: a whole number"):
            wanted(wrong)


def test_the_released_code_takes_the_last_of_each_class_but_one():
    labels = np.array([0, 1, 0, 0, 1, 1, 1, 0])
    assert from_test(labels, 2, 4).tolist() == [2, 3, 4, 5]  # of 0: 0 2 3 7; of 1: 1 4 5 6


@pytest.mark.parametrize("count", [3, 8, 100])
def test_the_test_split_must_have_enough_of_each_class(count):
    with pytest.raises(IlkError, match=r"equally many of each of the 2 classes.*Give test:\d"):
        from_test(np.array([0, 1, 0, 0, 1, 1, 1, 0]), 2, count)


def test_test_samples_are_the_servers_and_the_clients(tmp_path):
    made = ilk.federation("digits", split="iid", clients=4, auxiliary="test:100")
    assert made.auxiliary_from == "test"
    assert made.auxiliary_count == 100
    dataset = load("digits")
    positions = made.partition.auxiliary
    np.testing.assert_array_equal(np.bincount(dataset.y_test[positions]), np.full(10, 10))
    expected = (dataset.x_test[positions] / np.float32(16) - np.float32(0.3053)) / np.float32(0.3761)
    np.testing.assert_allclose(made.read_auxiliary(), expected, rtol=1e-6)
    assert sum(map(len, (s.train for s in made.partition.shares))) + sum(
        map(len, (s.validation for s in made.partition.shares))
    ) == len(dataset.y_train), "nothing is held out of training"
    made.partition.save(tmp_path / "p.json")
    again = ilk.federation(split=tmp_path / "p.json")
    assert again.fingerprint == made.fingerprint
    assert again.fingerprint != ilk.federation("digits", split="iid", clients=4).fingerprint


def test_a_partition_file_from_before_knows_only_of_training(tmp_path):
    made = ilk.federation("digits", split="iid", clients=4, auxiliary=20)
    made.partition.save(tmp_path / "p.json")
    lines = (tmp_path / "p.json").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "auxiliary_from" in line)
    assert at == len(lines) - 2
    old = "\n".join([*lines[:at], lines[at + 1]]).replace("},\n}", "}\n}")
    (tmp_path / "old.json").write_text(old)
    assert ilk.federation(split=tmp_path / "old.json").fingerprint == made.fingerprint


def test_a_leak_is_said_by_who_uses_it_and_by_nobody_else():
    leaky = ilk.federation("digits", split="iid", clients=4, auxiliary="test:20")
    with pytest.warns(IlkWarning, match="flis-hc: the server decides by samples of the test split"):
        run = ilk.run(FLISHierarchical(local=FAST), leaky, rounds=1, engine="inline")
    assert (run.config["auxiliary"], run.config["auxiliary_from"]) == (20, "test")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ilk.run(ilk.FedAvg(local=FAST), leaky, rounds=1, engine="inline")


def test_the_servers_file_is_what_the_server_looks_at(file):
    path = file(x=IMAGES)
    with_file = ilk.federation("digits", split="iid", clients=4, auxiliary=path)
    assert (with_file.auxiliary_from, with_file.auxiliary_count) == ("file", 30)
    expected = (IMAGES[:, None] / np.float32(16) - np.float32(0.3053)) / np.float32(0.3761)
    np.testing.assert_allclose(with_file.read_auxiliary(), expected, rtol=1e-6)
    assert with_file.partition == ilk.federation("digits", split="iid", clients=4).partition, "the split is as without"
    run = ilk.run(FLISHierarchical(local=FAST), with_file, rounds=1, engine="inline")
    assert run.state.predictions.shape == (4, 30)
    other = ilk.federation("digits", split="iid", clients=4, auxiliary=file(x=IMAGES[::-1]))
    assert other.fingerprint != with_file.fingerprint


def test_colour_images_come_channel_last_and_are_turned(file):
    cifar = load("digits").__class__(
        "toy", np.zeros((1, 3, 4, 5)), np.zeros(1), np.zeros((1, 3, 4, 5)), np.zeros(1), 2, 255.0, (), (), "here"
    )
    x = np.random.default_rng(0).integers(0, 256, size=(6, 4, 5, 3))
    np.testing.assert_array_equal(from_file(file(x=x), cifar), x.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y": IMAGES}, "has no x; it has y"),
        ({"x": IMAGES[:, :7]}, "shape 30 x 7 x 8"),
        ({"x": IMAGES[:0]}, "shape 0 x 8 x 8"),
        ({"x": IMAGES.astype(str)}, "type <U"),
        ({"x": IMAGES.astype(float) * 2}, "values from 0 to 32"),
        ({"x": IMAGES * np.float32(-1)}, "values from -16 to"),
        ({"x": IMAGES * np.nan}, "values from nan"),
        ({"x": IMAGES / 16}, "looks scaled to 0..1 already"),
    ],
)
def test_what_a_file_must_hold(file, arrays, says):
    with pytest.raises(IlkError, match=says) as error:
        ilk.federation("digits", split="iid", clients=4, auxiliary=file(**arrays))
    assert "N images of 8 x 8, values from 0 to 16 as in 'digits'" in str(error.value)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(IlkError, match="There is no file"):
        ilk.federation("digits", auxiliary=tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(IlkError, match=r"not a whole \.npz archive"):
        ilk.federation("digits", auxiliary=tmp_path / "text.npz")
