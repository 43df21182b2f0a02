"""The shape of everything that a client can be asked."""

from __future__ import annotations

from typing import Protocol

from ilk.client import Client, Message
from ilk.params import Vector


class Task(Protocol):
    """A question to one client. It holds plain values only, for it travels to where the client's data are."""

    def answer(self, client: Client, message: Message) -> Message:
        """Answer from the client's own data, its memory, and what the server sent."""
        ...


class Training(Task, Protocol):
    """A task that trains. `begin` tells which model a client would start from, so that the same can be measured."""

    def begin(self, client: Client, message: Message) -> tuple[Vector, int]:
        """Return the model and which of the received ones it is (-1: the client's own)."""
        ...
