"""Real processes on 127.0.0.1: a SuperLink behind its gate, SuperNodes, and what stands or gets in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import ilk
from ilk.engines.flower import deploy
from ilk.engines.flower.quiet import OFF

PATIENCE = 25  # seconds that an answer may take in these tests
PROGRAM = [sys.executable, "-m", "ilk.cli"]


def free_ports():
    """A port that is free, and whose next is free too."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with suppress(OSError):
                two.bind(("127.0.0.1", port + 1))
                return port
    raise RuntimeError("no two ports are free")


class Federation:
    """A deployment in a folder, and the processes that a test has started for it."""

    def __init__(self, folder: Path, names):
        self.folder, self.names, self.port = folder, names, free_ports()
        self.processes, self.serving, self.mark = {}, None, f"ILK_TEST_FOLDER={folder}"
        deploy.init(folder / "dep", names, "127.0.0.1", self.port)

    def start(self, name, command):
        path, _, value = self.mark.partition("=")
        log = (self.folder / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **OFF, path: value},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        return self.processes[name]

    def serve(self, *options):
        command = [*PROGRAM, "serve", "dep", "--listen", "127.0.0.1", "--patience", str(PATIENCE), *map(str, options)]
        self.serving = self.start("serve", command)

    def client(self, name, data="data", port=None, supervised=False):
        """Start a client; without its supervisor it is one process fewer, and does not come back when it ends."""
        where, folder = f"127.0.0.1:{port or self.port}", str(self.folder / "dep" / name)
        node = [sys.executable, "-m", "ilk.engines.flower.node", folder, "--data", str(data), "--address", where]
        kept = [*PROGRAM, "client", folder, "--data", str(data), "--server", where]
        self.start(name, kept if supervised else node)

    def told(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def status(self):
        path = self.folder / "dep" / "server" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {"clients": {}, "round": 0, "phase": "begin"}

    def until(self, what, seconds, why):
        """Wait until something is so; fail with the logs when it does not come, or the server ends."""
        late = time.monotonic() + seconds
        while not what():
            ended = self.serving is not None and self.serving.poll() is not None
            assert not ended or what(), f"{why}: the server ended\n{self.logs()}"
            assert time.monotonic() < late, f"{why}: not within {seconds} s\n{self.logs()}"
            time.sleep(0.1)

    def finish(self, seconds):
        """Wait for the end of the run; return it."""
        self.until(lambda: self.serving.poll() is not None, seconds, "the run ends")
        assert self.serving.returncode == 0, self.logs()
        return ilk.Run.load(self.folder / "dep" / "server" / "run")

    def logs(self):
        texts = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(self.folder.glob("*.log"))
        ]
        server = [self.folder / "dep" / "server" / name for name in ("federation.log", "flower.log")]
        return "\n".join([*texts, *(path.read_text(errors="replace")[-6000:] for path in server if path.exists())])

    def of(self, part):
        """Ids of the processes of this federation whose command line has this part."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if part in line and self.mark.encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    def kill(self, part):
        found = self.of(part)
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return len(found)

    def close(self):
        for _ in range(50):
            if not self.kill(""):
                break
            time.sleep(0.1)
        for process in self.processes.values():
            process.wait(10)


@pytest.fixture
def federation(tmp_path):
    """Make a federation of clients with these names; its processes are killed at the end, whatever happens."""
    made = []

    def make(*names, later=()):
        made.append(Federation(tmp_path, names))
        write_data(tmp_path / "data", (*names, *later))
        return made[-1]

    yield make
    for one in made:
        one.close()


def write_data(folder, names, samples=120):
    """Write handwritten digits, of every second client turned by a quarter."""
    folder.mkdir()
    whole = ilk.federation("digits", split="rotate:2", clients=len(names))
    for k, name in enumerate(names):
        x, y = whole.read(k, "train+validation")
        np.savez(folder / f"{name}.npz", x=x.reshape(len(x), -1)[:samples], y=y[:samples])


class Relay:
    """A TCP relay on loopback that counts what it carries."""

    def __init__(self, port):
        self.port, self.carried, self.open = port, {"up": 0, "down": 0}, []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.own_port = self.listening.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with suppress(OSError):
            while True:
                near, _ = self.listening.accept()
                self.open.append(near)
                try:
                    far = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    near.close()
                    continue
                self.open.append(far)
                for source, target, way in ((near, far, "up"), (far, near, "down")):
                    threading.Thread(target=self._carry, args=(source, target, way), daemon=True).start()

    def _carry(self, source, target, way):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.carried[way] += len(data)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        for one in (self.listening, *self.open):
            one.close()


@pytest.fixture
def relay():
    """Make relays to a port."""
    made = []

    def make(port):
        made.append(Relay(port))
        return made[-1]

    yield make
    for one in made:
        one.close()
