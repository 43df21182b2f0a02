"""From a split as the user writes it to a partition: who owns which samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ilk.data.partition import Labels, Partition
from ilk.data.rules import MIX4, RULES
from ilk.data.shares import TEST_POLICIES, Request, TestPolicy, choose_auxiliary, make_share
from ilk.errors import IlkError, unknown

__all__ = ["RULES", "Labels", "Split", "TestPolicy", "parse", "partition", "sources_of"]


@dataclass(frozen=True)
class Split:
    """A split as the user asked for it, understood: `str(parse("label-skew:.20")) == "label-skew:0.2"`."""

    name: str
    parameter: float | None = None

    def __str__(self) -> str:
        return self.name if self.parameter is None else f"{self.name}:{repr(self.parameter).removesuffix('.0')}"


def parse(split: str) -> Split:
    """Understand "iid", "label-skew:0.2", "dirichlet:0.1", "rotate:4", "permute-labels:2" or "mix4"."""
    name, colon, text = (part.strip() for part in split.strip().lower().partition(":"))
    if name not in RULES:
        raise unknown("split", name, RULES)
    rule = RULES[name]
    if not rule.parameter:
        if colon:
            raise IlkError(f"The split '{name}' takes no parameter, but '{split}' gives one. Write '{name}'.")
        return Split(name)
    try:
        value = rule.read(text)
        fits = rule.allowed(value)
    except ValueError:
        fits = False
    if not fits:
        given = f"'{split}' gives '{text}'" if text else f"'{split}' gives none"
        raise IlkError(
            f"The split '{name}:{rule.parameter}' needs a parameter ({rule.allowed_text}); {given}. "
            f"Write for example '{name}:{rule.example}'."
        )
    return Split(name, value)


def sources_of(data: str) -> tuple[str, ...]:
    """Return the names of the data sets that `data` consists of: four for "mix4", itself for any other."""
    return tuple(MIX4) if data == "mix4" else (data,)


def partition(
    data: str,
    split: str,
    labels: Mapping[str, Labels],
    clients: int,
    seed: int,
    test_policy: TestPolicy = "own",
    auxiliary: int = 0,
) -> Partition:
    """Split data among clients.

    `labels` maps the names of the sources to their labels: one source, or the four of mix4. The test policies:

    - "label-set": all test samples whose label is among the client's (train and validation). As the papers test.
    - "own": test samples in proportion to the client's own classes, as many as the test split allows (see `shares`).
    - "holdout": 30 % of the client's own samples, taken out before anything else.

    A tenth of what a client has for training is its validation part. `auxiliary` samples of the train split, equally
    many of each class as far as possible, go to the server before any client gets its own.
    """
    parsed = parse(split)
    if test_policy not in TEST_POLICIES:
        raise unknown("test policy", test_policy, TEST_POLICIES)
    _check_request(parsed, labels, clients, test_policy, auxiliary)
    free, kept = {}, np.empty(0, dtype=np.int64)
    for source in sources_of("mix4") if parsed.name == "mix4" else labels:
        if auxiliary:
            kept = choose_auxiliary(labels[source], auxiliary, seed, source)
        free[source] = np.setdiff1d(np.arange(len(labels[source].train)), kept)
    owned, notes = RULES[parsed.name].deal(Request(labels, free, clients, seed, str(parsed)), parsed.parameter or 0)
    width = max(2, len(str(clients - 1)))
    names = [f"c{client:0{width}d}" for client in range(clients)]
    for name, share in zip(names, owned, strict=True):
        if not len(share.positions):
            raise IlkError(
                f"Client '{name}' gets no training sample: '{parsed}' over {clients} clients asks more than "
                f"'{share.source}' has ({len(free[share.source])} samples for clients). "
                "Take fewer clients, a milder split, fewer auxiliary samples, or another seed."
            )
    return Partition(
        data=data,
        split=str(parsed),
        test_policy="whole" if parsed.name == "mix4" else test_policy,
        seed=seed,
        classes=sum(labels[source].classes for source in free),
        shares=tuple(
            make_share(share, labels[share.source], client, names[client], seed, test_policy)
            for client, share in enumerate(owned)
        ),
        auxiliary=kept,
        fingerprints={source: labels[source].fingerprint() for source in free},
        notes=notes,
    )


def _check_request(
    split: Split, labels: Mapping[str, Labels], clients: int, test_policy: TestPolicy, auxiliary: int
) -> None:
    """Refuse what cannot be done before anything is drawn."""
    if clients < 1:
        raise IlkError(f"A federation needs at least 1 client; {clients} were asked for.")
    if auxiliary < 0:
        raise IlkError(f"The server cannot have {auxiliary} auxiliary samples. Give 0 or more.")
    if split.name == "mix4":
        missing = [source for source in MIX4 if source not in labels]
        if missing:
            raise IlkError(f"'mix4' needs the data sets {', '.join(MIX4)}; missing: {', '.join(missing)}.")
        if test_policy == "holdout":
            raise IlkError("'mix4' tests on the whole test split of each source. Take the policy 'label-set' or 'own'.")
        if auxiliary:
            raise IlkError(f"'mix4' keeps no auxiliary samples for the server; {auxiliary} were asked for. Give 0.")
    elif len(labels) != 1:
        given = ", ".join(labels) or "none"
        raise IlkError(f"The split '{split}' cuts one data set; given: {given}. Give one, or take the split 'mix4'.")
    total = sum(len(source.train) for source in labels.values())
    if total < clients:
        raise IlkError(f"{clients} clients cannot share {total} training samples. Take at most {total} clients.")
    if total - auxiliary < clients:
        raise IlkError(
            f"{auxiliary} auxiliary samples of {total} leave {max(0, total - auxiliary)} for {clients} clients. "
            f"Take at most {total - clients} auxiliary samples, or fewer clients."
        )
    for source, given_labels in labels.items():
        for part in (given_labels.train, given_labels.test):
            if len(part) and not 0 <= part.min() <= part.max() < given_labels.classes:
                raise IlkError(
                    f"'{source}' has labels from {part.min()} to {part.max()}; with {given_labels.classes} classes "
                    f"they must lie from 0 to {given_labels.classes - 1}. Number the classes from 0."
                )
