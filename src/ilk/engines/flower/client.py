"""A client's side of a deployment: from a parcel that came to the parcel that goes back.

What a server may say is little: a task by name, the network by name, a round, a seed, and arrays. A client does not
believe the rest: it answers under its own name, from its own data, and a network of its operator's own ("module:callable")
is only made if the operator has said the same name.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from flwr.app import RecordDict

import ilk.models
from ilk.client import Place, Setting
from ilk.data.federation import Federation
from ilk.engines.engine import one_thread
from ilk.engines.flower.memory import Lost, Memory
from ilk.engines.flower.own import Source
from ilk.engines.flower.wire import Parcel, Refused, pack, unpack
from ilk.engines.flower.words import NotUnderstood, from_words
from ilk.errors import IlkError
from ilk.native import Compute
from ilk.runs.folder import replace as write

MODEL = "model.safetensors"  # the one that is this client's to use, once it has been handed one
MOST_CLASSES = 100_000
log = logging.getLogger("ilk.flower")


@dataclass
class Answering:
    """One client, for as long as its process lives."""

    name: str
    source: Source
    folder: Path  # where its memory lies
    model: str = ""  # a network of one's own that a server may ask for
    _read: dict[int, Federation] = field(default_factory=dict)
    _place: tuple[Any, Place] | None = None

    def __call__(self, parcel: Parcel) -> Parcel:
        """Answer. What cannot be answered is told, not raised: the server then goes on without this client."""
        head = parcel.head
        about = {"client": self.name, "ask": str(head.get("ask", ""))[:64]}
        try:
            with one_thread():
                if head.get("join"):
                    return Parcel({**about, **self._joins(_number(head, "seed"))}, {})
                return self._answer(parcel, about)
        except Lost as error:
            log.warning("my memory is lost (%s); I begin anew", error)
            return Parcel({**about, "lost": str(error)}, {})
        except (IlkError, NotUnderstood, Refused) as error:
            log.warning("not answered: %s", error)
            return Parcel({**about, "error": str(error)[:1000]}, {})
        except Exception as error:  # a task of a method, on data that nobody else sees: whatever it is, go on
            log.exception("not answered")
            return Parcel({**about, "error": type(error).__name__}, {})

    def _joins(self, seed: int) -> dict[str, Any]:
        """State what a server must know of this client's data: how much, of what shape, with how many labels."""
        own = self._federation(seed)
        policy = own.partition.test_policy
        return {"size": int(own.sizes[0]), "shape": list(own.shape), "classes": own.classes, "test_policy": policy}

    def _answer(self, parcel: Parcel, about: dict[str, Any]) -> Parcel:
        head = parcel.head
        task = from_words(head.get("task"))
        memory = Memory(self.folder / "memory")
        remembered = memory.settle(str(head.get("use", "")), str(head.get("safe", "")))
        place = self._place_of(head)
        place.noted.clear()
        client = place.client(0, _number(head, "round"), remembered)
        said = task.answer(client, parcel.arrays)
        if client.held is not None:
            about_it = {"model": str(head.get("model")), "round": str(client.round)}
            write(self.folder / MODEL, safetensors.numpy.save({"model": np.asarray(client.held)}, about_it))
        staged = memory.stage({**remembered, **client.kept}) if client.kept else ""
        return Parcel({**about, "staged": staged}, said)

    def _place_of(self, head: Any) -> Place:
        """Return a place with the network that the server names; it is kept until another is named."""
        name, classes, seed = str(head.get("model")), _number(head, "classes"), _number(head, "seed")
        if name not in ilk.models.MODELS and name != self.model:
            raise Refused(
                f"the server asks for the model '{name[:100]}'; this client only takes its own operator's word"
            )
        if not 0 < classes <= MOST_CLASSES:
            raise Refused(f"{classes} classes")
        compute: Compute = "torch" if head.get("compute") == "torch" else "auto"  # a client without kernels trains too
        wanted = (name, classes, seed, bool(head.get("keep_models")), compute)
        if self._place is None or self._place[0] != wanted:
            own = self._federation(seed)
            if classes < own.classes:
                raise Refused(f"the server says {classes} classes, but this client has {own.classes}")
            own = Federation(own.sources, replace(own.partition, classes=classes))
            self._place = wanted, Place(Setting(own, name, seed, wanted[3], compute))
        return self._place[1]

    def _federation(self, seed: int) -> Federation:
        if seed not in self._read:
            self._read = {seed: self.source(seed)}
        return self._read[seed]


def replied(content: RecordDict, answering: Answering) -> RecordDict:
    """Answer a message, whatever is in it."""
    try:
        return pack(answering(unpack(content)))
    except Refused as error:
        return pack(Parcel({"client": answering.name, "ask": "", "error": str(error)}, {}))


def _number(head: Any, name: str) -> int:
    value = head.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise Refused(f"'{name}' is {str(value)[:50]!r}, not a number")
    return value
