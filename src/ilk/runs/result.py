"""What a run leaves: its history, its ledger, and what it ended with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.clusters.scores import SCORES
from ilk.errors import IlkError
from ilk.ledger import Entry, Ledger
from ilk.method import State
from ilk.params import digest
from ilk.runs.folder import HISTORY, LEDGER, RESULT, RUN, read_json, read_lines
from ilk.runs.history import History, Row


@dataclass
class Run:
    """A run, finished or as far as it got: its history, its ledger, and what it ended with."""

    record: Mapping[str, Any]
    history: History = field(default_factory=History)
    ledger: Ledger = field(default_factory=Ledger)
    folder: Path | None = None
    state: State | None = None
    memories: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    memory_digests: list[str] = field(default_factory=list)  # in a deployment memories stay with the clients

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Read a run's folder; the state stays on disk."""
        folder = Path(folder)
        entries = [Entry(**{**line, "clients": tuple(line["clients"])}) for line in read_lines(folder / LEDGER)]
        return cls(read_json(folder / RUN), History(read_lines(folder / HISTORY)), Ledger(entries), folder)

    @property
    def config(self) -> Mapping[str, Any]:
        """What was asked for."""
        config: Mapping[str, Any] = self.record["config"]
        return config

    @property
    def ids(self) -> list[str]:
        """The clients' names."""
        ids: list[str] = self.record["federation"]["ids"]
        return ids

    @property
    def last(self) -> Row:
        """The last row that was evaluated."""
        for row in reversed(self.history.rows):
            if "accuracy" in row:
                return row
        raise IlkError("This run has no finished round yet.")

    @property
    def accuracy(self) -> float:
        """Mean accuracy over all clients after the last round, 0 to 1, under the run's protocol."""
        return float(self.last["accuracy"])

    @property
    def accuracy_by_client(self) -> dict[str, float]:
        """Accuracy of each client after the last round."""
        return dict(zip(self.ids, self.last["accuracy_by_client"], strict=True))

    @property
    def clusters(self) -> list[list[str]]:
        """Who shares a model with whom after the last round."""
        return together(self.ids, self.last["cluster_by_client"])

    @property
    def true_groups(self) -> list[list[str]] | None:
        """The groups that the split planted, where it planted any."""
        groups = self.record["federation"]["groups"]
        return None if groups is None else together(self.ids, groups)

    @cached_property
    def model_digest(self) -> str:
        """SHA-256 over the models that the server holds, then over the digests of what each client remembers.

        The rest of a state is left out: two methods that end in the same models have the same digest.
        """
        if self.state is None:
            return str(read_json((self.folder or Path()) / RESULT)["model_digest"])
        return digest([self.state.models, *(np.frombuffer(name.encode(), np.uint8) for name in self.memory_digests)])

    def result(self) -> dict[str, Any]:
        """Return the final numbers as plain values: what ``--json`` prints."""
        config = self.config
        return {
            "run": None if self.folder is None else str(self.folder),
            "method": config["method"],
            "options": config["options"],
            "data": config["data"],
            "split": config["split"],
            "clients": len(self.ids),
            "rounds": len(self.history),
            "seed": config["seed"],
            "engine": self.record["engine"],
            "protocol": config["protocol"],
            "test_policy": config["test_policy"],
            "leaks": config["leaks"],
            "accuracy": self.accuracy,
            "accuracy_by_client": self.accuracy_by_client,
            "clusters": self.clusters,
            "true_groups": self.true_groups,
            **{name: self.last[name] for name in SCORES},
            "bytes_up": self.ledger.total("up"),
            "bytes_down": self.ledger.total("down"),
            "paper_mb": self.ledger.paper_mb(len(self.ids)),
            "seconds": sum(row["seconds"] for row in self.history),
            "model_digest": self.model_digest,
        }


def together(ids: list[str], labels: list[int]) -> list[list[str]]:
    """Return who has the same label as whom, in the order of first members."""
    groups: dict[int, list[str]] = {}
    for client, label in zip(ids, labels, strict=True):
        groups.setdefault(label, []).append(client)
    return list(groups.values())
