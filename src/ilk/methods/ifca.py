"""IFCA: k models; every client takes the one that fits its data best.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020.

    client k     j = argmin_j L_k(theta_j) on its training data; trains theta_j; sends (theta, j)
    server       theta_j = sum n_k theta_k / sum n_k over those that chose j; a model that nobody chose stays

paper / released code / here
    The original re-draws the k initial models until each attracts a good share of a cohort (35 % for k = 2, 10 % for k = 4):
      `min_share`; it averages without weights: `weighted=false`. The PACFL code chooses by accuracy on the test set (a
      leak): `choose="test-accuracy"`. Here: training loss, weights, initial models as they come (`min_share=0`).
    The PACFL code draws its initial models from normal distributions of its own; here all methods begin alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from ilk.checked import options
from ilk.client import Client
from ilk.errors import IlkError
from ilk.method import Cohort, Message, Method, Server, State
from ilk.params import average_clusters
from ilk.tasks import TEST_CHOICE, Choice, Fit, best

TRIES = 50


@dataclass(frozen=True)
class Choose:
    """Tell which model fits best."""

    choose: Choice

    def answer(self, client: Client, message: Message) -> Message:
        """Return the number of the best model."""
        return {"chosen": np.array(best(client, message["models"], self.choose), dtype=np.int32)}


@options
class IFCA(Method[State]):
    """k models; each client takes the one that fits its data best, and they are averaged by choice."""

    name: ClassVar[str] = "ifca"
    paper: ClassVar[str] = "Ghosh et al., NeurIPS 2020"

    k: Annotated[int, Field(ge=1)] = 2
    """How many models."""
    choose: Choice = "train-loss"
    """What a client chooses by: its training loss, its validation loss, or (leaks) its test accuracy."""
    min_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Draw initial models until each is chosen by at least this share of a cohort; 0: take the first."""
    weighted: bool = True
    """Weigh clients by their samples."""

    def __post_init__(self) -> None:
        """Refuse shares that cannot be."""
        if self.k * self.min_share > 1:
            raise IlkError(
                f"ifca: {self.k} models cannot each have {self.min_share:.0%} of the clients; use a smaller min_share."
            )

    @property
    def leak(self) -> str:
        """Clients that choose by test accuracy have looked at what they are measured on."""
        return TEST_CHOICE if self.choose == "test-accuracy" else ""

    @property
    def training(self) -> Fit:
        """Train the best model and tell which it was."""
        return Fit(self.local, choose=self.choose, tell=True)

    def start(self, server: Server) -> State:
        """Draw k initial models, again and again until each attracts its share."""
        for draw in range(TRIES):
            models = server.initial_models(self.k, draw)
            if self.k * self.min_share == 0:
                return State(models)
            asked = server.sample(f"draw {draw}")
            chosen = server.ask(Choose(self.choose), asked, {"models": models})["chosen"]
            if np.bincount(chosen, minlength=self.k).min() >= self.min_share * len(chosen):
                return State(models)
        raise IlkError(
            f"ifca: in {TRIES} draws of {self.k} initial models none had each model chosen by {self.min_share:.0%} of the "
            "clients. Use a smaller min_share or k."
        )

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Send all models; average what came back by the model that it started from."""
        trained = server.ask(self.training, cohort, self.message(state))
        chosen = trained["chosen"] if self.k > 1 else np.zeros(len(trained), np.int64)
        weights = trained.sizes if self.weighted else np.ones(len(trained))
        return State(models=average_clusters(state.models, trained.models, chosen, weights))
