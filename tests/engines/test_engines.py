"""Every engine ends in the same bits, and none leaves anything behind when something goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import ilk
from ilk.client import Setting
from ilk.engines import Inline, Workers, make_engine
from ilk.errors import IlkError
from ilk.methods import make_method, method_class, registry
from ilk.tasks import Fit, LocalSGD

TASK = Fit(LocalSGD(epochs=1))

HOSTILE = """
import os, signal, time
from dataclasses import dataclass
import numpy as np

@dataclass(frozen=True)
class DieAt:
    client_to_die: int
    def answer(self, client, message):
        if client.index == self.client_to_die:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return {}

@dataclass(frozen=True)
class Fail:
    def answer(self, client, message):
        if client.index == 1:
            raise ZeroDivisionError("one by nothing")
        return {}

@dataclass(frozen=True)
class Report:
    def answer(self, client, message):
        return {kind: np.array(array) for kind, array in message.items()} | {
            "pid": np.array(os.getpid()),
            **{f"memory-{kind}": np.array(array) for kind, array in client.memory.items()},
        }

@dataclass(frozen=True)
class Once:
    def answer(self, client, message):
        return {"shared": client.once("key", lambda: np.array(message["number"]))}

@dataclass(frozen=True)
class Large:
    def answer(self, client, message):
        return {"pid": np.array(os.getpid()), "large": np.zeros(4_000_000, np.float32)}
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Tasks that no honest method asks, in a module that worker processes can import too."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "hostile_tasks.py").write_text(HOSTILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        import hostile_tasks

        yield hostile_tasks


@pytest.fixture(scope="module")
def make_shared(hostile):
    """Engines are expensive to start: one a number of workers, for all tests that only use them."""
    made = {}

    def shared(count):
        return made.setdefault(count, Workers(count) if count else Inline())

    yield shared
    for engine in made.values():
        engine.close()


@pytest.fixture
def pair():
    """Two workers for tests that break them."""
    engine = Workers(2)
    yield engine
    engine.close()


