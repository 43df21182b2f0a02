"""Processes that are kept alive: a client that is killed comes back, and a server that crashes goes on where it was."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from ilk.checked import plain
from ilk.engines.flower.control import Control
from ilk.engines.flower.gate import Standing
from ilk.engines.flower.layout import CA_CERTIFICATE, CERTIFICATE, KEY, public_keys, read_server
from ilk.engines.flower.quiet import OFF
from ilk.engines.flower.run import JOB, OUTCOME, Job
from ilk.errors import IlkError, Interrupted
from ilk.runs.folder import RUN, read_json, refuse_taken, replace

log = logging.getLogger("ilk.flower")
START = 90.0  # seconds until Flower must listen
SHORT, LONG = 2.0, 30.0  # seconds until a client is started again: longer each time that it did not last
TRIES = 5  # times that the server app may crash without having played a round between


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes: nothing unasked, our programs first, and a home of its own."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **one, **OFF, "PATH": path, "FLWR_HOME": str(home / "flower")}


def serve(folder: Path, job: Job, resume: bool, listen: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Start SuperLink, gate and run, and stay until the run is over; return its result."""
    file, out = read_server(folder), Path(job.out)
    if resume and not (out / RUN).exists():
        raise IlkError(f"There is no run in {out} to go on with. Leave --resume away.")
    if not resume:
        refuse_taken(out)
    write_job(folder, job)
    gate = Standing(folder, file, listen)
    link = subprocess.Popen(
        [
            *(sys.executable, "-m", "ilk.engines.flower.link"),
            *("--host", "127.0.0.1", "--port", str(file.inner_port), "--enable-supernode-auth"),
            *("--ssl-certfile", str(folder / CERTIFICATE), "--ssl-keyfile", str(folder / KEY)),
            *("--ssl-ca-certfile", str(folder / CA_CERTIFICATE), "--disable-runtime-dependency-installation"),
        ],
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=(folder / "flower.log").open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for this process, which ends Flower itself
    )
    try:
        control = Control(folder, file)
        _until_up(control, link, folder)
        control.register(public_keys(folder))
        gate.open()
        tell(f"Listening on port {file.port} for {', '.join(public_keys(folder).values())}.")
        return _see_through(folder, control, link, job)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Stopped; every whole round is kept. Go on with: ilk serve {shlex.quote(str(folder))} --resume"
        ) from None
    finally:
        gate.close()
        end(link)


def write_job(folder: Path, job: Job) -> None:
    """Write what a server app is to do."""
    replace(folder / JOB, json.dumps(plain(job), indent=2).encode())
    (folder / OUTCOME).unlink(missing_ok=True)


def _until_up(control: Control, link: subprocess.Popen[bytes], folder: Path) -> None:
    late = time.monotonic() + START
    while not control.is_up():
        if link.poll() is not None or time.monotonic() > late:
            raise IlkError(f"Flower's SuperLink did not start; {folder / 'flower.log'} says why.")
        time.sleep(0.3)


def _see_through(folder: Path, control: Control, link: subprocess.Popen[bytes], job: Job) -> dict[str, Any]:
    """Start the run, and start it again when its app crashes: it goes on from its last whole round."""
    crashes, played, run = 0, _played(job), control.start(folder)
    while True:
        time.sleep(1.0)
        if (folder / OUTCOME).exists():
            outcome = read_json(folder / OUTCOME)
            if "error" in outcome:
                raise IlkError(outcome["error"])
            result: dict[str, Any] = outcome["result"]
            return result
        if link.poll() is not None:
            raise IlkError(f"Flower's SuperLink ended; {folder / 'flower.log'} says why. Go on with --resume.")
        with suppress(httpx.HTTPError):  # busy: asked again in a second
            control.register(public_keys(folder))
            how = control.ended(run)
            if how is None or (folder / OUTCOME).exists():
                continue
            crashes, played = (1, _played(job)) if _played(job) != played else (crashes + 1, played)
            log.warning("the server app ended (%s); try %d of %d", how, crashes, TRIES)
            if crashes > TRIES:
                raise IlkError(
                    f"The server app crashed {TRIES} times in the same round; {folder / 'flower.log'} says why."
                )
            run = control.start(folder)


def _played(job: Job) -> int:
    history = Path(job.out) / "history.jsonl"
    return history.stat().st_size if history.exists() else -1


def keep_client(folder: Path, arguments: Mapping[str, str | None], tell: Callable[[str], None]) -> None:
    """Run a client, and start it again whenever it ends, until this process is told to stop."""
    given = [text for name, value in arguments.items() if value is not None for text in (f"--{name}", value)]
    command = [sys.executable, "-m", "ilk.engines.flower.node", str(folder), *given]
    wait = SHORT
    while True:
        began = time.monotonic()
        process = subprocess.Popen(command, env=environment(folder), stdin=subprocess.DEVNULL)
        try:
            code = process.wait()
        finally:
            end(process)
        # Whose key or certificate is refused asks again, but ever more rarely.
        wait = SHORT if time.monotonic() - began > LONG else min(2 * wait, LONG)
        tell(f"The client ended ({code}); it is started again in {wait:.0f} s.")
        time.sleep(wait)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process: ask, then make."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
