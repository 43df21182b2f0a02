"""SCAFFOLD: control variates correct each client's gradient for where the others would go (option II).

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.

    client k     every gradient g becomes  g + c - c_k
                 after K steps  c_k+ = c_k - c + (theta_t - theta_k) / (K lr)
    server       theta_{t+1} = sum n_k theta_k / sum n_k,   c <- c + (|S| / N) mean_k (c_k+ - c_k)

paper / released code / here
    The PACFL code corrects each step beside its momentum, which it leaves out of the control, too (K lr, as without): both
      by `correct="step"`. It moves c by the mean over the cohort, |S|/N left out, ten times too strong at a tenth of the
      clients: `scale="cohort"`. Its momentum is 0.9 (`--momentum`); the paper's, and the default, is none.
    Here the correction is inside the gradient; with momentum K steps reach further than K lr, and `LocalSGD.reach` takes
      the place of K. Without momentum both ways are the same.
    The control covers the trainable parameters only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ilk.checked import options
from ilk.client import Client
from ilk.method import Cohort, Message, Method, Server, State
from ilk.params import average
from ilk.tasks import Fit, LocalSGD

Correct = Literal["gradient", "step"]


@dataclass(frozen=True)
class ScaffoldState(State):
    """The model and the server's control."""

    control: NDArray[np.float32]  # c, one value a trainable parameter


@dataclass(frozen=True)
class FitControlled(Fit):
    """Train with corrected gradients; remember c_k, send the model and how c_k has changed."""

    correct: Correct = "gradient"

    def answer(self, client: Client, message: Message) -> Message:
        """Train from the model received under the control received."""
        start, _ = self.begin(client, message)
        c = message["control"]
        own = client.memory.get("control", np.zeros_like(c))
        inside, samples = self.correct == "gradient", len(client.data("train")[1])
        model = self.local.train(client, start, shift=c - own if inside else None, drift=None if inside else c - own)
        reach = (self.local.reach if inside else self.local.steps)(samples) * self.local.lr
        renewed = (own - c + (start[: len(c)] - model[: len(c)]) / reach).astype(np.float32)
        client.remember(control=renewed)
        if client.place.setting.keep_models:
            client.remember(model=model)
        return {"model": model, "control": renewed - own}


@options
class Scaffold(Method[ScaffoldState]):
    """Control variates correct each client's gradient for where the others would go."""

    name: ClassVar[str] = "scaffold"
    paper: ClassVar[str] = "Karimireddy et al., ICML 2020"

    local: LocalSGD = LocalSGD(momentum=0.0)
    correct: Correct = "gradient"
    """Correct the gradient, so that momentum carries the correction on (paper: without momentum), or each step beside its
    momentum (PACFL's code)."""
    scale: Literal["all", "cohort"] = "all"
    """The control moves by the mean change over all clients (paper), or over the cohort only (PACFL's code)."""

    @property
    def training(self) -> FitControlled:
        """Train with corrected gradients."""
        return FitControlled(self.local, correct=self.correct)

    def start(self, server: Server) -> ScaffoldState:
        """Begin with the initial model and no correction."""
        return ScaffoldState(server.initial_model[None], np.zeros(server.net.trainable, np.float32))

    def round(self, server: Server, state: ScaffoldState, cohort: Cohort) -> ScaffoldState:
        """Average the models, and move the control by the clients' changes."""
        trained = server.ask(self.training, cohort, self.message(state))
        changes = trained["control"].astype(np.float64)
        over = len(server.everyone) if self.scale == "all" else len(trained)
        control = (state.control + changes.sum(axis=0) / over).astype(np.float32)
        return ScaffoldState(average(trained.models, trained.sizes), control)

    def message(self, state: ScaffoldState) -> Callable[[int], Message]:
        """Send the model and the control."""
        return lambda client: {"models": state.models, "control": state.control}
