"""SOLO: every client trains alone. The baseline that tells what a client gains by taking part.

Nothing crosses: each client starts from the common initial model, which it makes from the seed, and keeps its own.

paper / released code / here
    The papers do not say how many epochs SOLO gets in all; the released label-skew script trains 50 x 1, the others 5 x 5.
    Here a client trains as often as it is asked, like under every other method: cohort and rounds decide.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ilk.checked import options
from ilk.method import Cohort, Method, Server, State
from ilk.tasks import FitOwn


@options
class Solo(Method[State]):
    """Every client trains alone; no server."""

    name: ClassVar[str] = "solo"
    paper: ClassVar[str] = "baseline of all five papers"

    @property
    def training(self) -> FitOwn:
        """Go on training one's own model."""
        return FitOwn(self.local)

    def start(self, server: Server) -> State:
        """Return a state without any model: the server has none."""
        return State(models=np.empty((0, len(server.initial_model)), np.float32))

    def round(self, server: Server, state: State, cohort: Cohort) -> State:
        """Let the cohort train; nothing comes back."""
        server.ask(self.training, cohort, {})
        return state
