"""Options that check themselves: a frozen dataclass whose fields say their type, their range and what they are for.

``@options`` is pydantic's dataclass with the settings of this house, so that a wrong value is refused by name, with what
is allowed, wherever it comes from: Python, the command line, or a TOML file. The line of text below a field is its help.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, cast, dataclass_transform, get_type_hints

import pydantic
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ilk.errors import IlkError

T = TypeVar("T")

SETTINGS = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, pydantic.Field))
def options(cls: type[T]) -> type[T]:
    """Make a class of options: frozen, no unknown fields, no NaN or infinity, errors that a person can read."""
    made = pydantic.dataclasses.dataclass(frozen=True, config=SETTINGS)(cls)
    checked = made.__init__

    def explain(self: Any, *args: Any, **values: Any) -> None:
        try:
            checked(self, *args, **values)
        except ValidationError as error:
            raise IlkError(complaint(error, cls)) from None

    made.__init__ = explain  # type: ignore[method-assign]  # the one place where pydantic's words become ours
    return cast(type[T], made)


def make(cls: type[T], values: Mapping[str, Any]) -> T:
    """Make options of plain values, as they come from a file or a command line."""
    try:
        return TypeAdapter(cls).validate_python(dict(values))
    except ValidationError as error:
        raise IlkError(complaint(error, cls)) from None


def plain(options: Any) -> dict[str, Any]:
    """Return options as plain values that JSON and TOML can hold; the inverse of `make`."""
    values: dict[str, Any] = TypeAdapter(type(options)).dump_python(options, mode="json")
    return values


def describe(cls: type[Any]) -> list[dict[str, Any]]:
    """Return name, type, default, range and help of every option, nested ones as ``local.lr``."""
    schema = TypeAdapter(cls).json_schema()
    rows = []
    for name, field in schema.get("properties", {}).items():
        if "$ref" in field:
            nested = get_type_hints(cls)[name]
            own = field.get("default", {})  # a method's own default of a nested option, as SCAFFOLD's momentum
            rows += [
                {**row, "name": f"{name}.{row['name']}", "default": own.get(row["name"], row["default"])}
                for row in describe(nested)
            ]
        else:
            types, ranges = zip(*(_type_and_range(kind) for kind in field.get("anyOf", [field])), strict=True)
            rows.append(
                {
                    "name": name,
                    "type": " or ".join(types),
                    "default": field.get("default"),
                    "range": ", ".join(r for r in ranges if r) or None,
                    "help": " ".join((field.get("description") or _inherited_help(cls, name)).split()),
                }
            )
    return rows


def _inherited_help(cls: type[Any], name: str) -> str:
    """Return the help of an option that a base class has described."""
    for base in cls.__bases__:
        if name in getattr(base, "__dataclass_fields__", {}):
            return next(str(row["help"]) for row in describe(base) if row["name"] == name)
    return ""


def complaint(error: ValidationError, cls: type[Any]) -> str:
    """Say what was given, what is allowed, and where."""
    allowed = {row["name"]: row for row in describe(cls)}
    lines = []
    for name, problems in _by_option(error, allowed).items():
        if name not in allowed:
            near = get_close_matches(name, allowed, n=1, cutoff=0.5)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            has = f"There are: {', '.join(allowed)}." if allowed else "It has none."
            lines.append(f"{title(cls)} has no option '{name}'.{hint} {has}")
            continue
        lines.append(_refusal(cls, allowed[name], problems[0]["input"]))
    return "\n".join(lines)


def _refusal(cls: type[Any], row: Mapping[str, Any], given: Any) -> str:
    """Say that a value is not allowed, and which are."""
    name, shown = row["name"], repr(given) if isinstance(given, str) else given
    what = f"--{name.replace('_', '-')} {shown}" if hasattr(cls, "as_flags") else f"{title(cls)}: {name} = {shown}"
    range_ = f" ({row['range']})" if row["range"] else ""
    default = "" if row["default"] in (None, []) else f"; default {row['default']!r}"
    near = get_close_matches(str(given), re.findall(r"'([^']+)'", row["type"]), n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"{what} is not allowed.{hint} Allowed: {row['type']}{range_}{default}."


def title(cls: type[Any]) -> str:
    """What these options belong to, in words that a user knows."""
    return str(getattr(cls, "name", "") or cls.__name__)


def _by_option(error: ValidationError, allowed: Mapping[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        name = ".".join(path[:2]) if ".".join(path[:2]) in allowed else path[0] if path else "?"
        if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            name = ".".join(path)
        found.setdefault(name, []).append(problem)
    return found


def _type_and_range(kind: Mapping[str, Any]) -> tuple[str, str]:
    if "const" in kind or "enum" in kind:
        return " or ".join(f"'{value}'" for value in kind.get("enum", [kind.get("const")])), ""
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    if kind.get("type") == "array":
        item, range_ = _type_and_range(kind.get("items", {}))
        return f"a list, each {item}", range_
    words = {
        "number": "a number",
        "integer": "a whole number",
        "boolean": "true or false",
        "string": "a text",
        "null": "none",
        "array": "a list",
        "object": "a table",
    }
    range_ = " and ".join(f"{sign} {kind[key]:g}" for key, sign in bounds.items() if key in kind)
    return words.get(kind.get("type", ""), str(kind.get("type", "a value"))), range_
