"""The run folder: refused, damaged, full; and what stands in it."""

from __future__ import annotations

import errno
import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import safetensors.numpy

import ilk
from ilk.errors import IlkError, Interrupted
from ilk.ledger import Entry
from ilk.method import State
from ilk.methods import make_method
from ilk.runs.folder import RunFolder, append, read_lines, replace

PLAN = {"rounds": 3, "cohort": 0.5, "engine": "inline"}


@pytest.fixture
def fedavg():
    return make_method("fedavg", {"local": {"epochs": 1}})


@pytest.fixture
def whole(fedavg, blobs):
    return ilk.run(fedavg, blobs, **PLAN)


def stop_after(last):
    def stop(row):
        if row["round"] == last:
            raise KeyboardInterrupt

    return stop


@pytest.fixture
def begun(fedavg, blobs, tmp_path):
    """A run that was stopped after its second of three rounds."""
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        ilk.run(fedavg, blobs, out=folder, on_round=stop_after(2), **PLAN)
    return folder


def resumed(fedavg, blobs, folder, **changed):
    return ilk.run(fedavg, blobs, out=folder, resume=True, **{**PLAN, **changed})


# ---- what stands in it


def test_the_files_of_a_finished_run(fedavg, blobs, whole, tmp_path):
    folder = tmp_path / "below" / "run"
    run = ilk.run(fedavg, blobs, out=folder, **PLAN)
    names = {"run.json", "partition.json", "labels.json", "history.jsonl", "ledger.jsonl", "checkpoint.safetensors"}
    assert {path.name for path in folder.iterdir()} == names | {"result.json"}, "no temporary file is left"
    counts = json.loads((folder / "labels.json").read_text())["train"]
    assert counts == [np.bincount(blobs.read(k, "train")[1], minlength=3).tolist() for k in range(6)]
    assert run.model_digest == whole.model_digest
    record = json.loads((folder / "run.json").read_text())
    assert record["config"]["method"] == "fedavg"
    assert record["config"]["cohort"] == 0.5
    assert record["versions"]["torch"]
    assert len((folder / "history.jsonl").read_text().splitlines()) == 3
    assert json.loads((folder / "result.json").read_text()) == run.result()
    assert ilk.Run.load(folder).result() == run.result()
    from ilk.data.partition import Partition

    assert Partition.load(folder / "partition.json") == blobs.partition


def test_a_checkpoint_holds_no_pickle(fedavg, blobs, tmp_path):
    run = ilk.run(fedavg, blobs, out=tmp_path / "run", **{**PLAN, "protocol": "last-held"})
    data = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["ilk"])
    assert about["round"] == 3
    arrays = safetensors.numpy.load(data)
    assert arrays.keys() == header.keys()
    assert np.array_equal(arrays["state/models"], run.state.models)
    for k, memory in enumerate(run.memories):
        for kind, array in memory.items():
            assert np.array_equal(arrays[f"memory/{k}/{kind}"], array)
    size = sum(array.nbytes for array in arrays.values())
    assert len(data) == 8 + length + size, "header and the bytes of the arrays, nothing else"


@dataclass(frozen=True)
class Odd(State):
    """A state with arrays of every shape and plain values."""

    none: np.ndarray
    number: np.ndarray
    whole: np.ndarray
    truth: np.ndarray
    turned: np.ndarray
    round_begun: int
    threshold: float | None
    name: str


class OddMethod(ilk.Method):
    name = "odd"

    def start(self, server) -> Odd:
        raise NotImplementedError


def test_arrays_of_every_shape_survive(tmp_path):
    state = Odd(
        models=np.arange(6, dtype=np.float32).reshape(2, 3),
        none=np.empty((0, 4), np.float32),
        number=np.array(2.5),
        whole=np.array([[1], [2**40]]),
        truth=np.array([True, False]),
        turned=np.arange(12.0).reshape(3, 4).T,
        round_begun=4,
        threshold=None,
        name="é",
    )
    memories = [{}, {"count": np.array(3), "model": np.arange(3, dtype=np.float32)[::-1]}]
    (tmp_path / "run.json").write_text("{}")
    for name in ("history.jsonl", "ledger.jsonl"):
        (tmp_path / name).touch()
    folder = RunFolder(tmp_path)
    folder.commit(None, [], state, memories, 7)
    restored = folder.restore(OddMethod())
    folder.close()
    assert restored.round == 7
    for name, before in vars(state).items():
        after = getattr(restored.state, name)
        if isinstance(before, np.ndarray):
            assert (after.dtype, after.shape) == (before.dtype, before.shape), name
            assert np.array_equal(after, before), name
        else:
            assert (after, type(after)) == (before, type(before)), name
    assert restored.memories[0] == {}
    for name, before in memories[1].items():
        after = restored.memories[1][name]
        assert (after.dtype, after.shape) == (before.dtype, before.shape), name
        assert np.array_equal(after, before)


