"""Ctrl-C and worse: the command ends at once, says how to go on, leaves no process, and going on ends in the same bits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ilk import Run

SLOW = ["--compute", "torch"]  # natively these runs would be over before anybody could stop them
JOB = ["--clients", "8", "--epochs", "3", "--rounds", "6", "--batch-size", "20", *SLOW]
COMMAND = [sys.executable, "-m", "ilk.cli"]

STOPPABLE = """
from pathlib import Path
from torch import nn

calls = 0

class Net(nn.Linear):
    def forward(self, x):
        global calls
        calls += self.training
        stop = Path("stop")
        if self.training and stop.exists() and calls > int(stop.read_text()):
            stop.unlink()
            raise KeyboardInterrupt
        return super().forward(x.flatten(1))

def make(classes):
    return Net(64, classes)
"""


def said(ended) -> str:
    """The command that the message tells to type, after `ilk`."""
    assert "Traceback" not in ended.err
    assert re.search(r"Stopped after round \d of", ended.err)
    return ended.err.split("ilk ")[-1].strip()


# ---- in this process: a model that is interrupted after some training steps


@pytest.mark.parametrize("steps", [0, 1, 30, 60, 70])
def test_what_the_message_says_goes_on(fast, ilk, module, steps):
    module("stoppable", STOPPABLE)
    model = ["--model", "stoppable:make"]
    whole = fast("run", "fedavg", *model, "--rounds", "3", "--json").json["model_digest"]  # 84 steps
    module("stoppable2", STOPPABLE)
    Path("stop").write_text(str(steps))
    ended = fast("run", "fedavg", "--model", "stoppable2:make", "--rounds", "3", "--out", "r")
    assert ended.code == 130
    assert f"Stopped after round {steps // 28} of 3" in ended.err
    assert len(Run.load("r").history) == steps // 28
    command = said(ended).split()
    assert command == ["run", "--resume", "r"]
    assert ilk(*command, "--engine", "inline", "--json").json["model_digest"] == whole


@pytest.mark.parametrize("steps", [10, 70])
def test_a_comparison_goes_on_as_the_message_says(fast, ilk, module, steps):
    job = ["compare", "solo", "fedavg", "--model", "stoppable:make"]  # 56 steps each
    module("stoppable", STOPPABLE)
    whole = [run["model_digest"] for run in fast(*job, "--json").json["runs"]]
    sys.modules.pop("stoppable")
    Path("stop").write_text(str(steps))
    ended = fast(*job, "--out", "r")
    assert ended.code == 130
    folders = sorted(path.parent for path in Path("r").rglob("run.json"))
    found = ilk(*said(ended).split(), "--engine", "inline", "--json").json
    assert [run["model_digest"] for run in found["runs"]] == whole
    assert sorted(path.parent for path in Path("r").rglob("run.json")) == [
        *(Path("r/fedavg-seed0"), Path("r/solo-seed0"))
    ]
    assert set(folders) <= {Path("r/fedavg-seed0"), Path("r/solo-seed0")}


@pytest.mark.parametrize("where", ["ilk.runs.play.federation_of", "ilk.engines.inline.Inline.open"])
def test_before_the_first_round(fast, monkeypatch, where):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(where, stop)
    ended = fast("run", "solo", "--out", "r")
    assert (ended.code, ended.out) == (130, "")
    assert "Traceback" not in ended.err
    assert "Stopped" in ended.err
    assert Path("r/run.json").exists() == ("--resume r" in ended.err)


# ---- real signals


def started(*arguments, out, wait_for="round 2/"):
    """Start a run and wait until a line says `wait_for`."""
    log = Path(f"{out}.log").open("w+")  # noqa: SIM115  # closed by the caller
    process = subprocess.Popen(
        [*COMMAND, "run", "fedavg", *JOB, *arguments, "--out", out], stdout=log, stderr=log, start_new_session=True
    )
    until(lambda: wait_for in Path(log.name).read_text() or process.poll() is not None)
    return process, log


def until(holds, seconds=40):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def whole(ilk):
    """The digest of the run that nobody stops."""
    return ilk("run", "fedavg", *JOB, "--engine", "inline", "--json").json["model_digest"]


linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@linux
@pytest.mark.parametrize(("sent", "engine"), [("SIGINT", "workers"), ("SIGKILL", "workers"), ("SIGKILL", "inline")])
def test_signal(ilk, whole, sent, engine):
    process, log = started("--engine", engine, *(["--workers", "2"] if engine == "workers" else []), out="r")
    with log:
        workers = children(process.pid)
        assert len(workers) == (2 if engine == "workers" else 0)
        os.killpg(process.pid, getattr(signal, sent))
        code = process.wait(20)
        printed = Path(log.name).read_text()
    assert code == (130 if sent == "SIGINT" else -signal.SIGKILL)
    assert "Traceback" not in printed
    assert ("--resume r" in printed) == (sent == "SIGINT")
    until(lambda: not any(map(alive, workers)), 10)
    found = ilk("run", "--resume", "r", "--engine", "inline", "--json").json
    assert found["model_digest"] == whole
    assert found["rounds"] == 6


@linux
def test_ctrl_c_on_a_terminal(ilk):
    """Rounds of about a second: long enough for the live line to show each on a fast machine."""
    import pty

    slow = ["--clients", "8", "--epochs", "100", "--rounds", "4", "--batch-size", "20", "--engine", "inline", *SLOW]
    whole = ilk("run", "fedavg", *slow, "--json").json["model_digest"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "run", "fedavg", *slow, "--out", "r"],
        **{"stdin": theirs, "stdout": theirs, "stderr": theirs},
        start_new_session=True,
        preexec_fn=take_terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = b""
    try:
        while b"1/4" not in shown:
            shown += os.read(ours, 4096)
    except OSError:
        process.kill()
        raise AssertionError(f"the run ended before it showed a round: {shown!r}") from None
    os.write(ours, b"\x03")
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    assert process.wait(20) == 130
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).decode()
    assert "ilk run --resume r" in text
    assert "Traceback" not in text
    assert shown.endswith(b"\n")
    assert b"\x1b[?25h" in shown  # the cursor is back
    assert ilk("run", "--resume", "r", "--engine", "inline", "--json").json["model_digest"] == whole


def take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@linux
@pytest.mark.parametrize("seconds", [1.5])
def test_ctrl_c_while_libraries_are_loaded(seconds):
    """An impatient user sees no traceback either."""
    process = subprocess.Popen(
        [*COMMAND, "run", "fedavg", *JOB, "--out", "r"],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    printed = process.communicate(timeout=20)[0].decode()
    assert "Traceback" not in printed
    assert process.returncode in (130, -signal.SIGINT)
