"""The options of `run` and `compare`: made of the fields of an experiment, so that a name is written once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import Field

from ilk.checked import describe, make, options
from ilk.errors import IlkError, unknown
from ilk.runs.experiment import Experiment, read_config

LEFT_OUT = ("methods", "set", "download")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@options
class Playing:
    """How an experiment is played: nothing of this changes what comes out."""

    as_flags: ClassVar[bool] = True

    engine: Literal["auto", "inline", "workers", "flower-sim"] = "auto"
    """Where clients are answered for: inline, workers, flower-sim (Flower's simulation on Ray), or auto."""
    workers: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Number of worker processes; default: one a core."""
    out: Annotated[str, Field(min_length=1)] | None = None
    """Folder for the run; default: a new one below runs/."""
    resume: Annotated[str, Field(min_length=1)] | None = None
    """Go on with the run in this folder."""
    track: Annotated[str, Field(min_length=1)] | None = None
    """Also tell a tracker of every round: tensorboard, mlflow, or both as tensorboard,mlflow."""
    json: bool = False
    """Print one JSON object on stdout; everything else goes to stderr."""


@dataclass(frozen=True)
class Asked:
    """What stands on a command line: methods, values of an experiment, and how to play it."""

    methods: list[str]
    values: dict[str, Any]  # of the experiment's fields, those that were given
    playing: Playing


def with_experiment_options(command: Callable[[Asked], None]) -> Callable[..., None]:
    """Give a command all options of an experiment; it is called with what was asked."""
    parameters = [_methods()]
    for row in describe(Experiment):
        if row["name"] not in LEFT_OUT:
            parameters.append(_option(row["name"], row["help"], row["default"], row["type"]))
    parameters += [
        _flag("download", "Allow a download from the Hugging Face hub."),
        _option("set", "An option of a method, as threshold=0.3 or pacfl.threshold=0.3; may be repeated.", many=True),
        *(_option(r["name"], r["help"], r["default"], r["type"]) for r in describe(Playing) if r["name"] != "json"),
        _option("config", "TOML file with these same names; what stands on the command line wins."),
        _flag("json", "Print one JSON object on stdout; everything else goes to stderr."),
    ]

    def called(**given: Any) -> None:
        command(_understood(given))

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # how Typer learns of parameters
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    return called


def number(text: str) -> Any:
    """Read a number where there is one; anything else stays the text that it is."""
    if not NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read option=value; the value is a number, true, false, none, or a text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    values = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            raise IlkError(f"--set {text} is not understood. Write option=value, as --set threshold=0.3.")
        values[name] = words[value.lower()] if value.lower() in words else number(value)
    return values


def _understood(given: Mapping[str, Any]) -> Asked:
    """Put the file and the command line together."""
    line = {name: value for name, value in given.items() if value not in (None, [], False)}
    file = read_config(line["config"]) if "config" in line else {}
    line.pop("config", None)
    experiments, playings = ({f.name for f in fields(cls)} for cls in (Experiment, Playing))
    for name in file:
        if name not in experiments | playings | {"method"}:
            raise unknown(f"option for {given['config']}:", name, [*experiments, *playings, "method"])
    methods = line.pop("methods", None) or _list(file.get("methods", file.get("method", [])))
    texts = {row["name"] for cls in (Experiment, Playing) for row in describe(cls) if "number" not in row["type"]}
    settings = assignments(line.pop("set", []))
    for name, value in line.items():
        if isinstance(value, str) and name not in texts:
            line[name] = number(value)
    if "seeds" in line:
        line["seeds"] = [number(part.strip()) for part in str(line["seeds"]).split(",")]
    values = {**file, **line}
    if "seeds" in values:
        values["seeds"] = _list(values["seeds"])
    if isinstance(values.get("set", {}), Mapping):
        values["set"] = {**values.get("set", {}), **settings}
    playing = make(Playing, {name: value for name, value in values.items() if name in playings})
    kept = {name: value for name, value in values.items() if name in experiments - {"methods"} and value != {}}
    return Asked(methods, kept, playing)


def _list(value: Any) -> Any:
    """Return a single value as a list of one; a text with commas as what is between them."""
    if isinstance(value, str):
        return [number(part.strip()) for part in value.split(",")]
    return list(value) if isinstance(value, list | tuple) else [value]


def _methods() -> inspect.Parameter:
    annotation = Annotated[
        list[str] | None, typer.Argument(metavar="METHOD", help="`ilk methods` lists them.", show_default=False)
    ]
    return inspect.Parameter("methods", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _option(name: str, text: str, default: Any = None, type: str = "", many: bool = False) -> inspect.Parameter:
    has_default = default not in (None, [], ()) and "default" not in text
    info = typer.Option(
        "--" + name.replace("_", "-"),
        help=f"{text} [default: {default}]" if has_default else text,
        metavar="OPTION=VALUE" if many else "NAME" if "number" not in type else "VALUE" if "'" in type else "NUMBER",
        show_default=False,
    )
    annotation = Annotated[list[str] | None if many else str | None, info]  # type: ignore[valid-type]  # made at run time
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(name: str, text: str) -> inspect.Parameter:
    annotation = Annotated[bool, typer.Option("--" + name.replace("_", "-"), help=text, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
