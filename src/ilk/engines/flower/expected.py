"""What an answer must look like, before a method sees it.

A method says what it asks, not how an answer is laid out; so that is found out by asking. Two imaginary clients answer
the same task on the server: one with a single sample, one with a few of every label. What both answer alike (which
arrays, their types and shapes) is what a real answer must have; where they differ in a dimension, it is free.
So a new method needs no line for this. Values are another matter: an answer of the right form may still be a lie.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.client import Message, Place, Setting
from ilk.data.silos import from_arrays
from ilk.engines.flower.wire import Refused
from ilk.engines.flower.words import to_words
from ilk.randomness import stream
from ilk.tasks.task import Task

log = logging.getLogger("ilk.flower")
FREE = -1
Form = Mapping[str, tuple[str, tuple[int, ...]]]  # of each array: its type, and its shape with FREE dimensions


@dataclass
class Expected:
    """Forms of answers, found out when a task is first asked with messages of some shapes."""

    setting: Setting

    def __post_init__(self) -> None:
        """Make the two imaginary clients."""
        federation = self.setting.federation
        random = stream(0, "imaginary clients")

        def draw(samples: int) -> tuple[NDArray[Any], NDArray[Any]]:
            x = random.normal(size=(samples, *federation.shape)) * 0.1
            return x.astype(np.float32), np.arange(samples) % federation.classes

        many = max(20, min(2 * federation.classes, 64))
        ghosts = from_arrays(
            {"poor": draw(2), "rich": draw(many)}, test=(np.zeros((1, *federation.shape)), [federation.classes - 1])
        )
        self._place = Place(replace(self.setting, federation=ghosts))
        self._memories: list[Message] = [{}, {}]
        self._forms: dict[str, Form | None] = {}

    def form(self, task: Task, message: Message, round: int) -> Form | None:
        """Return the form of answers to this task and message; None if that cannot be found out."""
        shapes = {kind: (array.dtype.name, array.shape) for kind, array in message.items()}
        key = json.dumps([to_words(task), sorted(shapes.items())])
        if key not in self._forms:
            self._forms[key] = self._found_out(task, message, round)
        return self._forms[key]

    def _found_out(self, task: Task, message: Message, round: int) -> Form | None:
        answers = []
        for index in (0, 1):
            client = self._place.client(index, round, self._memories[index])
            self._place.noted.clear()
            try:
                answers.append(task.answer(client, message))
            except Exception as error:  # whatever a method's task does on data that no method was made for
                log.info("no form for answers to %s: %s", type(task).__name__, error)
                return None
            self._memories[index] = {**self._memories[index], **client.kept}
        poor, rich = ({kind: np.asarray(array) for kind, array in answer.items()} for answer in answers)
        if set(poor) != set(rich) or any(poor[k].ndim != rich[k].ndim or poor[k].dtype != rich[k].dtype for k in poor):
            return None
        return {
            kind: (
                poor[kind].dtype.name,
                tuple(a if a == b else FREE for a, b in zip(poor[kind].shape, rich[kind].shape, strict=True)),
            )
            for kind in poor
        }


def check(answer: Message, form: Form | None, sent: Message) -> None:
    """Refuse an answer that has not this form."""
    if form is not None:
        if set(answer) != set(form):
            raise Refused(f"it has {sorted(answer)[:8]}, not {sorted(form)}")
        for kind, (dtype, shape) in form.items():
            array = answer[kind]
            fits = len(array.shape) == len(shape) and all(
                w in (FREE, n) for n, w in zip(array.shape, shape, strict=True)
            )
            if array.dtype.name != dtype or not fits:
                raise Refused(f"'{kind}' is {array.dtype.name}{array.shape}, not {dtype}{shape}")
    if "chosen" in answer:
        chosen, among = answer["chosen"], len(sent.get("models", ()))
        if chosen.shape != () or not -1 <= chosen < among or chosen != int(chosen):
            raise Refused(f"it chose {chosen.tolist()} of {among} models")
