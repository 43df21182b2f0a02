"""A frozen partition comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilk.data.partition import Labels, Partition, Share, check
from ilk.data.splits import partition
from ilk.errors import IlkError

LABELS = Labels(np.arange(60) % 3, np.arange(30) % 3, 3)


def toy(split="permute-labels:2", policy="own", auxiliary=6):
    return partition("toy", split, {"toy": LABELS}, 4, 0, policy, auxiliary)


def with_share(whole, **changes):
    return dataclasses.replace(whole, shares=(dataclasses.replace(whole.shares[0], **changes), *whole.shares[1:]))


@pytest.fixture
def saved(tmp_path):
    """A saved partition: its path, and a function that writes it with some of its fields changed."""
    path = tmp_path / "partition.json"
    toy().save(path)

    def change(edit):
        fields = json.loads(path.read_text())
        edit(fields)
        path.write_text(json.dumps(fields))

    return path, change


# ---- there and back


@pytest.mark.parametrize("split", ["iid", "label-skew:0.5", "dirichlet:0.5", "rotate:2", "permute-labels:3"])
@pytest.mark.parametrize("policy", ["own", "label-set", "holdout"])
def test_round_trip(tmp_path, split, policy):
    whole = toy(split, policy)
    whole.save(tmp_path / "a.json")
    found = Partition.load(tmp_path / "a.json")
    assert found == whole
    assert found.shares[0].train.dtype == found.auxiliary.dtype == np.int64
    assert isinstance(found.shares, tuple)


positions = st.lists(st.integers(0, 2**63 - 1), max_size=5).map(lambda values: np.array(values, dtype=np.int64))
shares = st.builds(
    Share,
    id=st.text(),
    source=st.text(),
    train=positions,
    validation=positions,
    test=positions,
    test_from=st.sampled_from(["train", "test"]),
    group=st.none() | st.integers(0, 5),
    turns=st.integers(0, 3),
    labels=st.none() | st.lists(st.integers(0, 9)).map(tuple),
)
notes = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.lists(st.text()))


@settings(deadline=None, database=None, max_examples=60)
@given(st.lists(shares, min_size=1, max_size=4, unique_by=lambda share: share.id), positions, notes, st.integers())
def test_any_partition_round_trips(tmp_path_factory, owned, auxiliary, said, seed):
    whole = Partition("ü", "iid", "own", seed, 10, tuple(owned), auxiliary, {"a": "b"}, said)
    path = tmp_path_factory.mktemp("any") / "a.json"
    whole.save(path)
    assert Partition.load(path) == whole


def test_partitions_that_differ_anywhere_are_not_equal():
    whole = toy()
    assert whole == toy()
    assert whole != "a partition"
    assert whole.shares[0] != whole
    changes = {
        "data": "other",
        "split": "iid",
        "test_policy": "holdout",
        "seed": 1,
        "classes": 4,
        "shares": whole.shares[:-1],
        "auxiliary": whole.auxiliary[1:],
        "fingerprints": {},
        "notes": {"a": 1},
        "auxiliary_from": "test",
    }
    assert changes.keys() == {field.name for field in dataclasses.fields(Partition)}
    for name, value in changes.items():
        assert dataclasses.replace(whole, **{name: value}) != whole, name
    other = {"id": "x", "source": "x", "test_from": "train", "group": 5, "turns": 1, "labels": None}
    other |= {name: getattr(whole.shares[0], name)[::-1] for name in ("train", "validation", "test")}
    other["validation"] = np.array([1, 2, 3])
    assert other.keys() == {field.name for field in dataclasses.fields(Share)}
    for name, value in other.items():
        assert with_share(whole, **{name: value}) != whole, name


def test_the_file_can_be_read_by_a_person(saved):
    lines = saved[0].read_text().splitlines()
    assert lines[1] == '  "version": 1,'
    assert '  "split": "permute-labels:2",' in lines
    numbers = [line for line in lines if '"train":' in line]
    assert len(numbers) == 4
    assert all(line.count(",") >= 10 for line in numbers)  # a list of positions is one line


def test_saving_makes_the_folder_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "deep" / "a.json"
    toy().save(path)
    toy("iid").save(str(path))
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]
    assert Partition.load(str(path)).split == "iid"


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    toy().save(path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(IlkError, match=r"cannot be written to .*a.json: disk full. Choose another place"):
        toy("iid").save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert Partition.load(path) == toy()


def test_saving_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IlkError, match="cannot be written"):
        toy().save(tmp_path / "file" / "a.json")


# ---- what is refused


def refused(path, pattern):
    with pytest.raises(IlkError, match=pattern) as caught:
        Partition.load(path)
    assert str(path) in str(caught.value)


def test_refuses_what_is_no_partition_file(tmp_path):
    refused(tmp_path / "none.json", "There is no partition file .*none.json. Check the path")
    refused(tmp_path, "cannot be read.*Check the path")
    for text, pattern in [
        ("{", "is not JSON.*Make the partition again"),
        ("[]", "no field 'version'"),
        ("{}", "no field 'version'"),
        ('{"version": 99}', "is of version 99; this ilk reads version 1"),
        ('{"version": true}', "is of version True"),
        ('{"version": "1"}', "is of version '1'"),
        ('{"version": 1}', r"damaged: data: Field required.*\(and 6 more\).*Make the partition again"),
    ]:
        (tmp_path / "a.json").write_text(text)
        refused(tmp_path / "a.json", pattern)
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path / "a.json", "is not JSON")


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Partition) if f.default is dataclasses.MISSING])
def test_refuses_a_missing_field(saved, name):
    path, change = saved
    change(lambda fields: fields.pop(name))
    refused(path, f"damaged: {name}: Field required")


@pytest.mark.parametrize("name", ["id", "source", "train", "validation", "test"])
def test_refuses_a_missing_field_of_a_share(saved, name):
    path, change = saved
    change(lambda fields: fields["shares"][2].pop(name))
    refused(path, f"damaged: shares.2.{name}: Field required")


@pytest.mark.parametrize(
    ("name", "value", "pattern"),
    [
        ("data", 3, "data: Input should be a valid string"),
        ("seed", "3", "seed: Input should be a valid integer"),
        ("classes", 2.5, "classes: Input should be a valid integer"),
        ("classes", True, "classes: Input should be a valid integer"),
        ("shares", {}, "shares: Input should be a valid"),
        ("shares", [], "it has no clients"),
        ("auxiliary", None, "auxiliary: Input should be a valid"),
        ("auxiliary", [1, -4], "auxiliary.1: Input should be greater than or equal to 0"),
        ("fingerprints", {"toy": 5}, "fingerprints.toy: Input should be a valid string"),
        ("extra", 1, "extra: Unexpected"),
    ],
)
def test_refuses_a_wrong_field(saved, name, value, pattern):
    path, change = saved
    change(lambda fields: fields.update({name: value}))
    refused(path, f"damaged: {pattern}")


@pytest.mark.parametrize(
    ("name", "value", "pattern"),
    [
        ("train", [3, -1], "train.1: Input should be greater than or equal to 0"),
        ("train", [3, 1.5], "train.1: Input should be a valid integer"),
        ("train", [True], "train.0: Input should be a valid integer"),
        ("train", ["3"], "train.0: Input should be a valid integer"),
        ("test", [2**63], "test.0: Input should be less than"),
        ("validation", "123", "validation: Input should be a valid"),
        ("test_from", "validation", "test_from: Input should be 'train' or 'test'"),
        ("turns", None, "turns: Input should be a valid integer"),
        ("labels", [0, "b"], "labels.1: Input should be a valid integer"),
        ("id", 7, "id: Input should be a valid string"),
    ],
)
def test_refuses_a_wrong_field_of_a_share(saved, name, value, pattern):
    path, change = saved
    change(lambda fields: fields["shares"][1].update({name: value}))
    refused(path, rf"damaged: shares.1.{pattern}")


def test_refuses_two_clients_of_one_name(saved):
    path, change = saved
    change(lambda fields: fields["shares"][3].update(id="c01"))
    refused(path, "more than one client has the id 'c01'")


# ---- check


def test_check_accepts_the_data_that_it_was_made_for():
    check(toy(), {"toy": LABELS, "other": Labels(LABELS.test, LABELS.train, 3)})


def test_check_refuses_other_data():
    other = LABELS.train.copy()
    other[[0, 1]] = other[[1, 0]]
    with pytest.raises(IlkError, match=r"another version of 'toy'.*make the partition again"):
        check(toy(), {"toy": Labels(other, LABELS.test, 3)})
    with pytest.raises(IlkError, match=r"needs the data set 'toy', given: digits. Load"):
        check(toy(), {"digits": LABELS})
    with pytest.raises(IlkError, match="another version of 'toy'"):
        check(dataclasses.replace(toy(), fingerprints={}), {"toy": LABELS})
    with pytest.raises(IlkError, match="needs the data set 'more'"):
        check(dataclasses.replace(toy(), fingerprints={**toy().fingerprints, "more": ""}), {"toy": LABELS})


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"train": np.array([60])}, "'c00': positions reach from .* to 60, but the split has 60 samples"),
        ({"validation": np.array([-1])}, "'c00': positions reach from -1"),
        ({"test": np.array([30])}, "'c00': positions reach from 30 to 30, but the split has 30 samples"),
        ({"test": np.array([59, 60]), "test_from": "train"}, "but the split has 60 samples"),
        ({"labels": (0, 1)}, r"renames the 3 classes of 'toy' to \(0, 1\)"),
        ({"labels": (0, 1, 3)}, "needed is one label below 3"),
        ({"labels": (0, 1, -1)}, "needed is one label below 3"),
    ],
)
def test_check_refuses_positions_and_labels_outside(changes, pattern):
    with pytest.raises(IlkError, match=pattern):
        check(with_share(toy(), **changes), {"toy": LABELS})


def test_check_refuses_a_sample_in_two_parts():
    whole = toy()
    first = whole.shares[0]
    for changes in (
        {"validation": first.train[:1]},
        {"train": np.append(first.train, first.train[0])},
        {"test": first.train[:1], "test_from": "train"},
        {"train": np.append(first.train, whole.auxiliary[0])},
    ):
        with pytest.raises(IlkError, match="'c00' has a sample twice"):
            check(with_share(whole, **changes), {"toy": LABELS})


def test_check_refuses_auxiliary_positions_outside():
    with pytest.raises(IlkError, match="auxiliary data: positions reach from 70"):
        check(dataclasses.replace(toy(), auxiliary=np.array([70])), {"toy": LABELS})


# ---- labels


def test_fingerprint_sees_every_label_and_where_train_ends():
    train, test = np.array([0, 1, 2]), np.array([1])
    prints = {
        Labels(train, test, 3).fingerprint(),
        Labels(np.array([0, 1]), np.array([2, 1]), 3).fingerprint(),
        Labels(np.array([0, 1, 1]), test, 3).fingerprint(),
        Labels(train, np.array([2]), 3).fingerprint(),
    }
    assert len(prints) == 4
    assert Labels(train.astype(np.uint8), test.astype(np.int32), 3).fingerprint() in prints


def test_a_plain_share_owns_nothing():
    share = Share.plain("toy", (1, 0))
    assert (share.source, share.labels, share.turns) == ("toy", (1, 0), 0)
    assert len(share.train) == len(share.validation) == len(share.test) == 0
