"""The engine that answers in this process, one client after the other. The simplest thing that is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ilk.client import Message, Place, Setting
from ilk.engines.engine import Remembering
from ilk.server import Answer
from ilk.tasks.task import Task


class Inline(Remembering):
    """All clients live in this process."""

    name = "inline"
    place: Place

    def open(self, setting: Setting) -> None:
        """Make ready for a run."""
        self.visible, self.place = setting.federation, Place(setting)
        self.memories = [{} for _ in setting.federation.ids]

    def ask(self, task: Task, messages: Mapping[int, Message], round: int) -> Iterator[Answer]:
        """Answer for one client after the other."""
        self.place.noted.clear()
        for index, message in messages.items():
            client = self.place.client(index, round, self.memories[index])
            reply = task.answer(client, message)
            yield Answer(index, reply, client.kept)

    def close(self) -> None:
        """Nothing to let go of."""
