"""`ilk watch`: from another process, under a pseudo-terminal, until the run ends or somebody stops watching."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "ilk.cli"]
# natively these runs would be over before anybody could watch them
SLOW = ["--clients", "8", "--batch-size", "20", "--engine", "inline", "--compute", "torch"]


@pytest.fixture
def process():
    """Start commands; end those that are still there."""
    started = []

    def start(*arguments, **options):
        started.append(subprocess.Popen([*COMMAND, *map(str, arguments)], start_new_session=True, **options))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
        one.wait()


@pytest.fixture
def terminal(process):
    """Start a command on a terminal of its own; return the process and a function that reads what it shows."""
    opened = []

    def start(*arguments):
        ours, theirs = pty.openpty()
        opened.append(ours)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
        running = process(*arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        shown = bytearray()

        def read(until=None):
            deadline = time.monotonic() + 90
            while until is None or until not in shown:
                assert time.monotonic() < deadline, shown.decode(errors="replace")
                try:
                    shown.extend(os.read(ours, 4096))
                except OSError:  # the other side is closed
                    break
            return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))

        return running, read

    yield start
    for one in opened:
        os.close(one)


def begun(folder, timeout=60):
    deadline = time.monotonic() + timeout
    while not (folder / "run.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_of_another_process_until_it_ends(process, terminal):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = process("run", "fedavg", *SLOW, "--epochs", "60", "--rounds", "8", "--out", "r", **quiet)
    begun(Path("r"))
    watching, read = terminal("watch", "r", "--every", "0.1")
    shown = read()
    assert watching.wait(30) == 0
    assert run.wait(30) == 0
    assert "fedavg" in shown
    assert "round 8/8" in shown
    assert "done" in shown
    assert "1 cluster " in shown
    assert " MB" in shown
    assert re.search(r"[▁▂▃▄▅▆▇█]{3}", shown)
    assert re.search(r"\d:\d\d left", shown)
    assert "Traceback" not in shown


def test_ctrl_c_stops_watching_and_not_the_run(process, terminal):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = process("run", "fedavg", *SLOW, "--epochs", "100", "--rounds", "50", "--out", "r", **quiet)
    begun(Path("r"))
    watching, read = terminal("watch", "r", "--every", "0.1")
    read(until=b"round")
    os.killpg(watching.pid, signal.SIGINT)
    shown = read()
    assert watching.wait(20) == 0
    assert "No longer watching. The run itself is not touched." in shown
    assert "Traceback" not in shown
    assert run.poll() is None


def test_a_run_that_was_stopped(fast, ilk):
    fast("run", "solo", "--out", "r")
    Path("r/result.json").unlink()
    ended = ilk("watch", "r", "--every", "0.05")
    assert ended.code == 0
    assert "solo round 2/2" in ended.out
    assert "Nobody is working on it. Go on with: ilk run --resume r" in ended.out


def test_a_finished_comparison(fast, ilk):
    fast("compare", "solo", "fedavg", "--out", "r")
    ended = ilk("watch", "r")
    assert [line.split()[0] for line in ended.out.splitlines()] == ["solo", "fedavg"]
    assert ended.out.count("done") == 2


def test_nothing_to_watch(ilk):
    ended = ilk("watch", "nowhere")
    assert ended.code == 2
    assert "There is no run in nowhere" in ended.err