# ---- lines


def test_lines_that_were_cut_off_are_left_out(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.touch()
    first = append(path, [{"a": 1}, {"b": "é"}])
    assert first == path.stat().st_size
    assert append(path, []) == first
    with path.open("a") as file:
        file.write('{"c": 3')
    assert read_lines(path) == [{"a": 1}, {"b": "é"}]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_replace_shows_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace(path, b"old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace(path, b"new")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("more", [b"", b'{"round": 3, "acc', b'{"round": 3, "cohort": 3}\n{"round": 4}\n'])
def test_lines_beyond_the_checkpoint_are_cut(fedavg, blobs, begun, whole, more):
    lengths = {}
    for name in ("history.jsonl", "ledger.jsonl"):
        lengths[name] = (begun / name).stat().st_size
        with (begun / name).open("ab") as file:
            file.write(more)
    folder = RunFolder(begun)
    restored = folder.restore(fedavg)
    folder.close()
    assert restored.round == 2
    assert {name: (begun / name).stat().st_size for name in lengths} == lengths
    run = resumed(fedavg, blobs, begun)
    assert run.model_digest == whole.model_digest
    assert ilk.Run.load(begun).history["round"] == [1, 2, 3]
    assert ilk.Run.load(begun).ledger.entries == whole.ledger.entries


def test_lines_that_the_checkpoint_counts_must_be_there(fedavg, blobs, begun):
    os.truncate(begun / "ledger.jsonl", 10)
    with pytest.raises(IlkError, match=r"ledger.jsonl is shorter than its checkpoint says"):
        resumed(fedavg, blobs, begun)


@pytest.mark.parametrize("name", ["history.jsonl", "ledger.jsonl"])
def test_lines_that_were_damaged_are_an_error(fedavg, blobs, begun, name):
    data = (begun / name).read_bytes()
    (begun / name).write_bytes(b"\x00" * 20 + data[20:])
    with pytest.raises(IlkError, match=name):
        resumed(fedavg, blobs, begun)
    with pytest.raises(IlkError, match=name):
        ilk.Run.load(begun)


@pytest.mark.parametrize("name", ["history.jsonl", "ledger.jsonl"])
def test_lines_that_are_gone_are_an_error(fedavg, blobs, begun, name):
    (begun / name).unlink()
    with pytest.raises(IlkError, match=name):
        resumed(fedavg, blobs, begun)


# ---- the checkpoint


def test_a_truncated_checkpoint_is_an_error(fedavg, blobs, begun):
    path = begun / "checkpoint.safetensors"
    data = path.read_bytes()
    for length in (0, 4, 8, 60, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(IlkError, match=r"checkpoint.* cannot be read"):
            resumed(fedavg, blobs, begun)


def test_a_checkpoint_of_something_else_is_an_error(fedavg, blobs, begun):
    path = begun / "checkpoint.safetensors"
    for content in (b"not a checkpoint at all", safetensors.numpy.save({"a": np.zeros(3)})):
        path.write_bytes(content)
        with pytest.raises(IlkError, match=r"checkpoint.* cannot be read"):
            resumed(fedavg, blobs, begun)


def test_a_checkpoint_whose_header_is_damaged_is_never_a_crash_nor_another_run(fedavg, begun):
    path = begun / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    length = 8 + int.from_bytes(data[:8], "little")
    lines = {name: (begun / name).read_bytes() for name in ("history.jsonl", "ledger.jsonl")}
    folder, crashed = RunFolder(begun), []
    models = folder.restore(fedavg).state.models.tobytes()
    for position in range(8, length):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        around = bytes(damaged[max(position - 9, 0) : position + 9])
        try:
            restored = folder.restore(fedavg)
        except IlkError:
            pass
        except Exception as error:
            crashed.append((around, repr(error)))
        else:
            if restored.round != 2 or restored.state.models.tobytes() != models or len(restored.memories) != 6:
                crashed.append((around, "another run"))
        for name, content in lines.items():
            (begun / name).write_bytes(content)
    folder.close()
    assert crashed == []


def test_a_flipped_bit_in_the_models_is_noticed(fedavg, blobs, begun):
    path = begun / "checkpoint.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 64
    path.write_bytes(data)
    with pytest.raises(IlkError, match="checkpoint"):
        resumed(fedavg, blobs, begun)


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00\x01"])
def test_a_damaged_run_json_is_an_error(fedavg, blobs, begun, content):
    (begun / "run.json").write_text(content)
    with pytest.raises(IlkError, match=r"run.json"):
        resumed(fedavg, blobs, begun)


def test_a_run_json_that_is_not_a_record_is_an_error(fedavg, blobs, begun):
    (begun / "run.json").write_text('{"some": "thing"}')
    with pytest.raises(IlkError, match=r"run.json"):
        resumed(fedavg, blobs, begun)


# ---- folders that are refused


def test_a_folder_that_holds_a_run_is_refused(fedavg, blobs, begun):
    before = {path.name: path.read_bytes() for path in begun.iterdir()}
    with pytest.raises(IlkError, match=r"holds a run already. Go on with it \(--resume "):
        ilk.run(fedavg, blobs, out=begun, **PLAN)
    assert {path.name: path.read_bytes() for path in begun.iterdir()} == before


def test_a_file_and_a_folder_that_is_not_empty_are_refused(fedavg, blobs, tmp_path):
    file, full, empty = tmp_path / "file", tmp_path / "full", tmp_path / "empty"
    file.write_text("mine")
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    empty.mkdir()
    for out in (file, full):
        with pytest.raises(IlkError, match=r"is not an empty folder. Give another --out"):
            ilk.run(fedavg, blobs, out=out, **PLAN)
    with pytest.raises(IlkError, match="cannot be written"):
        ilk.run(fedavg, blobs, out=file / "run", **PLAN)
    assert file.read_text() == "mine"
    assert [path.name for path in full.iterdir()] == ["mine.txt"]
    assert ilk.run(fedavg, blobs, out=str(empty), **PLAN).folder == empty


def test_a_place_where_nothing_can_be_written_is_refused(fedavg, blobs, tmp_path, monkeypatch):
    with pytest.raises(IlkError, match="/proc/nothing/run cannot be written"):
        ilk.run(fedavg, blobs, out="/proc/nothing/run", **PLAN)
    for number, text in ((errno.EACCES, "permission denied; give another --out"), (errno.EROFS, "disk is read-only")):

        def refuse(self, *args, number=number, **more):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr("pathlib.Path.mkdir", refuse)
            with pytest.raises(IlkError, match=text):
                ilk.run(fedavg, blobs, out=tmp_path / "run", **PLAN)


def test_a_folder_that_may_not_be_looked_into_is_refused(tmp_path):
    """As somebody who is not root, where even the question whether a file exists is refused."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(IlkError, match="permission denied"):
            RunFolder.create(hidden / "run", {})
    finally:
        os.seteuid(0)


def test_nothing_to_resume(fedavg, blobs, tmp_path):
    with pytest.raises(IlkError, match=r"There is no run in .*none: it has no run.json"):
        resumed(fedavg, blobs, tmp_path / "none")


def test_another_process_is_kept_out(fedavg, blobs, begun, whole):
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'rb'); fcntl.flock(file, fcntl.LOCK_EX); "
        "print('held', flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold, str(begun / "run.json")], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        before = {path.name: path.read_bytes() for path in begun.iterdir()}
        with pytest.raises(IlkError, match="another process is working on this run"):
            resumed(fedavg, blobs, begun)
        gc.collect()  # a lock file that was left open would warn here
        assert {path.name: path.read_bytes() for path in begun.iterdir()} == before
        other.communicate("\n")
    assert resumed(fedavg, blobs, begun).model_digest == whole.model_digest


def test_a_run_keeps_others_out_while_it_runs(fedavg, blobs, tmp_path):
    def look(row):
        with pytest.raises(IlkError, match="another process is working on this run"):
            resumed(fedavg, blobs, tmp_path / "run")
        looked.append(row["round"])

    looked = []
    ilk.run(fedavg, blobs, out=tmp_path / "run", on_round=look, **PLAN)
    gc.collect()
    assert looked == [1, 2, 3]


def test_a_run_that_failed_lets_go_of_its_folder(fedavg, blobs, tmp_path):
    def fail(row):
        raise ValueError("of the listener")

    with pytest.raises(ValueError, match="of the listener"):
        ilk.run(fedavg, blobs, out=tmp_path / "run", on_round=fail, **PLAN)
    resumed(fedavg, blobs, tmp_path / "run")
    gc.collect()


# ---- another configuration


def test_another_configuration_is_refused_and_shown(fedavg, blobs, make_federation, begun):
    with pytest.raises(IlkError) as refusal:
        resumed(fedavg, blobs, begun, rounds=5, seed=1)
    assert "  rounds: stored 3, given 5\n" in str(refusal.value)
    assert "  seed: stored 0, given 1\n" in str(refusal.value)
    assert "cohort" not in str(refusal.value)
    other = make_method("fedavg", {"local": {"epochs": 2}})
    with pytest.raises(IlkError, match=r"options: stored .*'epochs': 1.*given .*'epochs': 2"):
        resumed(other, blobs, begun)
    with pytest.raises(IlkError, match="method: stored 'fedavg', given 'solo'"):
        resumed(make_method("solo", {}), blobs, begun)
    with pytest.raises(IlkError, match="federation: stored"):
        resumed(fedavg, make_federation(seed=1), begun)
    for changed in ({"protocol": "global"}, {"cohort": 3}, {"eval_every": 2}):
        with pytest.raises(IlkError, match=f"{next(iter(changed))}: stored"):
            resumed(fedavg, blobs, begun, **changed)


def test_data_that_changed_is_refused(fedavg, make_federation, begun):
    """The same clients with the same labels, but other inputs."""
    changed = make_federation()
    changed.sources["arrays"].x_train[3, 0] += 1
    moved = ilk.from_arrays({share.id: changed.read(k, "train") for k, share in enumerate(changed.partition.shares)})
    with pytest.raises(IlkError, match="federation: stored"):
        resumed(fedavg, moved, begun)


def test_the_engine_may_be_another(fedavg, blobs, losing, begun, whole):
    run = resumed(fedavg, blobs, begun, engine=losing())
    assert run.model_digest == whole.model_digest
    assert run.history["loss"] == whole.history["loss"]


def test_a_finished_run_resumed_is_the_same_run(fedavg, blobs, tmp_path):
    folder = tmp_path / "run"
    first = ilk.run(fedavg, blobs, out=folder, **PLAN)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = resumed(fedavg, blobs, folder)
    assert again.result() == first.result()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# ---- a full disk


def test_a_full_disk_leaves_what_was_saved(fedavg, blobs, whole, tmp_path, monkeypatch):
    """Whatever write is the one that finds no space, the run can be resumed from the round before."""
    sync = os.fsync

    def counting(limit):
        calls = []

        def fsync(handle):
            calls.append(handle)
            if len(calls) > limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(handle)

        return fsync

    refused = 0
    for limit in range(7, 60):
        folder = tmp_path / str(limit)
        monkeypatch.setattr(os, "fsync", counting(limit))
        try:
            ilk.run(fedavg, blobs, out=folder, **PLAN)
        except IlkError as error:
            said = str(error)
        else:
            break
        finally:
            monkeypatch.setattr(os, "fsync", sync)
        refused += 1
        assert "the disk is full; free some space" in said
        assert f"go on with --resume {folder}" in said
        run = resumed(fedavg, blobs, folder)
        assert run.model_digest == whole.model_digest
        assert run.history["loss"] == whole.history["loss"]
        assert ilk.Run.load(folder).ledger.entries == whole.ledger.entries
        assert not list(folder.glob(".*")), "no temporary file is left"
    assert refused >= 10


def test_a_full_disk_does_not_touch_the_checkpoint(fedavg, blobs, begun, monkeypatch):
    before = (begun / "checkpoint.safetensors").read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IlkError, match="disk is full"):
        resumed(fedavg, blobs, begun)
    assert (begun / "checkpoint.safetensors").read_bytes() == before


def test_a_commit_counts_its_lines_and_its_round(fedavg, tmp_path):
    (tmp_path / "run.json").write_text("{}")
    for name in ("history.jsonl", "ledger.jsonl"):
        (tmp_path / name).touch()
    folder = RunFolder(tmp_path)
    assert folder.restore(fedavg) is None
    state = State(models=np.ones((1, 4), np.float32))
    folder.commit({"round": 1}, [Entry(1, "up", "model", (0, 2), 16)], state, [{}], 1)
    folder.commit({"round": 2}, [], state, [{}], 2)
    folder.close()
    read = ilk.Run.load(tmp_path)
    assert list(read.history) == [{"round": 1}, {"round": 2}]
    assert read.ledger.entries == [Entry(1, "up", "model", (0, 2), 16)]
