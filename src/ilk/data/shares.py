"""What passes between a split and its rules, and how one client's samples become train, validation and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from ilk.data.partition import Labels, Share
from ilk.errors import IlkError
from ilk.randomness import stream

TestPolicy = Literal["label-set", "own", "holdout"]
TEST_POLICIES: tuple[str, ...] = get_args(TestPolicy)
MIN_TEST = 50  # a test set may be larger than its client's training set to reach this: fewer say little


@dataclass(frozen=True, eq=False)
class Request:
    """What a rule is handed. `free` are the positions of each source that clients may own."""

    labels: Mapping[str, Labels]
    free: Mapping[str, NDArray[np.int64]]
    clients: int
    seed: int
    split: str

    @property
    def source(self) -> str:
        """The only source (every rule but mix4 has one)."""
        return next(iter(self.free))

    @property
    def classes(self) -> int:
        """How many classes the only source has."""
        return self.labels[self.source].classes

    def random(self, *purpose: str | int) -> np.random.Generator:
        """Return the stream of random numbers for one purpose."""
        return stream(self.seed, "split", *purpose)

    def shuffled(self, label: int) -> NDArray[np.int64]:
        """Return the free positions of one class in random order."""
        free = self.free[self.source]
        return self.random("class", label).permutation(free[self.labels[self.source].train[free] == label])


@dataclass(frozen=True, eq=False)
class Owned:
    """What a rule gives to one client: positions in the train split of a source, and how the client sees them."""

    source: str
    positions: NDArray[np.int64]
    group: int | None = None
    turns: int = 0
    labels: tuple[int, ...] | None = None
    whole_test: bool = False  # the client tests on all of its source's test split, whatever the policy


Dealt = tuple[list[Owned], dict[str, JsonValue]]  # what each client owns, in order, and notes for the partition


def make_share(owned: Owned, labels: Labels, client: int, name: str, seed: int, test_policy: TestPolicy) -> Share:
    """Divide what a client owns into train, validation and (policy "holdout") test, or choose its test samples.

    Train and validation are the same for "label-set" and "own": the choice of test samples has a stream of its own.
    Positions are in random order, so that the first few of them are a fair sample.
    """
    mixed = stream(seed, "split", "divide", client).permutation(owned.positions)
    held_out = _percent(len(mixed), 30) if test_policy == "holdout" else 0
    test, rest = mixed[:held_out], mixed[held_out:]
    count = max(1, _percent(len(rest), 10)) if len(rest) > 1 else 0
    validation, train = rest[:count], rest[count:]
    if owned.whole_test:
        test = np.arange(len(labels.test))
    elif test_policy == "label-set":
        test = np.flatnonzero(np.isin(labels.test, np.unique(labels.train[rest])))
    elif test_policy == "own":
        random = stream(seed, "split", "test", client)
        test = _own_test(labels.train[rest], labels.train[train], labels, random)
    if not len(test):
        why = "it owns a single sample" if test_policy == "holdout" else "the test split has none of its classes"
        raise IlkError(
            f"Client '{name}' gets no test sample from '{owned.source}' with the test policy '{test_policy}': {why}. "
            "Take fewer clients, another split, or another test policy."
        )
    test_from: Literal["train", "test"] = "train" if test_policy == "holdout" else "test"
    train, validation, test = (part.astype(np.int64) for part in (train, validation, test))
    return Share(name, owned.source, train, validation, test, test_from, owned.group, owned.turns, owned.labels)


def choose_auxiliary(labels: Labels, count: int, seed: int, source: str) -> NDArray[np.int64]:
    """Choose the server's samples: equally many of each class, and all of a class that has fewer.

    Samples are taken in turns: one of each class (classes in random order), a second of each class, and so on.
    """
    random = stream(seed, "split", "auxiliary", source)
    turn = np.empty(len(labels.train), dtype=np.int64)
    for c in range(labels.classes):
        members = np.flatnonzero(labels.train == c)
        turn[members] = random.permutation(len(members))
    class_order = random.permutation(labels.classes)[labels.train]
    return np.sort(np.lexsort((class_order, turn))[:count]).astype(np.int64)


def largest_remainder(weights: Sequence[int] | NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Divide `total` in proportion to whole weights: no part is more than one away from its exact quota.

    In whole numbers throughout, so that no rounding of floats decides; among equal remainders the first wins.
    """
    exact = np.asarray(weights, dtype=np.int64) * total
    parts, remainders = np.divmod(exact, np.sum(weights))
    parts[np.argsort(-remainders, kind="stable")[: total - parts.sum()]] += 1
    return parts


def _own_test(
    owned: NDArray[np.int64], trained: NDArray[np.int64], labels: Labels, random: np.random.Generator
) -> NDArray[np.int64]:
    """Draw test samples whose class counts are proportional to the client's own.

    Only classes take part that the client trains on and that the test split has. As many samples are drawn as the
    test split allows before some class is asked for more than it has, but no more than the client owns for training,
    or `MIN_TEST` where it owns fewer; and at least one. Clients draw independently: their test sets may overlap.
    """
    weights = np.bincount(owned, minlength=labels.classes)
    available = np.bincount(labels.test, minlength=labels.classes)
    weights[(np.bincount(trained, minlength=labels.classes) == 0) | (available == 0)] = 0
    present = np.flatnonzero(weights)
    if not len(present):
        return np.empty(0, dtype=np.int64)
    most = int(np.min(available[present] * weights.sum() // weights[present]))
    counts = largest_remainder(weights, max(1, min(most, max(len(owned), MIN_TEST))))
    chosen = [random.choice(np.flatnonzero(labels.test == c), counts[c], replace=False) for c in present]
    return np.sort(np.concatenate(chosen))


def _percent(count: int, percent: int) -> int:
    """Round a part of `count`, halves up."""
    return (count * percent + 50) // 100
