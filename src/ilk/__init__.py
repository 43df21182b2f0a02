"""Clustered federated learning: clients whose data are alike train one model together, without showing their data."""

from ilk.data.federation import Federation, federation, from_arrays, from_folder
from ilk.errors import IlkError
from ilk.method import Cohort, Message, Method, Server, State
from ilk.options import options
from ilk.runs.history import History
from ilk.runs.plan import Plan
from ilk.runs.run import Run, run
from ilk.tasks import Fit, FitOwn, LocalSGD

__all__ = [
    "Cohort",
    "Federation",
    "Fit",
    "FitOwn",
    "History",
    "IlkError",
    "LocalSGD",
    "Message",
    "Method",
    "Plan",
    "Run",
    "Server",
    "State",
    "federation",
    "from_arrays",
    "from_folder",
    "options",
    "run",
]
