"""Clustered federated learning: clients whose data are alike train one model together, without showing their data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ilk import methods
    from ilk.checked import options
    from ilk.data.federation import Federation, federation
    from ilk.data.silos import from_arrays, from_folder
    from ilk.engines.inline import Inline
    from ilk.engines.workers import Workers
    from ilk.errors import IlkError
    from ilk.method import Clustered, Cohort, Message, Method, Server, State
    from ilk.params import average
    from ilk.runs.history import History
    from ilk.runs.plan import Plan
    from ilk.runs.result import Run
    from ilk.runs.run import run
    from ilk.tasks.fit import Fit, FitOwn
    from ilk.tasks.sgd import LocalSGD

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
    "average",
    "federation",
    "from_arrays",
    "from_folder",
    "methods",
    "options",
    "run",
]

_HOMES = {
    "ilk.data.federation": ("Federation", "federation"),
    "ilk.data.silos": ("from_arrays", "from_folder"),
    "ilk.engines.inline": ("Inline",),
    "ilk.engines.workers": ("Workers",),
    "ilk.errors": ("IlkError",),
    "ilk.method": ("Clustered", "Cohort", "Message", "Method", "Server", "State"),
    "ilk.checked": ("options",),
    "ilk.params": ("average",),
    "ilk.runs.history": ("History",),
    "ilk.runs.plan": ("Plan",),
    "ilk.runs.result": ("Run",),
    "ilk.runs.run": ("run",),
    "ilk.tasks.fit": ("Fit", "FitOwn"),
    "ilk.tasks.sgd": ("LocalSGD",),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for, so that the command line's help need not wait for PyTorch.

    Every registered method is offered by the name of its class: ``ilk.PACFL(threshold=0.3)``.
    """
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    if name == "methods":
        return import_module("ilk.methods")
    if name[:1].isupper():
        for method in import_module("ilk.methods").registry().values():
            if method.__name__ == name:
                return method
    raise AttributeError(f"module 'ilk' has no attribute '{name}'")


def __dir__() -> list[str]:
    """List the public names and the methods' classes, for completion."""
    return [*__all__, *(method.__name__ for method in import_module("ilk.methods").registry().values())]
