"""What clients see: their own samples, turned, renamed, padded and normalised as the split says."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

import ilk
from ilk.data import federation as module
from ilk.data.datasets import Dataset
from ilk.data.federation import Federation, federation
from ilk.data.splits import MIX4
from ilk.errors import IlkError

PARTS = ("train", "validation", "test")


def arrays(count=20, width=3, seed=0, classes=3):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32), np.arange(count) % classes


def dataset(name="toy", shape=(1, 4, 6), count=120, tests=60, classes=10, seed=0, **changes):
    """A made data set in which every image names its position in its first pixel."""
    random = np.random.default_rng(seed)

    def images(count):
        made = random.integers(1, 256, (count, *shape), dtype=np.uint8)
        made[:, 0, 0, 0] = np.arange(count)
        return made

    return Dataset(
        **{
            **{"name": name, "x_train": images(count), "y_train": np.arange(count) % classes},
            **{"x_test": images(tests), "y_test": np.arange(tests) % classes, "classes": classes, "scale": 1.0},
            **{"mean": (), "std": (), "origin": "made"},
            **changes,
        }
    )


@pytest.fixture
def sources(monkeypatch):
    """Data sets by name that `federation` loads instead of files."""
    known = {"toy": dataset()}
    monkeypatch.setattr(module.datasets, "load", lambda name, data_dir=None, *, download=False: known[name])
    return known


# ---- a named data set


def test_every_sample_is_the_one_that_the_partition_names(sources):
    made = federation("toy", split="iid", clients=4)
    toy = sources["toy"]
    for client, share in enumerate(made.partition.shares):
        for part, positions in (("train", share.train), ("validation", share.validation)):
            x, y = made.read(client, part)
            np.testing.assert_array_equal(x, toy.x_train[positions])
            np.testing.assert_array_equal(y, toy.y_train[positions])
        x, y = made.read(client, "test")
        np.testing.assert_array_equal(x, toy.x_test[share.test])
        np.testing.assert_array_equal(y, toy.y_test[share.test])
    assert x.dtype == np.float32
    assert y.dtype == np.int64


def test_train_and_validation_together(sources):
    made = federation("toy", split="iid", clients=4)
    both = made.read(1, "train+validation")
    for k in (0, 1):
        np.testing.assert_array_equal(
            both[k], np.concatenate([made.read(1, "train")[k], made.read(1, "validation")[k]])
        )


def test_facts(sources):
    made = federation("toy", split="rotate:2", clients=5)
    assert made.ids == ("c00", "c01", "c02", "c03", "c04")
    assert made.sizes.tolist() == [len(made.read(k, "train")[1]) for k in range(5)]
    assert made.groups.tolist() == [0, 1, 0, 1, 0]
    assert (made.classes, made.shape) == (10, (1, 4, 6))
    assert federation("toy", split="dirichlet:5", clients=3).groups is None


def test_normalisation(sources):
    sources["toy"] = dataset(shape=(2, 4, 4), scale=255.0, mean=(0.5, 0.25), std=(0.1, 0.2))
    made = federation("toy", split="iid", clients=2)
    raw = sources["toy"].x_test[made.partition.shares[0].test] / 255
    expected = np.stack([(raw[:, 0] - 0.5) / 0.1, (raw[:, 1] - 0.25) / 0.2], axis=1)
    np.testing.assert_allclose(made.read(0, "test")[0], expected, rtol=1e-4, atol=1e-5)


def test_normalisation_of_the_digits():
    x = np.concatenate([federation("digits", split="iid", clients=2).read(k, "train")[0] for k in (0, 1)])
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1) < 0.01


def test_frozen_partition(tmp_path):
    made = federation("digits", split="permute-labels:2", clients=4, seed=3)
    made.partition.save(tmp_path / "p.json")
    again = federation(split=tmp_path / "p.json")
    assert again.fingerprint == made.fingerprint
    for part in PARTS:
        np.testing.assert_array_equal(again.read(1, part)[0], made.read(1, part)[0])
        np.testing.assert_array_equal(again.read(1, part)[1], made.read(1, part)[1])


def test_frozen_partition_of_other_labels(sources, tmp_path):
    federation("toy", split="iid", clients=4).partition.save(tmp_path / "p.json")
    sources["toy"] = dataset(y_train=(np.arange(120) + 1) % 10)
    with pytest.raises(IlkError, match="labels differ"):
        federation(split=tmp_path / "p.json")


# ---- groups that see their data differently


@pytest.mark.parametrize("policy", ["own", "holdout", "label-set"])
@pytest.mark.parametrize("part", PARTS)
def test_rotation_turns_all_of_a_clients_images(sources, policy, part):
    sources["toy"] = dataset(shape=(1, 5, 5))
    toy = sources["toy"]
    made = federation("toy", split="rotate:4", clients=8, test_policy=policy)
    for client, share in enumerate(made.partition.shares):
        train = part != "test" or share.test_from == "train"
        upright = (toy.x_train if train else toy.x_test)[getattr(share, part)]
        seen = made.read(client, part)[0]
        assert len(seen)
        np.testing.assert_array_equal(seen, np.rot90(upright, client % 4, axes=(2, 3)))
        if client % 4:
            assert not np.array_equal(seen, upright)
        assert seen.flags.c_contiguous


def test_rotation_comes_after_normalisation_and_leaves_labels(sources):
    sources["toy"] = dataset(shape=(2, 5, 5), scale=255.0, mean=(0.5, 0.1), std=(0.2, 0.3))
    turned, plain = (federation("toy", split=split, clients=4) for split in ("rotate:4", "iid"))
    for client in range(4):
        seen, y = turned.read(client, "train")
        upright, same = plain.read(client, "train")
        np.testing.assert_array_equal(seen, np.rot90(upright, client, axes=(2, 3)))
        np.testing.assert_array_equal(y, same)


def test_rotation_on_the_digits_is_a_half_turn_for_two_groups():
    turned, plain = (federation("digits", split=split, clients=2) for split in ("rotate:2", "iid"))
    np.testing.assert_array_equal(turned.read(1, "test")[0], plain.read(1, "test")[0][:, :, ::-1, ::-1])


def test_global_test_is_upright(sources):
    sources["toy"] = dataset(shape=(1, 5, 5))
    x, y = federation("toy", split="rotate:4", clients=4).read_test()
    np.testing.assert_array_equal(x, sources["toy"].x_test)
    np.testing.assert_array_equal(y, sources["toy"].y_test)


@pytest.mark.parametrize("part", PARTS)
def test_permuted_labels(sources, part):
    permuted, plain = (federation("toy", split=split, clients=6) for split in ("permute-labels:3", "iid"))
    names = {}
    for client in range(6):
        (x, y), (same, before) = permuted.read(client, part), plain.read(client, part)
        np.testing.assert_array_equal(x, same)
        for old, new in zip(before.tolist(), y.tolist(), strict=True):
            assert names.setdefault((client % 3, old), new) == new  # one name a class in each group
    for old in range(10):
        found = [names[group, old] for group in range(3) if (group, old) in names]
        assert len(set(found)) == len(found)  # no two groups agree
    assert all(names[0, old] == old for old in range(10) if (0, old) in names)


# ---- four data sets at once


@pytest.fixture
def mix(sources):
    shapes = {"usps": (1, 16, 16), "cifar10": (3, 32, 32), "svhn": (3, 32, 32), "fashion-mnist": (1, 28, 28)}
    for seed, (name, shape) in enumerate(shapes.items()):
        deep = shape[0]
        sources[name] = dataset(
            name, shape, count=100, tests=20 + seed, seed=seed, scale=255.0, mean=(0.5,) * deep, std=(0.25,) * deep
        )
    return federation("mix4", split="mix4", clients=8)


def test_mix4_labels(mix):
    assert mix.classes == 40
    assert mix.shape == (3, 32, 32)
    for client, share in enumerate(mix.partition.shares):
        group = list(MIX4).index(share.source)
        assert mix.groups[client] == group
        for part in PARTS:
            _, y = mix.read(client, part)
            assert set(y.tolist()) <= set(range(10 * group, 10 * group + 10))
        positions = share.train
        assert mix.read(client, "train")[1].tolist() == (10 * group + positions % 10).tolist()


@pytest.mark.parametrize(("name", "margin"), [("usps", 8), ("fashion-mnist", 2)])
def test_mix4_pads_before_it_normalises_and_repeats_grey(mix, sources, name, margin):
    client = next(k for k, share in enumerate(mix.partition.shares) if share.source == name)
    x, _ = mix.read(client, "train")
    assert x.shape[1:] == (3, 32, 32)
    np.testing.assert_array_equal(x[:, 0], x[:, 1])
    np.testing.assert_array_equal(x[:, 0], x[:, 2])
    black = np.float32((0 - 0.5) / 0.25)
    assert (x[:, :, :margin] == black).all()
    assert (x[:, :, -margin:] == black).all()
    assert (x[:, :, :, :margin] == black).all()
    assert (x[:, :, :, -margin:] == black).all()
    raw = sources[name].x_train[mix.partition.shares[client].train]
    inner = x[:, :1, margin:-margin, margin:-margin]
    np.testing.assert_allclose(inner, (raw / 255 - 0.5) / 0.25, rtol=1e-4, atol=1e-5)


def test_mix4_leaves_colour_images_as_they_are(mix, sources):
    client = next(k for k, share in enumerate(mix.partition.shares) if share.source == "svhn")
    raw = sources["svhn"].x_train[mix.partition.shares[client].train]
    np.testing.assert_allclose(mix.read(client, "train")[0], (raw / 255 - 0.5) / 0.25, rtol=1e-4, atol=1e-5)


def test_mix4_global_test(mix):
    x, y = mix.read_test()
    assert x.shape == (20 + 21 + 22 + 23, 3, 32, 32)
    assert sorted(set(y.tolist())) == list(range(40))
    assert np.bincount(y // 10).tolist() == [20, 21, 22, 23]


def test_mix4_client_test_is_the_whole_test_split_of_its_source(mix):
    for client, share in enumerate(mix.partition.shares):
        assert len(mix.read(client, "test")[1]) == 20 + list(MIX4).index(share.source)


# ---- the server's data, and small clients


def test_auxiliary(sources):
    made = federation("toy", split="rotate:4", clients=4, auxiliary=20)
    x = made.read_auxiliary()
    np.testing.assert_array_equal(x, sources["toy"].x_train[made.partition.auxiliary])
    owned = np.concatenate([np.concatenate([s.train, s.validation]) for s in made.partition.shares])
    assert not set(owned) & set(made.partition.auxiliary.tolist())
    assert len(owned) + 20 == 120
    assert len(federation("toy", split="iid", clients=4).read_auxiliary()) == 0


def test_validation_falls_back_to_train(sources):
    made = federation("toy", split="iid", clients=120)  # one sample each
    assert not len(made.partition.shares[0].validation)
    np.testing.assert_array_equal(made.read(0, "validation")[0], made.read(0, "train")[0])
    assert len(made.read(0, "train+validation")[1]) == len(made.read(0, "train")[1])


def test_no_global_test():
    with pytest.raises(IlkError, match="belongs to no client"):
        ilk.from_arrays({"a": arrays()}).read_test()


# ---- fingerprint and pickle


def test_fingerprint_is_the_same_for_the_same_request(sources):
    prints = {federation("toy", split="rotate:4", clients=4, seed=1).fingerprint for _ in range(2)}
    assert len(prints) == 1


@pytest.mark.parametrize(
    "change",
    [
        *({"split": "iid"}, {"split": "permute-labels:4"}, {"clients": 5}, {"seed": 1}, {"test_policy": "holdout"}),
        *({"auxiliary": 10}, {"split": "rotate:2"}),
    ],
    ids=str,
)
def test_fingerprint_changes_with_the_request(sources, change):
    request = {"split": "rotate:4", "clients": 4, "seed": 0}
    assert federation("toy", **request).fingerprint != federation("toy", **{**request, **change}).fingerprint


@pytest.mark.parametrize("field", ["id", "source", "train", "validation", "test", "test_from", "turns", "labels"])
def test_fingerprint_changes_with_every_field_of_a_share(sources, field):
    made = federation("toy", split="rotate:4", clients=4)
    share = made.partition.shares[2]
    other = {
        **{"id": "x", "source": "other", "test_from": "train", "turns": 1, "labels": tuple(range(10))},
        **{name: getattr(share, name)[::-1] for name in ("train", "validation", "test")},
    }[field]
    shares = (*made.partition.shares[:2], dataclasses.replace(share, **{field: other}), made.partition.shares[3])
    changed = Federation(made.sources, dataclasses.replace(made.partition, shares=shares))
    assert changed.fingerprint != made.fingerprint


@pytest.mark.parametrize("array", ["x_train", "y_train", "x_test", "y_test"])
def test_fingerprint_changes_with_the_data(sources, array):
    before = federation("toy", split="iid", clients=4).fingerprint
    content = getattr(sources["toy"], array).copy()
    content[5] = (content[5] + 1) % 10
    sources["toy"] = dataclasses.replace(sources["toy"], **{array: content})
    assert federation("toy", split="iid", clients=4).fingerprint != before


@pytest.mark.parametrize("what", ["x", "y", "name", "order", "test", "auxiliary", "shape", "seed"])
def test_fingerprint_of_own_arrays(what):
    x, y = arrays(20, 4)
    request = {"clients": {"a": (x, y), "b": (x + 1, y)}, "test": (x, y), "auxiliary": x}
    before = ilk.from_arrays(**request).fingerprint
    assert ilk.from_arrays(**request).fingerprint == before
    bent = x.copy()
    bent[3, 1] += 1e-3
    changed = {
        "x": {"clients": {"a": (bent, y), "b": (x + 1, y)}},
        "y": {"clients": {"a": (x, y[::-1]), "b": (x + 1, y)}},
        "name": {"clients": {"a": (x, y), "c": (x + 1, y)}},
        "order": {"clients": {"b": (x + 1, y), "a": (x, y)}},
        "test": {"test": (bent, y)},
        "auxiliary": {"auxiliary": bent},
        "shape": {
            **{"clients": {k: (v.reshape(-1, 1, 2, 2), y) for k, v in (("a", x), ("b", x + 1))}},
            **{"test": (x.reshape(-1, 1, 2, 2), y), "auxiliary": x.reshape(-1, 1, 2, 2)},
        },
        "seed": {"seed": 1},
    }[what]
    assert ilk.from_arrays(**{**request, **changed}).fingerprint != before


@pytest.mark.parametrize("make", ["digits", "own"])
def test_pickle(make):
    made = (
        federation("digits", split="rotate:4", clients=4, auxiliary=10)
        if make == "digits"
        else ilk.from_arrays({"a": arrays(), "b": arrays(seed=1)}, auxiliary=arrays()[0], groups={"a": 0, "b": 1})
    )
    again = pickle.loads(pickle.dumps(made))
    assert again.fingerprint == made.fingerprint
    assert again.groups.tolist() == made.groups.tolist()
    np.testing.assert_array_equal(again.read_auxiliary(), made.read_auxiliary())
    for part in PARTS:
        np.testing.assert_array_equal(again.read(1, part)[0], made.read(1, part)[0])


# ---- the caller's own arrays


def test_own_arrays():
    (x, y), (x2, y2) = arrays(20), arrays(40, seed=1)
    made = ilk.from_arrays({"anna": (x, y), "ben": (x2, y2)}, groups={"anna": 0, "ben": 1})
    assert made.ids == ("anna", "ben")
    assert made.groups.tolist() == [0, 1]
    assert (made.classes, made.shape) == (3, (3,))
    for client, (mine, count) in enumerate(((x, 20), (x2, 40))):
        sizes = [len(made.read(client, part)[1]) for part in PARTS]
        assert sum(sizes) == count
        assert sizes[2] == round(0.3 * count)
        assert sizes[1] == round(0.1 * (count - sizes[2]))
        seen = np.concatenate([made.read(client, part)[0] for part in PARTS])
        np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(mine, axis=0))
    assert made.partition.test_policy == "holdout"


def test_inputs_keep_their_labels():
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    made = ilk.from_arrays({"a": (x, np.arange(20))})
    for part in PARTS:
        seen, y = made.read(0, part)
        np.testing.assert_array_equal(seen[:, 0], 3 * y)


def test_own_test_data():
    (x, y), (x2, y2) = arrays(20), arrays(7, seed=1)
    made = ilk.from_arrays({"a": (x, y, x2, y2)})
    np.testing.assert_array_equal(made.read(0, "test")[0], x2)
    np.testing.assert_array_equal(made.read(0, "test")[1], y2)
    assert len(made.read(0, "train+validation")[1]) == 20
    assert made.partition.test_policy == "given"


def test_global_test_and_auxiliary_of_ones_own():
    x, y = arrays(9, seed=4)
    made = ilk.from_arrays({"a": arrays(), "b": arrays(seed=1)}, test=(x, y + 5), auxiliary=x[:4])
    np.testing.assert_array_equal(made.read_test()[0], x)
    np.testing.assert_array_equal(made.read_test()[1], y + 5)
    np.testing.assert_array_equal(made.read_auxiliary(), x[:4])
    assert made.classes == 8
    seen = np.concatenate([made.read(k, part)[0] for k in (0, 1) for part in PARTS])
    assert len(seen) == 40


def test_lists_do_too():
    made = ilk.from_arrays({1: ([[0.0, 1.0]] * 10, [0, 1] * 5)})
    assert made.ids == ("1",)
    assert made.read(0, "train")[0].dtype == np.float32


@pytest.mark.parametrize(("count", "sizes"), [(2, [1, 1, 1]), (3, [1, 1, 1]), (4, [2, 1, 1]), (10, [6, 1, 3])])
def test_small_clients(count, sizes):
    made = ilk.from_arrays({"a": arrays(count)})
    assert [len(made.read(0, part)[1]) for part in PARTS] == sizes


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({}, "at least one client"),
        ({"a": arrays(1)}, "'a' has 1 sample"),
        ({"a": arrays(), "b": arrays(width=4)}, "one shape"),
        ({"a": (arrays()[0],)}, "'a' gave 1 arrays"),
        ({"a": (arrays()[0], arrays()[1] * 1.0)}, "labels of type float64"),
        ({"a": (arrays()[0] * np.nan, arrays()[1])}, "missing, infinite"),
        ({"a": (arrays()[0], arrays()[1][1:])}, "shape"),
        ({"a": (*arrays(), *arrays(width=4))}, "'a'.*4"),
    ],
)
def test_refusals(clients, message):
    with pytest.raises(IlkError, match=message):
        ilk.from_arrays(clients)


@pytest.mark.parametrize(
    "more",
    [{"test": arrays(width=4)}, {"auxiliary": arrays(width=4)[0]}, {"auxiliary": arrays()[0] * np.nan}],
    ids=["test of other shape", "auxiliary of other shape", "auxiliary with NaN"],
)
def test_refusals_of_what_belongs_to_nobody(more):
    with pytest.raises(IlkError, match=r"(?i)test|auxiliary"):
        ilk.from_arrays({"a": arrays()}, **more)


# ---- a folder


def test_folder_is_the_same_as_arrays(tmp_path):
    (x, y), (x2, y2), (x3, y3) = arrays(20), arrays(30, seed=1), arrays(8, seed=2)
    np.savez(tmp_path / "ben.npz", x=x2, y=y2)
    np.savez(tmp_path / "anna.npz", x=x, y=y)
    np.savez(tmp_path / "_test.npz", x=x3, y=y3)
    np.savez(tmp_path / "_auxiliary.npz", x=x3[:5])
    (tmp_path / "notes.txt").write_text("not data")
    made = ilk.from_folder(tmp_path, seed=2)
    same = ilk.from_arrays({"anna": (x, y), "ben": (x2, y2)}, test=(x3, y3), auxiliary=x3[:5], seed=2)
    assert made.ids == ("anna", "ben")
    assert made.fingerprint == same.fingerprint


def test_folder_with_test_data(tmp_path):
    (x, y), (x2, y2) = arrays(20), arrays(30, seed=1)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x2, y_test=y2)
    np.testing.assert_array_equal(ilk.from_folder(tmp_path).read(0, "test")[0], x2)


def test_folder_that_is_empty(tmp_path):
    with pytest.raises(IlkError, match=r"no \.npz file"):
        ilk.from_folder(tmp_path)
