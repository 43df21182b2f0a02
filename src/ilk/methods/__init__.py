"""The methods by name. A file in this folder, or an entry point of the group ``ilk.methods``, is all that one needs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from ilk.checked import make
from ilk.errors import IlkError, unknown
from ilk.method import Method


@cache
def registry() -> Mapping[str, type[Method[Any]]]:
    """Return every method: those of this package, then those of other installed packages."""
    found: dict[str, type[Method[Any]]] = {}
    for module in pkgutil.iter_modules(__path__):
        content = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        for thing in content:
            if isinstance(thing, type) and issubclass(thing, Method) and thing.name:
                found[thing.name] = thing
    for entry in entry_points(group="ilk.methods"):
        other = entry.load()
        if not (isinstance(other, type) and issubclass(other, Method)):
            raise IlkError(f"The entry point '{entry.name}' ({entry.value}) is not a subclass of ilk.Method.")
        found.setdefault(entry.name, other)
    return dict(sorted(found.items()))


def method_class(name: str) -> type[Method[Any]]:
    """Return the method of this name."""
    if name not in registry():
        raise unknown("method", name, registry())
    return registry()[name]


def make_method(name: str, options: Mapping[str, Any]) -> Method[Any]:
    """Return the method of this name with these options; ``{"local": {"lr": 0.1}}`` for those of local training."""
    return make(method_class(name), options)


def summary(cls: type[Method[Any]]) -> str:
    """Return a method's one-line description."""
    return (cls.__doc__ or "").strip().splitlines()[0]
