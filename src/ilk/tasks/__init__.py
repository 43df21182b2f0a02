"""What a client can be asked. A task is a frozen dataclass with ``answer(client, message) -> message``."""

from ilk.tasks.evaluate import Evaluate
from ilk.tasks.fit import TEST_CHOICE, Choice, Fit, FitOwn, best
from ilk.tasks.hold import Hold
from ilk.tasks.sgd import LocalSGD
from ilk.tasks.sign import Sign
from ilk.tasks.task import Task

__all__ = ["TEST_CHOICE", "Choice", "Evaluate", "Fit", "FitOwn", "Hold", "LocalSGD", "Sign", "Task", "best"]
