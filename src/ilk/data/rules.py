"""The rules by which a data set is split among clients.

Each rule is one function and one entry in `RULES`. A rule sees labels only, never images, and draws only from streams
that are named by the partition's seed, so that the same request always gives the same partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from ilk.data.shares import Dealt, Owned, Request, largest_remainder
from ilk.errors import IlkError

DIRICHLET_MIN = 10  # samples that every client must get
DIRICHLET_TRIES = 1_000
MIX4 = {"usps": 14, "cifar10": 32, "svhn": 26, "fashion-mnist": 28}  # clients of 100, as the released code counts
MIX4_SAMPLES = 500


def _equal_parts(request: Request) -> list[NDArray[np.int64]]:
    shuffled = request.random("shuffle").permutation(request.free[request.source])
    return np.array_split(shuffled, request.clients)


def _iid(request: Request, parameter: float) -> Dealt:
    """Deal shuffled samples out in nearly equal parts."""
    return [Owned(request.source, part, group=0) for part in _equal_parts(request)], {}


def _label_skew(request: Request, rho: float) -> Dealt:
    """Give each client L = round(rho * C) labels: client i owns i mod C and L - 1 others at random.

    L is rounded with halves to even, and at least 1. The samples of a class are cut into nearly equal parts for its
    owners. With fewer clients than classes some class may have no owner; the notes name it, and its samples are not
    used.
    """
    count = max(1, round(rho * request.classes))
    owners: list[list[int]] = [[] for _ in range(request.classes)]
    for client in range(request.clients):
        first = client % request.classes
        others = np.delete(np.arange(request.classes), first)
        more = request.random("labels", client).choice(others, count - 1, replace=False)
        for label in (first, *more):
            owners[label].append(client)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(request.clients)]
    for label, clients in enumerate(owners):
        if clients:
            for client, part in zip(clients, np.array_split(request.shuffled(label), len(clients)), strict=True):
                parts[client].append(part)
    unused: list[JsonValue] = [label for label, clients in enumerate(owners) if not clients]
    notes: dict[str, JsonValue] = {"classes_without_owner": unused} if unused else {}
    return [Owned(request.source, np.concatenate(part)) for part in parts], notes


def _dirichlet(request: Request, alpha: float) -> Dealt:
    """Cut each class at Dirichlet(alpha) proportions among the clients that hold less than an equal share.

    Drawn again until every client has 10 samples, or a twentieth of an equal share (at least 1) where that is less:
    with fewer than 200 samples a client on average, a least of 10 is hardly ever met by strong skew.
    """
    members = [request.shuffled(label) for label in range(request.classes)]
    total = sum(map(len, members))
    minimum = max(1, min(DIRICHLET_MIN, total // (20 * request.clients)))
    for attempt in range(1, DIRICHLET_TRIES + 1):
        random = request.random("proportions", attempt)
        counts = np.zeros((request.classes, request.clients), dtype=np.int64)
        for label, positions in enumerate(members):
            open_clients = np.flatnonzero(counts.sum(axis=0) * request.clients < total)
            if len(open_clients):  # a Dirichlet vector with entries struck out and renormalised is a Dirichlet vector
                shares = random.dirichlet(np.full(len(open_clients), alpha))
                cuts = np.floor(np.cumsum(shares)[:-1] * len(positions)).astype(np.int64)
                counts[label, open_clients] = np.diff(cuts, prepend=0, append=len(positions))
        if counts.sum(axis=0).min() >= minimum:
            cut = [np.split(positions, np.cumsum(row)[:-1]) for positions, row in zip(members, counts, strict=True)]
            parts = [np.concatenate([row[client] for row in cut]) for client in range(request.clients)]
            return [Owned(request.source, part) for part in parts], {"dirichlet_tries": attempt}
    raise IlkError(
        f"In {DIRICHLET_TRIES:,} tries, '{request.split}' gave no split of {total} samples in which each of "
        f"{request.clients} clients has at least {minimum}. Take a larger ALPHA, fewer clients, or another seed."
    )


def _rotate(request: Request, groups: float) -> Dealt:
    """Deal out as for IID; client i is in group i mod K and sees its images turned by group * 360 / K degrees."""
    k = int(groups)
    parts = enumerate(_equal_parts(request))
    return [Owned(request.source, part, group=i % k, turns=i % k * 4 // k) for i, part in parts], {}


def _permute_labels(request: Request, groups: float) -> Dealt:
    """Deal out as for IID; client i is in group i mod K, and each group names the classes differently.

    Group g shifts the labels by g along one random circle of all classes, so that no two groups agree on any class.
    """
    k, classes = int(groups), request.classes
    if k > classes:
        raise IlkError(
            f"'{request.split}' needs {k} ways to name each class, and '{request.source}' has {classes} classes. "
            f"Take a K from 1 to {classes}."
        )
    circle = request.random("permutation").permutation(classes)
    names = np.empty((k, classes), dtype=np.int64)
    for group in range(k):
        names[group, circle] = np.roll(circle, -group)
    parts = enumerate(_equal_parts(request))
    return [Owned(request.source, part, group=i % k, labels=tuple(names[i % k].tolist())) for i, part in parts], {}


def _mix4(request: Request, parameter: float) -> Dealt:
    """Mix the clients of four data sets, each a true group with labels of its own.

    Clients are counted in proportion to 14, 32, 26 and 28 and come in this order. Each owns 500 samples drawn without
    replacement, or an equal share of its source if that has fewer. The test set of a client is the whole test split
    of its source, whatever the test policy.
    """
    if request.clients < len(MIX4):
        raise IlkError(
            f"'mix4' has clients of {len(MIX4)} data sets; {request.clients} clients are too few. Take 4 or more."
        )
    owned: list[Owned] = []
    first_label = 0
    for group, (source, count) in enumerate(
        zip(MIX4, largest_remainder(list(MIX4.values()), request.clients).tolist(), strict=True)
    ):
        shuffled = request.random("shuffle", source).permutation(request.free[source])
        size = min(MIX4_SAMPLES, len(shuffled) // count)
        names = tuple(range(first_label, first_label + request.labels[source].classes))
        owned += [
            Owned(source, shuffled[i * size : (i + 1) * size], group=group, labels=names, whole_test=True)
            for i in range(count)
        ]
        first_label += request.labels[source].classes
    return owned, {"test": "the whole test split of each client's source"}


@dataclass(frozen=True)
class Rule:
    """A rule and its parameter: how it is read, and which values are allowed."""

    deal: Callable[[Request, float], Dealt]
    parameter: str = ""  # its name in the documentation; empty if there is none
    read: Callable[[str], float] = float
    allowed: Callable[[float], bool] = lambda value: True
    allowed_text: str = ""
    example: str = ""


RULES: Mapping[str, Rule] = {
    "iid": Rule(_iid),
    "label-skew": Rule(
        _label_skew, "RHO", float, lambda v: 0 < v <= 1, "the part of all labels, above 0 and at most 1", "0.2"
    ),
    "dirichlet": Rule(_dirichlet, "ALPHA", float, lambda v: 0 < v <= 1e6, "a number above 0, at most 1000000", "0.1"),
    "rotate": Rule(_rotate, "K", int, lambda v: v in (1, 2, 4), "1, 2 or 4 groups", "4"),
    "permute-labels": Rule(
        _permute_labels, "K", int, lambda v: v >= 1, "1 or more groups, at most one for each class", "2"
    ),
    "mix4": Rule(_mix4),
}
