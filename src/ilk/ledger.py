"""The ledger counts what crosses between server and clients, at the one place where everything crosses: `ask`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Direction = Literal["up", "down"]


@dataclass(frozen=True)
class Entry:
    """In this round each of these clients was sent ("down") or sent ("up") this many bytes of this kind."""

    round: int
    direction: Direction
    kind: str
    clients: tuple[int, ...]
    bytes_each: int

    @property
    def bytes(self) -> int:
        """Bytes of all these clients together."""
        return len(self.clients) * self.bytes_each


@dataclass
class Ledger:
    """Everything that crossed in a run."""

    entries: list[Entry] = field(default_factory=list)

    def count(self, round: int, direction: Direction, messages: Mapping[int, Mapping[str, NDArray[Any]]]) -> None:
        """Enter messages: the bytes of their arrays, by kind (the array's name in the message)."""
        alike: dict[tuple[str, int], list[int]] = defaultdict(list)
        for client, message in messages.items():
            for kind, array in message.items():
                alike[kind, np.asarray(array).nbytes].append(client)
        self.entries += [
            Entry(round, direction, kind, tuple(clients), size) for (kind, size), clients in alike.items() if size
        ]

    def total(self, direction: Direction) -> int:
        """Bytes of one direction over the whole run."""
        return sum(entry.bytes for entry in self.entries if entry.direction == direction)

    def by_kind(self) -> dict[str, int]:
        """Bytes by kind, both directions together."""
        totals: dict[str, int] = defaultdict(int)
        for entry in self.entries:
            totals[entry.kind] += entry.bytes
        return dict(totals)

    def paper_mb(self, clients: int) -> float:
        """The "Mb" of the PACFL and FLIS tables: megabits of models moved, per client of the federation.

        Signatures, what comes before the first round, and everything else that is not a model count nothing there;
        SCAFFOLD's control counts one way of its two (spec/methods.md, F16).
        """
        counted = (("up", "model"), ("down", "models"), ("down", "control"))
        models = sum(e.bytes for e in self.entries if e.round and (e.direction, e.kind) in counted)
        return models * 8 / 1e6 / clients
