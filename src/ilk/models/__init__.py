"""Networks by name: those that ship here, or the user's own ``module:callable``."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import nn

from ilk.errors import IlkError, unknown
from ilk.models.lenet import lenet5
from ilk.models.mlp import mlp
from ilk.own import find, words
from ilk.params import Net, Vector
from ilk.randomness import torch_seed

MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {"lenet5": lenet5, "mlp": mlp}


def choose(name: str, shape: tuple[int, ...]) -> str:
    """Resolve "auto": LeNet-5 for images that are large enough for it, an MLP for everything else."""
    if name != "auto":
        return name
    return "lenet5" if len(shape) == 3 and min(shape[1:]) >= 16 else "mlp"


def build(name: str, shape: tuple[int, ...], classes: int, seed: int, which: int = 0) -> Net:
    """Build a network with the initial weights of this seed; `which` counts further, different initialisations."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial-model", which))
        if ":" in name:
            module = _own(name, shape, classes)
        else:
            try:
                module = _named(name)(shape, classes)
            except ValueError as error:
                raise IlkError(f"The model '{name}' does not fit: {error}.") from error
    try:
        return Net(module)
    except TypeError as error:
        raise IlkError(f"The model '{name}' cannot be used: {error}.") from error


def initial_model(name: str, shape: tuple[int, ...], classes: int, seed: int, which: int = 0) -> Vector:
    """Return the initial weights of this seed as one vector."""
    return build(name, shape, classes, seed, which).read()


def rehearse(name: str, shape: tuple[int, ...], classes: int) -> None:
    """Build the network once and put two samples through it, so that what cannot work is said before anything is made."""
    net = build(name, shape, classes, seed=0)
    try:
        net.module.eval()
        with torch.inference_mode():
            outputs = net.module(torch.zeros(2, *shape))
    except Exception as error:
        raise IlkError(f"The model '{name}' cannot take inputs of shape {shape}: {words(error)}.") from error
    found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
    if found != (2, classes):
        raise IlkError(
            f"The model '{name}' gives {found} for two samples; needed is one value a class: (2, {classes})."
        )


def _named(name: str) -> Callable[[tuple[int, ...], int], nn.Module]:
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, "auto", "module:callable (your own)"])
    return MODELS[name]


def _own(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Call the user's ``module:callable``, with `shape` and `classes` where it has parameters of these names."""
    make = find("model", name)
    try:
        wanted = inspect.signature(make).parameters
        made = make(**{key: value for key, value in {"shape": shape, "classes": classes}.items() if key in wanted})
    except (Exception, SystemExit) as error:
        raise IlkError(
            f"The model '{name}' cannot be made: {words(error)}. It is called with `shape` and `classes`, where it has "
            "parameters of these names, and with nothing else."
        ) from error
    if not isinstance(made, nn.Module):
        raise IlkError(f"The model '{name}' returned {type(made).__name__}; it must return a torch.nn.Module.")
    return made
