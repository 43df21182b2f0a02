"""The engine ``flower``: clients on machines of their own, reached through a grid of Flower's.

Who a node is says its key, and nothing that it writes: the names of the keys are the operator's. A client that has just
connected is asked to join before the next round; one that is gone is not asked. Answers are looked at before a method sees
them, and one that is not as it must be counts as missing, with a line in the log.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.client import Message, Place, Setting
from ilk.data.federation import Federation
from ilk.engines.flower.expected import Expected, check
from ilk.engines.flower.grid import exchange
from ilk.engines.flower.joined import Joined, Seats, Statement
from ilk.engines.flower.wire import LARGEST, Parcel, Refused, unpack
from ilk.engines.flower.words import to_words
from ilk.errors import IlkError
from ilk.server import Answer
from ilk.tasks import Evaluate, Hold
from ilk.tasks.task import Task

log = logging.getLogger("ilk.flower")
VERSION = "version"  # in a checkpoint: the digest of what a client remembers, as bytes
Keys = Callable[[], Mapping[bytes, str]]  # the clients' public keys, and their names


@dataclass
class Seen:
    """What the server knows of a client that has a key."""

    node: int | None = None  # while it is connected
    last: float | None = None  # when it last answered, in seconds since 1970
    round: int | None = None  # the last that it answered in
    said: str = ""  # why its last answer was refused


@dataclass
class Flower:
    """Carries a run's questions to the clients of a deployment."""

    grid: Any
    keys: Keys
    seed: int
    patience: float = 600.0  # seconds that an answer may take
    pause: float = 0.5
    largest: int = LARGEST
    clients: dict[str, Seen] = field(default_factory=dict)
    seats: Seats | None = None
    seats_file: Path | None = None
    bytes: dict[str, int] = field(
        default_factory=lambda: {"down": 0, "up": 0, "evaluation_down": 0, "evaluation_up": 0}
    )

    name = "flower"
    place: Place | None = None
    visible: Federation | None = None  # clients' data are theirs

    def __post_init__(self) -> None:
        """Nobody is known yet."""
        self.memories: list[dict[str, NDArray[Any]]] = []
        self.after_look: Callable[[], None] = lambda: None
        self._stated: dict[str, Statement] = {}  # in this session: who has joined since it began
        self._round = 0
        self._safe: list[str] = []
        self._expected: Expected | None = None

    def look(self) -> None:
        """Find out who is connected; ask those to join that have not in this session, and give them seats."""
        names = self.keys()
        nodes = {names[n.public_key]: n.node_id for n in self.grid.get_nodes() if n.public_key in names}
        for name in names.values():
            self.clients.setdefault(name, Seen()).node = nodes.get(name)
        new = {
            node: Parcel({"join": True, "seed": self.seed, "client": name}, {})
            for name, node in nodes.items()
            if name not in self._stated
        }
        name_of = {node: name for name, node in nodes.items()}
        for node, content in exchange(self.grid, new, 0, min(self.patience, 60.0), self.pause) if new else ():
            self._join(name_of[node], content)
        self.after_look()

    def _join(self, name: str, content: Any) -> None:
        try:
            statement = Statement.read(self._own_words(name, unpack(content, 1 << 20).head, ""))
            if self.seats is not None:
                self.seats.take(name, statement)
        except ValueError as error:
            self._refuse(name, f"it cannot join: {error}")
            return
        self._stated[name] = statement
        self._heard(name)
        log.info("%s joined with %d samples", name, statement.size)
        if self.seats is not None and self.seats_file:
            self.seats.save(self.seats_file)

    @property
    def joined(self) -> list[str]:
        """Who has joined since this session began."""
        return list(self._stated)

    def found(self, seats: int | None) -> Seats:
        """Seat those who have joined so far, in the order of their names; `seats` makes room for more."""
        if not self._stated:
            raise IlkError("No client has joined; there is nothing to begin with.")
        stated = dict(sorted(self._stated.items()))
        shapes = {name: statement.shape for name, statement in stated.items()}
        if len(set(shapes.values())) > 1:
            raise IlkError(f"All clients must have inputs of one shape; these differ: {shapes}.")
        policies = {statement.test_policy for statement in stated.values()}
        self.seats = Seats(
            shape=next(iter(shapes.values())),
            classes=max(statement.classes for statement in stated.values()),
            test_policy=policies.pop() if len(policies) == 1 else "mixed",
            count=max(seats or 0, len(stated)),
        )
        for name, statement in stated.items():
            self.seats.take(name, statement)
        return self.seats

    def open(self, setting: Setting) -> None:
        """Make ready for a run."""
        assert isinstance(setting.federation, Joined)
        self.setting = setting
        self.memories = [{} for _ in setting.federation.ids]
        self._safe = [""] * len(self.memories)
        self._expected = Expected(setting)
        self._round = -1

    def reach(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look around, and return those of these clients that are connected."""
        self.look()
        return self._there(clients)

    def _there(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        assert self.seats
        there = [name in self.seats.sizes and self.clients[name].node is not None for name in self.seats.names]
        return np.asarray([k for k in clients if there[k]], dtype=np.int64)

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterator[Answer]:
        """Put the task to the clients that are connected, and yield the answers that are as they must be."""
        assert self._expected
        if round != self._round:  # the rounds before are in a checkpoint now
            self._round, self._safe = round, self.digests()
        names, setting = self.setting.federation.ids, self.setting
        number = secrets.token_hex(8)
        head = {
            "ask": number,
            "round": round,
            "task": to_words(task),
            "seed": setting.seed,
            "model": setting.model,
            "classes": setting.federation.classes,
            "keep_models": setting.keep_models,
            "compute": setting.compute,
        }
        versions = self.digests()
        parcels, client_of = {}, {}
        for k in self._there(np.array(list(messages))).tolist():
            node = self.clients[names[k]].node
            assert node is not None
            client_of[node] = k
            parcels[node] = Parcel({**head, "client": names[k], "use": versions[k], "safe": self._safe[k]}, messages[k])
            self._count(task, "down", messages[k])
        begun = self._begun()
        lost = lambda: {node for node, when in self._begun().items() if node in begun and when != begun[node]}  # noqa: E731
        for node, content in exchange(self.grid, parcels, round, self.patience, self.pause, lost):
            k = client_of[node]
            try:
                parcel = unpack(content, self.largest)
                said = self._own_words(names[k], parcel.head, number)
                if said.get("lost"):
                    self.memories[k] = {}
                    raise Refused("it has lost its memory, and begins anew")
                staged = said.get("staged", "")
                check(parcel.arrays, self._expected.form(task, messages[k], round), messages[k])
                kept = {VERSION: _version(staged)} if staged else {}
            except ValueError as error:
                self._refuse(names[k], str(error))
                continue
            self._heard(names[k], round)
            self._count(task, "up", parcel.arrays)
            yield Answer(k, dict(parcel.arrays), kept)

    def _begun(self) -> dict[int, str]:
        """Return when each node was started: one that has been started anew does not know what it was asked before."""
        return {n.node_id: n.last_activated_at for n in self.grid.get_nodes()}

    def _own_words(self, name: str, head: Mapping[str, Any], number: str) -> Mapping[str, Any]:
        """Return what a client says, if it says it under its own name, to this question, and is not an excuse."""
        if head.get("client") != name:
            raise Refused(f"it answers in the name of '{str(head.get('client'))[:50]}'")
        if head.get("ask", "") != number:
            raise Refused("it answers another question")
        if "error" in head:
            raise Refused(f"it could not: {str(head['error'])[:300]}")
        return head

    def _heard(self, name: str, round: int | None = None) -> None:
        seen = self.clients[name]
        seen.last, seen.said, seen.round = time.time(), "", seen.round if round is None else round

    def _refuse(self, name: str, why: str) -> None:
        self.clients[name].said = why
        log.warning("%s is left out: %s", name, why)

    def _count(self, task: Task, direction: str, message: Message) -> None:
        kind = f"evaluation_{direction}" if isinstance(task, Evaluate | Hold) else direction
        self.bytes[kind] += sum(np.asarray(array).nbytes for array in message.values())

    def accept(self, answers: Sequence[Answer]) -> None:
        """Note which versions of the clients' memories belong to the accepted answers; the next message says so."""
        for answer in answers:
            self.memories[answer.client] = {**self.memories[answer.client], **answer.kept}

    def digests(self) -> list[str]:
        """Return the digests of what the clients remember: their versions' names."""
        return [memory[VERSION].tobytes().hex() if memory else "" for memory in self.memories]

    def close(self) -> None:
        """Nothing to let go of: the grid is Flower's."""


def _version(name: Any) -> NDArray[np.uint8]:
    if not isinstance(name, str) or len(name) != 64:
        raise Refused("its memory has no name")
    return np.frombuffer(bytes.fromhex(name), np.uint8).copy()
