"""The options of `run` and `compare`: made of the fields of an experiment, so that a name is written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ilk.errors import IlkError, unknown

LEFT_OUT = ("methods", "set", "download")


@dataclass
class Asked:
    """What stands on a command line: values for an experiment, and how to play it."""

    methods: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)  # of the experiment's fields, those that were given
    engine: str = "auto"
    workers: int | None = None
    out: Path | None = None
    resume: Path | None = None
    json: bool = False


def with_experiment_options(command: Callable[[Asked], None]) -> Callable[..., None]:
    """Give a command all options of an experiment; it is called with what was asked."""
    from ilk.options import describe
    from ilk.runs.experiment import Experiment

    parameters = [_methods()]
    for row in describe(Experiment):
        if row["name"] not in LEFT_OUT:
            parameters.append(_option(row["name"], row["help"], row["default"], row["type"]))
    parameters += [
        _flag("download", "Allow a download from the Hugging Face hub."),
        _option("set", "An option of a method, as threshold=0.3 or pacfl.threshold=0.3; may be repeated.", many=True),
        _option("engine", "Where clients are answered for: inline, workers, or auto.", "auto"),
        _option("workers", "Number of worker processes.", "one a core"),
        _option("out", "Folder for the run.", "a new one below runs/"),
        _option("resume", "Go on with the run in this folder."),
        _option("config", "TOML file with these same names; what stands on the command line wins."),
        _flag("json", "Print one JSON object on stdout; everything else goes to stderr."),
    ]

    def called(**given: Any) -> None:
        command(_understood(given))

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    return called


def scalar(text: str) -> Any:
    """Read a value as a person writes it: 3, 0.5, true, none, or a text."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read option=value."""
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise IlkError(f"--set {text} is not understood. Write option=value, as --set threshold=0.3.")
        values[name.strip().replace("-", "_") if "." not in name else name.strip()] = scalar(value.strip())
    return values


def _understood(given: Mapping[str, Any]) -> Asked:
    from ilk.runs.experiment import Experiment, read_config

    fields = Experiment.__dataclass_fields__
    on_the_line = {name: value for name, value in given.items() if value not in (None, [], False)}
    file = read_config(on_the_line["config"]) if "config" in on_the_line else {}
    allowed = {*fields, "method", "engine", "workers", "out"}
    for name in file:
        if name not in allowed:
            raise unknown(f"option in {on_the_line['config']}", name, allowed)
    in_file = file.pop("methods", [file.pop("method")] if "method" in file else [])
    methods = on_the_line.pop("methods", in_file)
    settings = assignments(on_the_line.pop("set", []))
    text = {name: value if isinstance(value, bool) else scalar(value) for name, value in on_the_line.items()}
    values = {**file, **text}
    if isinstance(values.get("seeds"), str | int):
        values["seeds"] = [scalar(part) for part in str(on_the_line["seeds"]).split(",") if part.strip()]
    for name in ("data", "data_dir", "split", "model", "out", "resume", "config"):
        if name in on_the_line:
            values[name] = on_the_line[name]  # a folder may be called 7
    values["set"] = {**file.get("set", {}), **settings}
    workers = values.get("workers")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise IlkError(f"workers = {workers!r} is not allowed. Allowed: a whole number (>= 1); default: one a core.")
    return Asked(
        methods=list(methods),
        values={name: value for name, value in values.items() if name in fields and value not in (None, {})},
        engine=values.get("engine", "auto"),
        workers=workers,
        out=Path(values["out"]) if "out" in values else None,
        resume=Path(values["resume"]) if "resume" in values else None,
        json=bool(given.get("json")),
    )


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
        metavar="NUMBER" if "number" in type else "NAME" if not many else "OPTION=VALUE",
        show_default=False,
    )
    annotation = Annotated[list[str] | None if many else str | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(name: str, text: str) -> inspect.Parameter:
    annotation = Annotated[bool, typer.Option(f"--{name}", help=text, show_default=False)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
