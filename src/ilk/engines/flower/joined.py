"""A federation as a server knows it: no data, but what the clients stated when they joined.

A seat is a client's place in every array of a method's state, so seats are made once, when a run begins. A client that
joins later takes a free one; who leaves keeps its own. The names and sizes of seats are kept in a file, so that a
resumed run finds everybody where they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.data.datasets import Dataset
from ilk.data.federation import Federation, Part, Samples
from ilk.data.partition import Partition, Share
from ilk.errors import IlkError
from ilk.runs.folder import replace

MOST_SAMPLES, MOST_CLASSES, LARGEST_INPUT = 10**10, 100_000, 10**8


@dataclass(frozen=True)
class Statement:
    """What a client says of its data when it joins."""

    size: int
    shape: tuple[int, ...]
    classes: int
    test_policy: str

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Statement:
        """Check what a client said; ValueError if it cannot be."""
        size, classes = said.get("size"), said.get("classes")
        shape: Any = said.get("shape")
        if type(size) is not int or not 0 < size <= MOST_SAMPLES:
            raise ValueError(f"it states {str(size)[:30]} samples")
        numbers = isinstance(shape, list) and 0 < len(shape) <= 4 and all(type(n) is int and n > 0 for n in shape)
        if not numbers or np.prod(shape, dtype=np.float64) > LARGEST_INPUT:
            raise ValueError(f"it states inputs of shape {str(shape)[:60]}")
        if type(classes) is not int or not 0 < classes <= MOST_CLASSES:
            raise ValueError(f"it states {str(classes)[:30]} classes")
        return cls(size, tuple(shape), classes, str(said.get("test_policy"))[:20])


@dataclass
class Seats:
    """Who sits where; and what all of them have in common."""

    shape: tuple[int, ...]
    classes: int
    test_policy: str
    count: int
    sizes: dict[str, int] = field(default_factory=dict)  # by name, in the order of the seats

    @property
    def names(self) -> list[str]:
        """The clients' names, seat by seat; empty seats have a name that no client can have."""
        taken = list(self.sizes)
        return taken + [f"(free seat {k + 1})" for k in range(len(taken), self.count)]

    def index(self, name: str) -> int:
        """Return this client's seat."""
        return list(self.sizes).index(name)

    def take(self, name: str, statement: Statement) -> None:
        """Give a client the next free seat, or its own again; ValueError if it does not fit in here."""
        if statement.shape != self.shape:
            raise ValueError(f"its inputs are of shape {statement.shape}, everybody else's of {self.shape}")
        if statement.classes > self.classes:
            raise ValueError(f"it has {statement.classes} classes, but the federation began with {self.classes}")
        if name not in self.sizes and len(self.sizes) == self.count:
            raise ValueError(f"all {self.count} seats are taken; a new run can have more (--seats)")
        self.sizes[name] = statement.size

    def save(self, path: Path) -> None:
        """Write it down."""
        replace(path, json.dumps(asdict(self), indent=2).encode())

    @classmethod
    def load(cls, path: Path) -> Seats | None:
        """Read what was written down, if it was."""
        if not path.exists():
            return None
        try:
            said = json.loads(path.read_text())
            return cls(**{**said, "shape": tuple(said["shape"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise IlkError(f"{path} cannot be read: {error}. Begin the run anew.") from None


@dataclass(frozen=True)
class Joined(Federation):
    """The federation of these seats. It has no samples but the server's own."""

    seats: Seats = field(default_factory=lambda: Seats((), 0, "", 0))

    @property
    def ids(self) -> tuple[str, ...]:
        """The clients' names."""
        return tuple(self.seats.names)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many samples each client trains on; of an empty seat the median of the others, for it decides nothing."""
        known = list(self.seats.sizes.values())
        free = int(np.median(known)) if known else 1
        return np.array(known + [free] * (self.seats.count - len(known)))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over what cannot change while a run lasts."""
        seats = self.seats
        own = b"" if self.server_inputs is None else self.server_inputs.tobytes()
        return hashlib.sha256(repr((seats.shape, seats.classes, seats.count)).encode() + own).hexdigest()

    def read(self, client: int, part: Part, normalised: bool = True) -> Samples:
        """Refuse: a server has no client's data."""
        raise RuntimeError("a server was asked for its clients' data, which it does not have")

    def label_counts(self) -> None:
        """Return nothing: a server does not know its clients' labels."""


def joined(seats: Seats, seed: int, auxiliary: NDArray[np.float32] | None) -> Joined:
    """Make the federation of these seats, and of the server's own inputs if it has any."""
    nothing, none = np.empty((0, *seats.shape), np.float32), np.empty(0, np.int64)
    data = Dataset("clients", nothing, none, nothing, none, seats.classes, 1.0, (), (), "the clients' own")
    partition = Partition(
        data="deployment",
        split="given",
        test_policy=seats.test_policy,
        seed=seed,
        classes=seats.classes,
        shares=tuple(Share(f"seat {k + 1}", "clients", none, none, none) for k in range(seats.count)),
        auxiliary=none,
        fingerprints={},
        notes={},
    )
    return Joined({"clients": data}, partition, auxiliary, seats)
