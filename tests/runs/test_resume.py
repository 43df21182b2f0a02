"""A run that is killed, whenever that may be, and resumed is the run that was never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import ilk
from ilk.checked import make
from ilk.engines import Inline
from ilk.errors import IlkError, Interrupted
from ilk.methods import make_method
from ilk.runs.experiment import Experiment
from ilk.runs.play import play, stored

METHODS = ("solo", "fedavg", "flis-dc")

# Forks a process for each moment, which kills itself there; then one that resumes. The parent itself computes nothing.
DRIVER = """
    import json, os, signal, sys, traceback
    from pathlib import Path
    import numpy as np
    import torch
    torch.set_num_threads(1)
    import ilk
    import ilk.data.silos
    import ilk.runs.run  # before the forks, or each of them imports it all anew
    from ilk.methods import make_method
    from ilk.errors import IlkError

    root = Path(sys.argv[1])
    real = {name: getattr(os, name) for name in ("fsync", "replace", "truncate")}

    def federation():
        random = np.random.default_rng(0)
        clients = {f"c{k}": (random.normal(size=(20 + k, 4)), np.arange(20 + k) % 3) for k in range(4)}
        return ilk.from_arrays(clients, auxiliary=random.normal(size=(12, 4)))

    def play(method, out, resume=False):
        made = make_method(method, {"local": {"epochs": 1}})
        plan = {"rounds": 2 if method == "solo" else 1, "cohort": 0.5, "engine": "inline"}
        return ilk.run(made, federation(), out=out, resume=resume, **plan)

    def kill_at(name, n, after):
        calls = []
        def dying(*args, **more):
            calls.append(args)
            if len(calls) == n and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = real[name](*args, **more)
            if len(calls) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return done
        setattr(os, name, dying)

    def outcome(run):
        return {
            "digest": run.model_digest,
            "accuracies": run.history["accuracy_by_client"],
            "losses": run.history["loss"],
            "ledger": [vars(entry) for entry in run.ledger.entries],
            "partition": run.folder is None or (run.folder / "partition.json").exists(),
        }

    def apart(work):
        # Do this in a process of its own; return its signal (or None) and what it returned.
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                result = work()
            except IlkError as error:
                result = {"refused": str(error)}
            except BaseException:
                result = {"crashed": traceback.format_exc()}
            with os.fdopen(writing, "w") as file:
                json.dump(result, file, default=str)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as file:
            text = file.read()
        _, status = os.waitpid(child, 0)
        return (os.WTERMSIG(status), None) if os.WIFSIGNALED(status) else (None, json.loads(text))

    rows = []
    for method in sys.argv[2:]:
        _, whole = apart(lambda: outcome(play(method, None)))
        for call, after in (("fsync", False), ("replace", True)):
            for n in range(1, 100):
                out = root / f"{method}-{call}-{n}"
                def dying():
                    kill_at(call, n, after)
                    play(method, out)
                killed, _ = apart(dying)
                if killed is None:
                    break
                again, resumed = apart(lambda: outcome(play(method, out, resume=True)))
                anew = None
                if again is None and "refused" in resumed:
                    _, anew = apart(lambda: outcome(play(method, out)))
                rows.append([f"{method}, {call} {n}, after={after}", whole, resumed, anew])
        if method != "solo":
            continue
        # killed at every moment of a resumed run too
        for n in range(1, 100):
            out = root / f"{method}-twice-{n}"
            def first():
                kill_at("fsync", 13, False)
                play(method, out)
            def second():
                kill_at("fsync", n, False)
                play(method, out, resume=True)
            assert apart(first)[0] == signal.SIGKILL
            if apart(second)[0] is None:
                break
            _, resumed = apart(lambda: outcome(play(method, out, resume=True)))
            rows.append([f"{method}, resumed and killed at {n}", whole, resumed, None])
    print(json.dumps(rows, default=str))
