"""What each client would have from a method now, under a named protocol; and who shares a model with whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilk.clusters.scores import scores
from ilk.engines.engine import Engine
from ilk.measure import measured
from ilk.method import Method, State
from ilk.protocols import Protocol
from ilk.tasks import Evaluate

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Scores of every client, and the cluster that each is in: clients that are served the same model."""

    accuracy: Numbers
    f1: Numbers
    loss: Numbers
    cluster: NDArray[np.int64]

    def summary(self, groups: NDArray[np.int64] | None) -> dict[str, Any]:
        """Return the numbers over clients that a history row holds."""
        came = ~np.isnan(self.accuracy)  # a client that cannot be reached has no score, and spoils nobody else's
        accuracy = self.accuracy[came] if came.any() else np.array([np.nan])
        return {
            "accuracy": float(accuracy.mean()),
            "accuracy_std": float(accuracy.std()),
            "accuracy_p10": float(np.percentile(accuracy, 10)),
            "accuracy_worst": float(accuracy.min()),
            "f1": float(self.f1[came].mean()) if came.any() else np.nan,
            "loss": float(self.loss[came].mean()) if came.any() else np.nan,
            "clusters": len(np.unique(self.cluster[came])),
            **scores(groups, self.cluster),
        }


def evaluate(engine: Engine, method: Method[Any], state: State, protocol: Protocol, round: int) -> Evaluation:
    """Measure every client. This is the experimenter's look from outside: nothing of it enters the ledger."""
    clients = range(len(engine.memories))
    send = method.message(state)
    scores = measured(engine, Evaluate(method.training, protocol), {k: send(k) for k in clients}, round)

    def column(kind: str) -> Numbers:
        return np.array([scores[k][kind] if k in scores else np.nan for k in clients], dtype=np.float64)

    return Evaluation(
        accuracy=column("accuracy"),
        f1=column("f1"),
        loss=column("loss"),
        cluster=_clusters(method, state, column("chosen")),
    )


def _clusters(method: Method[Any], state: State, chosen: Numbers) -> NDArray[np.int64]:
    """Number the clusters by their first member. A client that uses a model of its own is a cluster of its own."""
    uses: dict[tuple[str, int], int] = {}
    clusters = np.empty(len(chosen), dtype=np.int64)
    for k, which in enumerate(chosen):
        own = not which >= 0
        model = ("own", k) if own else ("row", list(method.serves(state, k))[int(which)])
        clusters[k] = uses.setdefault(model, len(uses))
    return clusters
