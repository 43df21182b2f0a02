"""How a run is played: everything that decides its outcome besides the method and the federation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ilk.checked import options
from ilk.native import Compute
from ilk.protocols import Protocol


@options
class Plan:
    """Rounds, cohort, seed, network and protocol of a run."""

    rounds: Annotated[int, Field(ge=1)] = 20
    """How many rounds are played."""
    cohort: Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, le=1)] = 1.0
    """Clients asked each round: a whole number of them, or with a decimal point a fraction (0.1, 1.0)."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Names all random streams of the run."""
    model: str = "auto"
    """lenet5, mlp, your own module:callable, or auto: lenet5 for images from 16x16, else mlp."""
    compute: Compute = "auto"
    """What trains and tests: native (compiled, for small networks), torch, or auto: native where it can."""
    protocol: Protocol = "served"
    """Which model is measured on which data: see `ilk.protocols`."""
    eval_every: Annotated[int, Field(ge=1)] = 1
    """Evaluate all clients every so many rounds, and after the last."""
