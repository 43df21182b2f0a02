"""Which client tests which samples, where several are served one model and own samples in common.

A model says the same about a sample whoever asks. So of the clients that own a sample and share a model one tests it, for
all. Who that is follows from who shares the model, not from where clients are answered for: every engine runs the model on
the same batches, and so ends in the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ilk.client import Message

Numbers = NDArray[np.int64]
TOGETHER = 64 << 20  # bytes of outputs that are held at a time


class Group:
    """Clients that are sent one model. `owned` numbers what each of them is tested on: the same number, the same input."""

    def __init__(self, owned: dict[int, Numbers], sent: Message) -> None:
        self.owned, self.sent = owned, sent
        self.distinct, dealt = deal(list(owned.values()))
        self.part = dict(zip(owned, dealt, strict=True))  # which of its samples each client runs the model on
        self._outputs: NDArray[np.float32] | None = None
        self._came = np.zeros(len(self.distinct), dtype=np.bool_)

    def enter(self, client: int, outputs: NDArray[np.float32]) -> None:
        """Note what the model gives for a client's part."""
        if self._outputs is None:
            self._outputs = np.empty((len(self.distinct), outputs.shape[1]), dtype=np.float32)
        where = np.searchsorted(self.distinct, self.owned[client][self.part[client]])
        self._outputs[where] = outputs
        self._came[where] = True

    def outputs(self, client: int) -> Tensor | None:
        """Return what the model gives for all that a client is tested on; None if some of it did not come."""
        where = np.searchsorted(self.distinct, self.owned[client])
        if self._outputs is None or not self._came[where].all():
            return None
        return torch.from_numpy(self._outputs[where])


def deal(owned: Sequence[Numbers]) -> tuple[Numbers, list[Numbers]]:
    """Return the distinct samples, and for each client the positions of those of its samples that it tests.

    Each sample falls to one of its owners, the next in turn, so that all have about equally much to do.
    """
    every = np.concatenate(owned)
    order = np.argsort(every, kind="stable")
    distinct, first, owners = np.unique(every[order], return_index=True, return_counts=True)
    tests = np.zeros(len(every), dtype=np.bool_)
    tests[order[first + np.arange(len(distinct)) % owners]] = True
    ends = np.cumsum([len(samples) for samples in owned])
    return distinct, [np.flatnonzero(part) for part in np.split(tests, ends[:-1])]


def in_turns(groups: Sequence[Group], classes: int) -> Iterator[list[Group]]:
    """Yield the groups, as many at a time as have room for their outputs."""
    now: list[Group] = []
    size = 0
    for group in groups:
        needs = 4 * classes * len(group.distinct)
        if now and size + needs > TOGETHER:
            yield now
            now, size = [], 0
        now.append(group)
        size += needs
    if now:
        yield now
