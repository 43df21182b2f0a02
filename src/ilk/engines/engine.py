"""What every engine does: carry a task to the clients and bring their answers back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ilk.client import Message, Place, Setting
from ilk.clusters.threads import cores as cores
from ilk.data.federation import Federation
from ilk.params import digest
from ilk.server import Answer
from ilk.tasks.task import Task

Memory = dict[str, NDArray[Any]]


class Engine(Protocol):
    """Where the clients are. The same run ends in the same bits on every engine."""

    name: str
    visible: Federation | None  # the clients' data, where they can be seen from here: see measure.py
    memories: list[Memory]  # what each client remembers

    @property
    def place(self) -> Place | None:
        """Where clients are answered for in this process, if any are."""
        ...

    def open(self, setting: Setting) -> None:
        """Make ready for a run: clients that remember nothing yet."""
        ...

    def reach(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of these clients that can be asked now."""
        ...

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterator[Answer]:
        """Put the task to these clients and yield the answers as they come."""
        ...

    def accept(self, answers: Sequence[Answer]) -> None:
        """Let the clients keep what they wanted to remember."""
        ...

    def digests(self) -> list[str]:
        """Return the digest of what each client remembers, wherever that is; "" for nothing."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


class Remembering:
    """The clients' memories, for engines whose clients live on this machine."""

    visible: Federation | None = None
    memories: list[Memory]
    place: Place | None = None

    def reach(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the clients that can be asked now: all of them."""
        return clients

    def digests(self) -> list[str]:
        """Return the digest of what each client remembers."""
        return [memory_digest(memory) for memory in self.memories]

    def accept(self, answers: Sequence[Answer]) -> None:
        """Let the clients keep what they wanted to remember."""
        for answer in answers:
            self.memories[answer.client] = {**self.memories[answer.client], **answer.kept}


def memory_digest(memory: Message) -> str:
    """Return the SHA-256 of what a client remembers; "" for nothing."""
    names = sorted(memory)
    return (
        digest([np.frombuffer("/".join(names).encode(), np.uint8), *(memory[name] for name in names)]) if names else ""
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, and leave PyTorch's random state as it was.

    Small networks run slower on two threads than on one, and the same sums must come out in the same bits wherever a
    client is.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
