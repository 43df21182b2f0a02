"""Runs are read as far as they go: unfinished, damaged, empty; and what is missing is said."""

from __future__ import annotations

import json

import pytest

from ilk.errors import IlkError
from ilk.report.page import page, write_report
from ilk.report.reading import read, read_all
from ilk.runs.folder import RunFolder


def test_a_whole_run(plant, tmp_path):
    run = read(plant(tmp_path / "r", accuracy=[0.5, 0.6, 0.7], cluster=[0, 0, 1]))
    assert (run.method, run.seed, run.ids, run.missing) == ("pacfl", 0, ["c00", "c01", "c02"], ())
    assert run.accuracy.tolist() == [0.5, 0.6, 0.7]
    assert run.cluster.tolist() == [0, 0, 1]
    assert run.labels.shape == (3, 3)


def test_unfinished(plant, tmp_path):
    folder = plant(tmp_path / "r", rounds=5)
    (folder / "result.json").unlink()
    lines = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "history.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:9])  # a line that is being written
    run = read(folder)
    assert len(run.history) == 2
    assert run.missing == (f"unfinished: 2 of 5 rounds; go on with: ilk run --resume {folder}",)


def test_a_run_that_is_going_on(plant, tmp_path):
    folder = plant(tmp_path / "r")
    (folder / "result.json").unlink()
    working = RunFolder(folder)
    assert read(folder).missing == ("unfinished: 3 of 3 rounds; still running",)
    working.close()


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"[]", b"7", b"null", b"{}", b'{"round": "x"}', b"\xff\xfe", b"",
        b'{"round": 3, "bytes_up": 0, "bytes_down": 0, "seconds": 1, "accuracy": 1, "clusters": 1,'
        b' "accuracy_by_client": [1], "cluster_by_client": [0]}',
    ],
)  # fmt: skip
def test_a_damaged_history_is_read_up_to_there(plant, tmp_path, line):
    folder = plant(tmp_path / "r")
    lines = (folder / "history.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "history.jsonl").write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    run = read(folder)
    assert len(run.history) == 2
    assert run.missing == ("history.jsonl is damaged from line 3 on; the 2 lines before are shown",)


@pytest.mark.parametrize(
    "name", ["history.jsonl", "ledger.jsonl", "labels.json", "checkpoint.safetensors", "partition.json"]
)
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage"])
def test_any_file_may_be_gone_or_damaged(plant, in_blocks, tmp_path, name, damage):
    folder = plant(tmp_path / "r", accuracy=[0.5] * 4, cluster=[0, 0, 1, 1], distance=in_blocks([0, 0, 1, 1]))
    (folder / name).unlink()
    if damage != "missing":
        (folder / name).write_bytes(b"" if damage == "empty" else b"\x00\xffgarbage\n")
    readings, missing = read_all([folder])
    said = page(readings, missing)
    assert "The answer" in said
    quiet = (
        name == "partition.json"
        or (name == "ledger.jsonl" and damage == "empty")
        or name + damage == "history.jsonlempty"
    )
    assert quiet or any(name in what for what in missing), missing


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"config": {}}', '{"config": {"method": "x"}, "federation": {"ids": 3}}']
)
def test_a_record_that_is_none(plant, tmp_path, text):
    folder = plant(tmp_path / "r")
    (folder / "run.json").write_text(text)
    readings, missing = read_all([folder])
    assert readings == []
    assert "run.json" in missing[0]
    assert "run.json" in page(readings, missing)


def test_an_empty_folder_gives_a_report_that_says_so(tmp_path):
    (tmp_path / "nothing").mkdir()
    path = write_report([tmp_path / "nothing"], tmp_path / "r.html")
    assert "holds no run: it has no run.json" in path.read_text()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(IlkError, match=r"There is no folder .*nowhere"):
        read_all([tmp_path / "nowhere"])


def test_an_experiment_is_its_runs_in_its_own_order_and_what_was_not_begun(plant, tmp_path):
    for name in ("pacfl", "fedavg"):
        plant(tmp_path / "e" / f"{name}-seed0", name)
    asked = {"methods": ["solo", "pacfl", "fedavg"], "seeds": [], "seed": 0}
    (tmp_path / "e" / "experiment.json").write_text(json.dumps(asked))
    readings, missing = read_all([tmp_path / "e"])
    assert [run.series for run in readings] == ["pacfl", "fedavg"]
    assert missing == [f"solo-seed0: planned in {tmp_path / 'e'}, not begun"]


def test_a_run_given_twice_is_one(plant, tmp_path):
    plant(tmp_path / "e" / "a")
    assert len(read_all([tmp_path / "e", tmp_path / "e" / "a"])[0]) == 1


def test_runs_of_one_method_are_told_apart_by_what_differs(plant, tmp_path):
    folders = [
        plant(tmp_path / f"r{k}", options={"threshold": t, "vectors": 3}, seed=s)
        for k, (t, s) in enumerate([(0.3, 0), (0.5, 0), (0.5, 1)])
    ]
    assert [run.series for run in read_all(folders)[0]] == [
        *("pacfl (threshold 0.3)", "pacfl (threshold 0.5)", "pacfl (threshold 0.5)"),
    ]


def test_runs_on_different_data_are_said_not_to_be_comparable(plant, tmp_path):
    folders = [plant(tmp_path / "a", "solo"), plant(tmp_path / "b", "pacfl", config={"split": "iid"})]
    assert "not comparable" in page(*read_all(folders))
