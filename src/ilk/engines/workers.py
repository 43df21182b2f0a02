"""The engine of persistent worker processes on this machine: one core and one PyTorch thread each.

Workers are started as plain programs, not forked or spawned from the caller's script, so that a notebook or a script
without a main guard works. What crosses the pipes: the setting once (its data as memory-mapped files, so that all workers
share the pages), then tasks and raw array buffers. An array that several clients receive is sent to a worker once.
"""

from __future__ import annotations

import os
import pickle  # between this process and its own children only; nothing is ever read from a file
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from io import BytesIO
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.client import Message, Setting
from ilk.engines.engine import Remembering, cores
from ilk.errors import IlkError
from ilk.server import Answer
from ilk.tasks.task import Task

ArrayKey = tuple[int, tuple[int, ...], tuple[int, ...], str]  # address, shape, strides, type
LARGE = 1 << 16  # bytes from which an array of the setting becomes a file that workers map


def send(pipe: Connection, content: Any) -> None:
    """Send an object; the bytes of its arrays go beside it, uncopied."""
    buffers: list[pickle.PickleBuffer] = []
    header = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
    pipe.send_bytes(pickle.dumps((header, len(buffers))))
    for buffer in buffers:
        pipe.send_bytes(buffer.raw())


def receive(pipe: Connection) -> Any:
    """Receive what `send` sent."""
    header, count = pickle.loads(pipe.recv_bytes())
    return pickle.loads(header, buffers=[pipe.recv_bytes() for _ in range(count)])


class Workers(Remembering):
    """Clients are answered for by `count` processes, each taking the next client when it is free."""

    name = "workers"

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()
        self._workers: list[_Worker] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._asks = self._packs = 0

    def open(self, setting: Setting) -> None:
        """Make ready for a run; processes are started at the first one and kept for the next."""
        if not self._folder:
            self._folder = tempfile.TemporaryDirectory(prefix="ilk-workers-")
        try:
            self._start(setting)
        except BaseException:
            self.close()
            raise
        self.visible = setting.federation
        self.sizes = setting.federation.sizes
        self.ids = setting.federation.ids
        self.memories = [{} for _ in setting.federation.ids]

    def _start(self, setting: Setting) -> None:
        while len(self._workers) < self.count:
            self._workers.append(_Worker())
        assert self._folder
        self._packs += 1
        folder = Path(self._folder.name) / str(self._packs)
        folder.mkdir()
        packed = pack_setting(setting, folder)
        for worker in self._workers:
            worker.say(("open", packed))
        for worker in self._workers:
            worker.hear()
        shutil.rmtree(folder.parent / str(self._packs - 1), ignore_errors=True)  # the run before is done with

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterator[Answer]:
        """Hand out clients, the largest first so that no worker is left with a long one at the end."""
        if not self._workers:
            raise RuntimeError("this engine is closed, or was never opened")
        self._asks += 1
        waiting = deque(sorted(messages, key=lambda k: -int(self.sizes[k])))
        busy: dict[_Worker, int] = {}
        try:
            while waiting or busy:
                for worker in self._workers:
                    if waiting and worker not in busy:
                        busy[worker] = waiting.popleft()
                        self._hand_out(worker, task, busy[worker], messages[busy[worker]], round)
                for ready in wait([worker.pipe for worker in busy]):
                    worker = next(w for w in busy if w.pipe is ready)
                    index = busy.pop(worker)
                    message, kept = worker.hear(f"client '{self.ids[index]}' in round {round}")
                    yield Answer(index, message, kept)
        finally:
            if busy:  # an error or Ctrl-C: what is under way is worth nothing any more
                self.close()

    def _hand_out(self, worker: _Worker, task: Task, index: int, message: Message, round: int) -> None:
        new: dict[ArrayKey, NDArray[Any]] = {}
        known = worker.known(self._asks)

        def refer(arrays: Message) -> dict[str, ArrayKey]:
            keys = {}
            for kind, array in arrays.items():
                keys[kind] = key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
                if key not in known:
                    new[key] = np.asarray(array, order="C")
                    known[key] = array  # held, so that its address stays its own while this `ask` lasts
            return keys

        job = (self._asks, task, index, round, refer(message), refer(self.memories[index]))
        worker.say(("answer", job, new))

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.end()
        if self._folder:
            self._folder.cleanup()
        self._workers, self._folder = [], None


class _Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109  # a text, not a path
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ilk.engines.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **one, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers itself
        )
        theirs.close()
        self.pipe = Connection(ours.detach())
        self._known: dict[ArrayKey, NDArray[Any]] = {}
        self._ask = 0

    def known(self, ask: int) -> dict[ArrayKey, NDArray[Any]]:
        """The arrays that this worker has received in this `ask`; it forgets them with the next."""
        if ask != self._ask:
            self._ask, self._known = ask, {}
        return self._known

    def say(self, content: Any) -> None:
        try:
            send(self.pipe, content)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died("before it was given work") from None

    def hear(self, about: str = "start") -> Any:
        try:
            kind, content = receive(self.pipe)
        except (EOFError, OSError):
            raise self._died(about) from None
        if kind == "refused":
            raise IlkError(content)
        if kind == "crashed":
            raise RuntimeError(f"a worker process failed ({about}):\n{content}")
        return content

    def _died(self, about: str) -> IlkError:
        code = self.process.wait()
        how = f"signal {-code}" + (", often: out of memory" if code == -9 else "") if code < 0 else f"exit code {code}"
        return IlkError(
            f"A worker process ended ({how}; {about}). The last whole round is safe: resume the run, with fewer "
            "--workers or --engine inline if memory is short."
        )

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


class _SettingPickler(pickle.Pickler):
    """Puts large arrays into files that every worker maps, instead of sending each worker a copy."""

    def __init__(self, file: BytesIO, folder: Path) -> None:
        super().__init__(file, protocol=5)
        self.folder = folder

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, np.ndarray) or obj.nbytes < LARGE or obj.dtype.hasobject:
            return NotImplemented
        handle, path = tempfile.mkstemp(suffix=".npy", dir=self.folder)
        with os.fdopen(handle, "wb") as file:
            np.save(file, obj)
        return np.load, (path, "r")


def pack_setting(setting: Setting, folder: Path) -> bytes:
    """Return a setting as bytes for a process on this machine, its large arrays as files in this folder."""
    file = BytesIO()
    _SettingPickler(file, folder).dump(setting)
    return file.getvalue()


def _has_fileno(stream: Any) -> bool:
    try:
        return bool(stream.fileno() >= 0)
    except (AttributeError, OSError, ValueError):
        return False
