"""The engine ``flower-sim``: the run's clients are nodes of Flower's simulation runtime, which runs them on Ray.

Flower wants to call a server app; a run wants to call its engine. So the simulation runs in a thread of its own whose
server app does nothing but hand its grid to the run and wait for its end. Messages are those of a real deployment;
the data and the clients' memories are not: as with workers, every process maps the same files, and memories travel.
"""

from __future__ import annotations

import logging
import pickle  # a file that this process wrote for its own actors; nothing that came over a network
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Queue
from typing import Any

from ilk.client import Message, Place, Setting
from ilk.engines.engine import Remembering, cores, one_thread
from ilk.engines.flower.grid import exchange
from ilk.engines.flower.quiet import switch_off
from ilk.engines.flower.wire import Parcel, pack, unpack
from ilk.engines.flower.words import from_words, to_words
from ilk.engines.workers import pack_setting
from ilk.errors import IlkError
from ilk.server import Answer
from ilk.tasks.task import Task

MESSAGE, MEMORY = "message/", "memory/"
SETTING, PAUSE = "setting", 0.02
START = 120.0  # seconds until Ray must have started


class FlowerSim(Remembering):
    """Clients are virtual nodes of Flower's simulation runtime."""

    name = "flower-sim"

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._grids: Queue[Any] = Queue()
        self._done = threading.Event()
        self._nodes: dict[int, int] = {}  # of each client
        self._failed: list[BaseException] = []
        self._opened = 0

    def open(self, setting: Setting) -> None:
        """Make ready for a run. The simulation is started at the first one, and kept as long as it has enough nodes."""
        if len(setting.federation.ids) > len(self._nodes):
            self.close()
            self._folder = tempfile.TemporaryDirectory(prefix="ilk-flower-")
            self._start(len(setting.federation.ids))
        assert self._folder
        self._opened += 1
        packed = Path(self._folder.name) / str(self._opened)
        packed.mkdir()
        (packed / SETTING).write_bytes(pack_setting(setting, packed))
        shutil.rmtree(packed.parent / str(self._opened - 1), ignore_errors=True)  # the run before is done with
        self._packed = str(packed)
        self.ids = setting.federation.ids
        self.memories = [{} for _ in self.ids]

    def _start(self, nodes: int) -> None:
        switch_off()
        logging.getLogger("flwr").setLevel(logging.ERROR)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._simulate, args=(nodes,), daemon=True)
        self._thread.start()
        self._grid = grid = self._grids.get(timeout=START)
        self._check()
        late = time.monotonic() + START
        while len(ids := list(grid.get_node_ids())) < nodes:
            self._check()
            if time.monotonic() > late:
                self.close()
                raise IlkError(f"Flower's simulation has {len(ids)} of {nodes} nodes after {START:.0f} s.")
            time.sleep(0.05)
        # Which node is which client is asked once: a node's id says nothing about it.
        replies = exchange(grid, {node: Parcel({"who": True}, {}) for node in ids}, 0, None, PAUSE, self._check)
        self._nodes = {int(unpack(content).head["who"]): node for node, content in replies}

    def _check(self) -> tuple[int, ...]:
        """Raise what ended the simulation, if something did; no node is ever lost by itself."""
        if self._failed:
            error = self._failed.pop()
            self.close()
            raise IlkError(f"Flower's simulation ended: {error}.") from error
        return ()

    def _simulate(self, nodes: int) -> None:
        try:
            from flwr.serverapp import ServerApp
            from flwr.simulation import run_simulation

            server = ServerApp()

            @server.main()
            def wait(grid: Any, context: Any) -> None:
                self._grids.put(grid)
                self._done.wait()

            run_simulation(
                server_app=server,
                client_app=client_app(),
                num_supernodes=nodes,
                backend_config={
                    "init_args": {"num_cpus": self.count, "log_to_driver": False, "logging_level": "ERROR"},
                    "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                },
            )
        except BaseException as error:  # told to the run, which waits for it
            self._failed.append(error)
            self._grids.put(None)

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterator[Answer]:
        """Put the task to the clients' nodes, and yield the answers as they come."""
        if self._thread is None:
            raise RuntimeError("this engine is closed, or was never opened")
        head = {"task": to_words(task), "round": round, "setting": self._packed}
        client_of = {self._nodes[k]: k for k in messages}
        parcels = {}
        for k, message in messages.items():
            arrays = {MESSAGE + kind: array for kind, array in message.items()}
            arrays |= {MEMORY + kind: array for kind, array in self.memories[k].items()}
            parcels[self._nodes[k]] = Parcel({**head, "client": k}, arrays)
        for node, content in exchange(self._grid, parcels, round, None, PAUSE, self._check):
            parcel = unpack(content, finite=False)
            if "refused" in parcel.head:
                raise IlkError(parcel.head["refused"])
            if "crashed" in parcel.head:
                about = f"client '{self.ids[client_of[node]]}' in round {round}"
                raise RuntimeError(f"a simulated node failed ({about}):\n{parcel.head['crashed']}")
            yield Answer(client_of[node], part(parcel.arrays, MESSAGE), part(parcel.arrays, MEMORY))

    def close(self) -> None:
        """End the simulation."""
        self._done.set()
        if self._thread:
            self._thread.join(timeout=30)
            self._thread = None
        if self._folder:
            self._folder.cleanup()
            self._folder = None
        self._nodes = {}


def client_app() -> Any:
    """Return the app that every virtual node runs."""
    from flwr.app import Context
    from flwr.app import Message as FlowerMessage
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query("ilk")
    def answer(message: FlowerMessage, context: Context) -> FlowerMessage:
        parcel = unpack(message.content, finite=False)
        if "who" in parcel.head:
            return FlowerMessage(pack(Parcel({"who": context.node_config["partition-id"]}, {})), reply_to=message)
        try:
            reply = _answered(parcel)
        except IlkError as error:
            reply = Parcel({"refused": str(error)}, {})
        except Exception:
            reply = Parcel({"crashed": traceback.format_exc()}, {})
        return FlowerMessage(pack(reply), reply_to=message)

    return app


def _answered(parcel: Parcel) -> Parcel:
    task, head = from_words(parcel.head["task"]), parcel.head
    place = place_of(head["setting"])
    with one_thread():
        place.noted.clear()
        client = place.client(head["client"], head["round"], part(parcel.arrays, MEMORY))
        said = task.answer(client, part(parcel.arrays, MESSAGE))
    arrays = {MESSAGE + kind: array for kind, array in said.items()}
    return Parcel({}, arrays | {MEMORY + kind: array for kind, array in client.kept.items()})


_places: dict[str, Place] = {}


def place_of(folder: str) -> Place:
    """Return this process's place for the setting in a folder; of the run before nothing is kept."""
    if folder not in _places:
        _places.clear()
        _places[folder] = Place(pickle.loads((Path(folder) / SETTING).read_bytes()))
    return _places[folder]


def part(arrays: Message, name: str) -> dict[str, Any]:
    """Return the arrays whose names begin so, by what follows."""
    return {kind.removeprefix(name): array for kind, array in arrays.items() if kind.startswith(name)}