"""


@pytest.fixture(scope="module")
def killed_everywhere(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    driver = folder / "driver.py"
    driver.write_text(textwrap.dedent(DRIVER))
    done = subprocess.run(
        [sys.executable, str(driver), str(folder), *METHODS], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_any_write_it_ends_in_the_same_run(killed_everywhere):
    """At every sync and after every rename: resumed, or where nothing was begun yet, begun anew."""
    assert len(killed_everywhere) > 60
    wrong = []
    for moment, whole, resumed, anew in killed_everywhere:
        result = anew if anew is not None else resumed
        comparable = {**result, "partition": True}
        if comparable != whole:
            wrong.append((moment, resumed.get("refused"), (anew or resumed).get("refused"), result.get("crashed")))
    assert wrong == []


def test_killed_at_any_write_after_the_first_round_it_is_resumed(killed_everywhere):
    """Work that was done must not be lost: from the first checkpoint on, beginning anew is not the answer."""
    begun_anew = [moment for moment, _, _, anew in killed_everywhere if anew is not None]
    early = tuple(f" {n}," for n in range(1, 6))
    assert [moment for moment in begun_anew if not any(part in moment for part in early)] == []


def test_the_partition_is_in_the_folder_whenever_the_run_was_killed(killed_everywhere):
    missing = [moment for moment, _, resumed, anew in killed_everywhere if (anew or resumed).get("partition") is False]
    assert missing == []


# ---- the command line, killed at random moments


CONFIG = {"data": "digits", "clients": 6, "rounds": 40, "cohort": 0.5, "epochs": 1, "batch_size": 40, "auxiliary": 60}


def command(*arguments):
    return [sys.executable, "-m", "ilk.cli", "run", *arguments, "--engine", "inline"]


def lines(folder):
    try:
        return (folder / "history.jsonl").read_text().count("\n")
    except OSError:
        return 0


def kill_in_the_middle(arguments, folder, beyond, delay):
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while lines(folder) <= beyond and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it had ended before it was killed; give it more rounds"
    assert beyond < lines(folder) < CONFIG["rounds"]


def told(run):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in run.history]


@pytest.mark.parametrize("method", METHODS)
def test_the_command_line_killed_at_a_random_moment(method, tmp_path):
    given = [part for key, value in CONFIG.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    out = tmp_path / "killed"
    moment = random.Random(os.urandom(4))
    kill_in_the_middle(command(method, *given, "--out", str(out)), out, moment.randrange(2, 6), moment.random() * 0.05)
    (whole,) = play(make(Experiment, {**CONFIG, "methods": [method]}), tmp_path / "whole", Inline())
    if method == "fedavg":
        kill_in_the_middle(command("--resume", str(out)), out, lines(out) + 2, moment.random() * 0.05)
        done = subprocess.run(command("--resume", str(out), "--json"), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        result = result["runs"][0] if "runs" in result else result
        assert result["model_digest"] == whole.model_digest
    else:
        (run,) = play(stored(out)[0], out, Inline(), resume=True)
        assert run.model_digest == whole.model_digest
    read, kept = ilk.Run.load(out), ilk.Run.load(tmp_path / "whole")
    assert told(read) == told(kept)
    assert len(read.history) == CONFIG["rounds"]
    assert read.ledger.entries == kept.ledger.entries
    assert read.model_digest == whole.model_digest


# ---- Ctrl-C


def test_an_interrupted_run_says_how_to_go_on(blobs, tmp_path):
    method = make_method("fedavg", {"local": {"epochs": 1}})

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    plan = {"rounds": 3, "engine": "inline"}
    with pytest.raises(Interrupted, match=r"Stopped after round . of 3; what was done is kept. .*--resume .*run"):
        ilk.run(method, blobs, out=tmp_path / "run", on_round=stop, **plan)
    with pytest.raises(Interrupted, match=r"of 3. Nothing was kept: the run has no folder"):
        ilk.run(method, blobs, on_round=stop, **plan)
    assert issubclass(Interrupted, IlkError)
    resumed = ilk.run(method, blobs, out=tmp_path / "run", resume=True, **plan)
    assert resumed.model_digest == ilk.run(method, blobs, **plan).model_digest


def test_an_experiment_that_was_killed_between_its_runs_is_resumed(tmp_path):
    values = {**CONFIG, "rounds": 2, "methods": ["solo", "fedavg"], "seeds": [0, 1]}
    experiment = make(Experiment, values)

    class Killed(BaseException):
        pass

    def watch(method, seed):
        def listen(row):
            if (method.name, seed, row["round"]) == ("fedavg", 0, 1):
                raise Killed

        return listen

    out = tmp_path / "several"
    with pytest.raises(Killed):
        play(experiment, out, Inline(), watch=watch)
    assert stored(out)[0] == experiment
    runs = play(stored(out)[0], out, Inline(), resume=True)
    whole = play(experiment, tmp_path / "whole", Inline())
    assert [run.model_digest for run in runs] == [run.model_digest for run in whole]
    assert [told(run) for run in runs] == [told(run) for run in whole]
    assert len({run.model_digest for run in runs}) == 4
