"""Tasks cross a network as plain words: every task of every method, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from ilk.engines.flower.words import NotUnderstood, from_words, to_words
from ilk.errors import IlkError
from ilk.methods import registry
from ilk.methods.cafa import Histogram, Judge
from ilk.methods.ifca import Choose
from ilk.tasks import Evaluate, FitOwn, LocalSGD, Sign

OTHERS = [Sign("whole", 3, "overlap", 5), Histogram(), Judge(), Choose("train-loss"), FitOwn(LocalSGD(lr=1))]
SGD = {"is": "ilk.tasks.sgd:LocalSGD"}
FIT = {"is": "ilk.tasks.fit:Fit", "local": SGD}


def over_the_wire(task):
    return from_words(json.loads(json.dumps(to_words(task))))


@pytest.mark.parametrize("name", registry())
def test_what_every_method_asks_comes_back_as_it_was(name):
    training = registry()[name]().training
    for task in (training, Evaluate(training, "after-local")):
        came = over_the_wire(task)
        assert came == task
        assert type(came) is type(task)


@pytest.mark.parametrize("task", OTHERS, ids=lambda task: type(task).__name__)
def test_so_does_every_other_task(task):
    assert over_the_wire(task) == task


@dataclass(frozen=True)
class OfThisFile:
    number: int = 1

    def answer(self, client, message):
        return {}


def test_a_task_that_no_other_installation_can_know_is_refused_with_the_reason():
    with pytest.raises(IlkError, match=r"The task OfThisFile .* cannot travel"):
        to_words(OfThisFile())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "a task is a table"),
        ({"is": 3}, "a task is a table"),
        ({"is": "os:system"}, "no task 'os:system'"),
        ({"is": "builtins:eval"}, "no task"),
        ({"is": "ilk.cli.__main__:main"}, "no task"),
        ({"is": "ilk.runs.run:_Running"}, "no task"),
        ({"is": "ilk.methods.cafa:np.load"}, "no task"),
        ({"is": "ilk.methods.cafa:Client"}, "no task"),
        ({"is": "ilk.methods.cafa:CAFA"}, "CAFA is not a task"),
        (SGD, "LocalSGD is not a task"),
        ({"is": "ilk.tasks.fit:Fit"}, "missing 1 required"),
        ({**FIT, "local": {**SGD, "epochs": 0}}, "epochs = 0 is not allowed"),
        ({**FIT, "local": {**SGD, "lr": "0.1"}}, "LocalSGD.lr cannot be '0.1'"),
        ({**FIT, "local": {"is": "ilk.tasks.fit:FitOwn", "local": SGD}}, "Fit.local cannot be a FitOwn"),
        ({**FIT, "local": 3}, "Fit.local cannot be '3'"),
        ({**FIT, "choose": "by-guess"}, "Fit.choose cannot be"),
        ({**FIT, "proximal": float("nan")}, "Fit.proximal cannot be"),
        ({**FIT, "__class__": "os:system"}, "Fit has no '__class__'"),
        ({"is": "ilk.tasks.evaluate:Evaluate", "training": SGD, "protocol": "served"}, "Evaluate.training cannot be"),
        (
            {"is": "ilk.tasks.sign:Sign", "signature": "whole", "vectors": True, "measure": "overlap", "repeats": 5},
            "Sign",
        ),
    ],
    ids=str,
)
def test_anything_else_is_not_understood(words, why):
    with pytest.raises(NotUnderstood, match=why):
        from_words(words)


def test_a_module_is_never_imported_because_somebody_names_it():
    import sys

    name = "ilk.methods.not_there_yet"
    with pytest.raises(NotUnderstood):
        from_words({"is": f"{name}:Task"})
    assert name not in sys.modules
