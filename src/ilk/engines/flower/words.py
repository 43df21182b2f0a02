"""Tasks as plain words: ``{"is": "ilk.tasks.fit:Fit", "local": {...}}``, and back.

Nothing that comes over a network is unpickled, and no name that comes over it is imported. A task is looked up among
the classes that are there anyway: those of `ilk.tasks`, of the methods, and of packages that offer methods of their own
through the entry point group ``ilk.methods``. So a new method needs no line here, and a server cannot make a client run
anything else.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ilk.errors import IlkError
from ilk.methods import registry
from ilk.tasks.task import Task

IS = "is"
HOMES = ("ilk.tasks.", "ilk.methods.")
ELSEWHERE = "Use the engine 'inline' or 'workers', or put it into a package that offers a method (group ilk.methods)."


class NotUnderstood(ValueError):
    """What came is not a task that this installation knows."""


def to_words(task: Any) -> dict[str, Any]:
    """Write a task, or the options inside it, as values that JSON can hold."""
    cls = type(task)
    name = f"{cls.__module__}:{cls.__qualname__}"
    if _named(name) is not cls:
        raise IlkError(f"The task {cls.__qualname__} of {cls.__module__} cannot travel over a network. {ELSEWHERE}")
    return {IS: name, **{field.name: _value(getattr(task, field.name)) for field in dataclasses.fields(task)}}


def from_words(words: Any) -> Task:
    """Return the task that these words describe, every value checked; refuse anything else."""
    made = _made(words)
    if not callable(getattr(made, "answer", None)):
        raise NotUnderstood(f"{type(made).__name__} is not a task")
    return cast(Task, made)


def _value(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_words(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    raise IlkError(f"A task holds {value!r}, which cannot travel over a network. Allowed: numbers, texts, lists.")


def _made(words: Any) -> Any:
    if not isinstance(words, dict) or not isinstance(words.get(IS), str):
        raise NotUnderstood("a task is a table with its name")
    cls = _named(words[IS])
    if cls is None:
        raise NotUnderstood(f"this installation has no task '{words[IS][:100]}'")
    hints, values = typing.get_type_hints(cls), {}
    known = {field.name for field in dataclasses.fields(cls)}
    for name, value in words.items():
        if name == IS:
            continue
        if name not in known:
            raise NotUnderstood(f"{cls.__name__} has no '{name[:100]}'")
        values[name] = _checked(hints[name], value, f"{cls.__name__}.{name}")
    try:
        return cls(**values)
    except (IlkError, TypeError) as error:
        raise NotUnderstood(str(error)) from None


def _checked(hint: Any, value: Any, where: str) -> Any:
    """Check a value against its annotation; one that is a class of its own (options, another task) is made first."""
    if isinstance(value, dict) and IS in value:
        made = _made(value)
        protocol = getattr(hint, "_is_protocol", False)
        wanted = [name for name in ("answer", "begin") if protocol and hasattr(hint, name)]
        if not (all(hasattr(made, name) for name in wanted) if protocol else isinstance(made, hint)):
            raise NotUnderstood(f"{where} cannot be a {type(made).__name__}")
        return made
    try:
        return _adapter(hint).validate_python(value, strict=not isinstance(value, list))
    except ValidationError:
        raise NotUnderstood(f"{where} cannot be {str(value)[:100]!r}") from None


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    plain = typing.get_origin(hint) is not None or hint in (int, float, str, bool)
    return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False) if plain else None)


@cache
def _packages() -> tuple[str, ...]:
    """Where tasks may be defined. Loading the methods imports all of these, so that nothing is imported later."""
    registry()
    return (*HOMES, *{f"{entry.module.partition('.')[0]}." for entry in entry_points(group="ilk.methods")})


def _named(name: str) -> type[Any] | None:
    """Return the frozen dataclass of this name, if it was defined in a place where tasks are; never import."""
    module, _, qualname = name.partition(":")
    if not f"{module}.".startswith(_packages()):
        return None
    found = vars(sys.modules[module]).get(qualname) if module in sys.modules else None
    if not (isinstance(found, type) and dataclasses.is_dataclass(found) and found.__module__ == module):
        return None
    return found if found.__dataclass_params__.frozen else None  # type: ignore[attr-defined]  # not in the stubs
