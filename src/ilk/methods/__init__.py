"""The methods by name. A file in this folder, or an entry point of the group ``ilk.methods``, is all that one needs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
        found[entry.name] = _of_another_package(entry, found)
    return dict(sorted(found.items()))


def _of_another_package(entry: EntryPoint, taken: Mapping[str, Any]) -> type[Method[Any]]:
    """Load an entry point, and refuse by name what is no method or cannot be called by its name."""
    who = f"The method '{entry.name}' of another package ({entry.value})"
    try:
        method = entry.load()
    except Exception as error:
        raise IlkError(f"{who} cannot be imported: {error} ({type(error).__name__}). Mend or uninstall it.") from error
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise IlkError(f"{who} is not a subclass of ilk.Method. Mend or uninstall it.")
    if entry.name in taken or method.name != entry.name:
        raise IlkError(f"{who} must have a name of its own, the same in the class (it says '{method.name}') as here.")
    return method


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