def children():
    """Ids of this process's children that are still there, zombies too."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(after_name[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return set(found)


def setting(federation, **more):
    return Setting(federation, "mlp", 0, **more)


@pytest.fixture(scope="module")
def federations(make_federation):
    """Large enough for its arrays to be files that the workers map; and with what a method needs."""
    shape = {"features": 64, "samples": 60}
    return {True: make_federation(auxiliary=20, **shape), False: make_federation(auxiliary=0, **shape)}


@pytest.mark.parametrize("name", registry())
def test_every_engine_ends_in_the_same_bits(federations, make_shared, name):
    method = make_method(name, {"local": {"epochs": 1}})
    federation = federations[method_class(name).needs_auxiliary]

    def played(count, **plan):
        return ilk.run(method, federation, rounds=3, cohort=0.5, engine=make_shared(count), **plan)

    inline = played(0)
    assert len(set(inline.history["loss"])) > 1
    for count in (1, 2, 3):
        run = played(count)
        assert run.model_digest == inline.model_digest, count
        assert run.history["accuracy_by_client"] == inline.history["accuracy_by_client"]
        assert run.history["loss"] == inline.history["loss"]
        assert run.history["cluster_by_client"] == inline.history["cluster_by_client"]
        assert run.ledger.entries == inline.ledger.entries
    held = [played(count, protocol="last-held") for count in (0, 2)]
    assert held[0].model_digest == held[1].model_digest
    assert held[0].history["loss"] == held[1].history["loss"]
    assert any(held[0].memories)


def test_one_engine_for_several_federations(blobs, make_federation, make_shared):
    method = make_method("fedavg", {"local": {"epochs": 1}})
    digits = ilk.federation("digits", clients=4, split="iid")
    for federation in (blobs, digits, make_federation(clients=3, features=40, samples=200, seed=5), blobs):
        for protocol in ("served", "global"):
            plan = {"rounds": 1, "protocol": protocol}
            run = ilk.run(method, federation, engine=make_shared(2), **plan)
            inline = ilk.run(method, federation, engine="inline", **plan)
            assert run.model_digest == inline.model_digest
            assert run.history["loss"] == inline.history["loss"]


def test_messages_and_memories_arrive_as_they_were_sent(blobs, hostile, make_shared):
    base = np.arange(36, dtype=np.float32).reshape(6, 6)
    message = {
        "plain": base,
        "turned": base.T,  # the same address, shape and type as `plain`
        "part": base[::2],
        "first": base[:3],
        "number": np.array(7.5),
        "empty": np.empty((0, 4), np.float32),
        "whole": np.array([1, 2**40]),
        "truth": np.array([True, False]),
    }
    memory = {"count": np.array(3), "model": base[:, 1]}
    for count in (0, 1):
        engine = make_shared(count)
        engine.open(setting(blobs))
        engine.memories[2] = memory
        (answer,) = engine.ask(hostile.Report(), {2: message}, 1)
        sent = {**message, **{f"memory-{kind}": array for kind, array in memory.items()}}
        for kind, array in sent.items():
            came = answer.message[kind]
            assert (came.dtype, came.shape) == (array.dtype, array.shape), (count, kind)
            assert np.array_equal(came, array), (count, kind)


def test_each_client_gets_its_own_message(blobs, hostile, make_shared):
    engine = make_shared(2)
    engine.open(setting(blobs))
    common = np.arange(4)
    for round in (1, 2):
        messages = {k: {"common": common, "own": np.array([k * 10 + round])} for k in range(6)}
        answers = {a.client: a.message for a in engine.ask(hostile.Report(), messages, round)}
        assert {k: m["own"].tolist() for k, m in answers.items()} == {k: [k * 10 + round] for k in range(6)}
        assert all(m["common"].tolist() == [0, 1, 2, 3] for m in answers.values())
    assert len({int(m["pid"]) for m in answers.values()}) == 2
    assert os.getpid() not in {int(m["pid"]) for m in answers.values()}


def test_what_clients_share_is_computed_once_and_forgotten_with_the_next_ask(blobs, hostile, make_shared):
    for count in (0, 1):
        engine = make_shared(count)
        engine.open(setting(blobs))
        for round in (1, 2):
            messages = {k: {"number": np.array([10 * round + k])} for k in (3, 4, 5)}
            shared = {answer.message["shared"].item() for answer in engine.ask(hostile.Once(), messages, round)}
            assert len(shared) == 1, "one of them computes for all"
            assert shared <= {10 * round + k for k in (3, 4, 5)}, "and never for the next ask"


def test_nobody_is_asked(blobs, make_shared):
    for count in (0, 2):
        engine = make_shared(count)
        engine.open(setting(blobs))
        assert list(engine.ask(TASK, {}, 1)) == []


def test_a_killed_worker_is_an_error_and_nothing_is_left(blobs, hostile, pair, at_most):
    before = children()
    pair.open(setting(blobs))
    assert len(children() - before) == 2
    with at_most(60), pytest.raises(IlkError, match=r"ended .signal 9, often: out of memory.*round 4.*resume the run"):
        list(pair.ask(hostile.DieAt(3), {k: {} for k in range(6)}, 4))
    pair.close()
    assert children() == before


def test_a_worker_killed_while_it_answers_is_an_error_too(blobs, hostile, pair, at_most):
    """It dies with half of its answer in the pipe."""
    before = children()
    pair.open(setting(blobs))
    with at_most(60):
        answers = pair.ask(hostile.Large(), {0: {}, 1: {}}, 1)
        first = next(answers)
        (other,) = children() - before - {int(first.message["pid"])}
        time.sleep(1)  # until its pipe is full
        os.kill(other, signal.SIGKILL)
        with pytest.raises(IlkError, match="signal 9"):
            list(answers)
    pair.close()
    assert children() == before


def test_a_worker_killed_between_two_rounds_ends_the_run_and_a_new_one_begins(blobs, at_most, tmp_path):
    before = children()
    engine = Workers(1)
    method = make_method("fedavg", {"local": {"epochs": 1}})
    folder = tmp_path / "run"

    def kill(row):
        if row["round"] == 1:
            (worker,) = children() - before
            os.kill(worker, signal.SIGKILL)
            time.sleep(0.2)

    with at_most(90):
        with pytest.raises(IlkError, match="signal 9"):
            ilk.run(method, blobs, rounds=3, engine=engine, out=folder, on_round=kill)
        resumed = ilk.run(method, blobs, rounds=3, engine=engine, out=folder, resume=True)
    engine.close()
    assert children() == before
    assert resumed.model_digest == ilk.run(method, blobs, rounds=3, engine="inline").model_digest


def test_a_task_that_fails_shows_where_and_the_engine_is_of_use_again(blobs, hostile, make_shared, at_most):
    for count in (0, 1):
        engine = make_shared(count)
        engine.open(setting(blobs))
        with at_most(60), pytest.raises((RuntimeError, ZeroDivisionError)) as failure:
            list(engine.ask(hostile.Fail(), {k: {} for k in range(6)}, 3))
        if count:
            assert failure.type is RuntimeError
            assert "client 'client-1' in round 3" in str(failure.value)
            assert "ZeroDivisionError: one by nothing" in str(failure.value)
            assert "hostile_tasks.py" in str(failure.value)
        engine.open(setting(blobs))
        with at_most(60):
            assert len(list(engine.ask(hostile.Report(), {k: {} for k in range(6)}, 3))) == 6


def test_a_run_that_diverges_says_the_same_on_every_engine(blobs, make_shared, at_most):
    method = make_method("fedavg", {"local": {"epochs": 1, "lr": 1e20}})
    for count in (0, 2):
        with at_most(60), pytest.raises(IlkError, match=r"Round 1: the training of client 'client-.' diverged"):
            ilk.run(method, blobs, rounds=1, engine=make_shared(count))


def test_a_setting_that_is_refused_does_not_spoil_the_next(blobs, pair, at_most):
    with pytest.raises(IlkError, match="no model 'nonsense'"):
        pair.open(Setting(blobs, "nonsense", 0))
    with at_most(60):
        pair.open(setting(blobs))
        message = {"models": np.zeros((1, 579), np.float32)}
        assert len(list(pair.ask(TASK, dict.fromkeys(range(6), message), 1))) == 6


def test_closing_twice_is_fine_and_a_closed_engine_does_not_hang(blobs, hostile, at_most):
    engine = Workers(1)
    engine.close()
    engine.open(setting(blobs))
    engine.close()
    engine.close()
    with at_most(5), pytest.raises((RuntimeError, IlkError)):
        list(engine.ask(hostile.Report(), {0: {}}, 1))


def test_data_files_of_earlier_runs_are_let_go(federations, make_shared, tmp_path, monkeypatch):
    """An engine that plays a hundred runs must not fill the disk with a hundred copies of the data."""
    engine = make_shared(1)
    engine.close()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for _ in range(3):
        engine.open(setting(federations[False]))
    files = list(tmp_path.rglob("*.npy"))
    assert files, "the data of this federation is large enough to be mapped"
    assert len({path.read_bytes() for path in files}) == len(files)
    engine.close()
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
    from dataclasses import dataclass
    import numpy as np
    import ilk
    from ilk.client import Setting
    from ilk.engines import Workers
    from ilk.methods import make_method

    @dataclass(frozen=True)
    class MyTask:
        def answer(self, client, message):
            return {}

    random = np.random.default_rng(0)
    clients = {f"c{k}": (random.normal(size=(20, 3)), np.arange(20) % 2) for k in range(4)}
    method = make_method("fedavg", {"local": {"epochs": 1}})
    federation = ilk.from_arrays(clients)
    run = ilk.run(method, federation, rounds=2, engine="workers", workers=1)
    print(run.model_digest == ilk.run(method, federation, rounds=2, engine="inline").model_digest)
    engine = Workers(1)
    engine.open(Setting(federation, "mlp", 0))
    try:
        list(engine.ask(MyTask(), {0: {}}, 1))
    except (ilk.IlkError, RuntimeError) as error:
        print(error)
    engine.close()
"""


