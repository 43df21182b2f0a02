"""FLIS-DC: clusters are formed anew in each round, from what the clients' models say about the server's own data.

Morafah, Vahidian, Wang, Lin: FLIS: Clustered Federated Learning via Inference Similarity for Non-IID Data Distribution,
IEEE Open Journal of the Computer Society, 2023.

    client k     theta_k <- the best of all cluster models on its own data, then trained
    server       A_ij = agreement of theta_i and theta_j on the server's data
                 C_i = {j : A_ij >= threshold},  theta_{C_i} = sum_{j in C_i} n_j theta_j / sum_{j in C_i} n_j

paper / released code / here
    Similarity: the paper's formula gives 1/sqrt(M) for a model with itself (F3); the code's agreement rate is used here.
    Choice of a model: Algorithm 1 takes the least loss on test data, the code the best accuracy on test data (a leak, F5:
      `choose="test-accuracy"`); here the least loss on the client's validation data.
    Server data: the code cuts 2,500 images out of the test set (F5); here they are held out of training before the split.
    Every cohort member opens a cluster of its own, and equal clusters are not merged, as in the code: m models each round,
      and m m models sent in the next. `merge_identical=true` keeps one of equal ones.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from ilk.checked import options
from ilk.clusters.agreement import inference_agreement
from ilk.method import Cohort, Method, Server, State
from ilk.params import average
from ilk.tasks import TEST_CHOICE, Choice, Fit


@options
class FLISDynamic(Method[State]):
    """Clusters formed anew each round by agreement of the models on the server's data; clients choose among all."""

    name: ClassVar[str] = "flis-dc"
    paper: ClassVar[str] = "Morafah et al., IEEE OJCS 2023"
    needs_auxiliary: ClassVar[bool] = True

    threshold: Annotated[float, Field(ge=0)] = 0.5
    """Two models train together when they agree on at least this fraction of the server's samples (above 1: never)."""
    choose: Choice = "validation-loss"
    """What a client chooses a model by: its validation loss, its training loss, or (leaks) its test accuracy."""

    merge_identical: bool = False
    """Send clusters with the same members once: the same models, less to send."""

    @property
    def leak(self) -> str:
        """Clients that choose by test accuracy have looked at what they are measured on."""
        return TEST_CHOICE if self.choose == "test-accuracy" else ""

    @property
    def training(self) -> Fit:
        """Train the best of the models."""
        return Fit(self.local, choose=self.choose)

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Every client receives every model and trains the best; those that agree are averaged."""
        trained = server.ask(self.training, cohort, self.message(state))
        agreement = inference_agreement(server.predict(trained.models))
        together = agreement >= self.threshold
        together |= trained.clients[:, None] == trained.clients  # a client is always in its own cluster
        if self.merge_identical:
            together = np.array(list(dict.fromkeys(map(tuple, together))))  # in the order of their first members
        return State(models=average(trained.models, together * trained.sizes))
