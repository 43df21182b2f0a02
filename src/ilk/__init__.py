"""Clustered federated learning: clients whose data are alike train one model together, without showing their data."""

from typing import Any

from ilk import methods
from ilk.data.federation import Federation, federation
from ilk.data.silos import from_arrays, from_folder
from ilk.engines import Inline, Workers
from ilk.errors import IlkError
from ilk.method import Clustered, Cohort, Message, Method, Server, State
from ilk.options import options
from ilk.runs.history import History
from ilk.runs.plan import Plan
from ilk.runs.result import Run
from ilk.runs.run import run
from ilk.tasks import Fit, FitOwn, LocalSGD

__all__ = [
    "Clustered",
    "Cohort",
    "Federation",
    "Fit",
    "FitOwn",
    "History",
    "IlkError",
    "Inline",
    "LocalSGD",
    "Message",
    "Method",
    "Plan",
    "Run",
    "Server",
    "State",
    "Workers",
    "federation",
    "from_arrays",
    "from_folder",
    "methods",
    "options",
    "run",
]


def __getattr__(name: str) -> Any:
    """Offer every registered method by the name of its class: ``ilk.PACFL(threshold=0.3)``."""
    for method in methods.registry().values():
        if method.__name__ == name:
            return method
    raise AttributeError(f"module 'ilk' has no attribute '{name}'")