def run_script(tmp_path, text, **more):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, **more
    )


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    return run_script(tmp_path_factory.mktemp("script"), SCRIPT)


def test_a_script_without_a_main_guard(script):
    assert script.returncode == 0, script.stderr
    assert script.stdout.startswith("True\n")


def test_a_task_of_the_script_itself_is_refused_with_the_reason(script):
    """What is defined in a script or notebook cannot be found by a worker process; the user must be told so."""
    assert "MyTask" in script.stdout, script.stdout + script.stderr


def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path, at_most):
    text = """
        import os, signal
        import numpy as np
        import ilk
        from ilk.methods import make_method

        def kill(row):
            os.kill(os.getpid(), signal.SIGKILL)

        x = np.zeros((10, 3)), np.arange(10) % 2
        ilk.run(make_method("fedavg", {}), ilk.from_arrays({"a": x}), engine="workers", workers=1, on_round=kill)
    """
    mark = f"ILK_TEST_MARK={tmp_path}"
    name, _, value = mark.partition("=")
    assert run_script(tmp_path, text, env={**os.environ, name: value}).returncode == -signal.SIGKILL

    def marked():
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark.encode() in path.read_bytes():
                    found.append(path.parent.name)
            except OSError:
                continue
        return found

    with at_most(20):
        while marked():
            time.sleep(0.05)


def test_engines_by_name():
    assert isinstance(make_engine("inline"), Inline)
    assert isinstance(make_engine("workers", 3), Workers)
    assert make_engine("workers", 3).count == 3
    assert make_engine("auto", 2).name == "workers"
    with pytest.raises(IlkError, match=r"no engine 'worker'. Did you mean 'workers'"):
        make_engine("worker")
    for count in (0, -1):
        with pytest.raises(IlkError, match=f"--workers {count} is not allowed"):
            make_engine("workers", count)


def test_a_run_leaves_the_threads_and_the_randomness_of_pytorch_alone(blobs):
    import torch

    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    before = torch.get_num_threads()
    ilk.run(make_method("fedavg", {"local": {"epochs": 1}}), blobs, rounds=1, engine="inline")
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == before
