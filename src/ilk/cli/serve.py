"""``ilk serve``: the server of a federation over a network."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ilk.cli.arguments import _flag, _option, assignments, number
from ilk.errors import IlkError

# Of an experiment's options, those that make sense where the clients bring the data.
TAKEN = (
    *("rounds", "cohort", "epochs", "batch_size", "lr", "momentum"),
    *("model", "seed", "protocol", "eval_every", "auxiliary"),
)


def need_flower() -> None:
    """Refuse with what to install, where Flower is missing."""
    if find_spec("flwr") is None:
        raise IlkError("This needs Flower: pip install 'ilk[flower]'.")


def with_serving_options(command: Callable[[Path, Mapping[str, Any]], None]) -> Callable[..., None]:
    """Give the command its options: those of an experiment that apply, and those of serving."""
    from ilk.checked import describe
    from ilk.runs.experiment import Experiment
    from ilk.runs.serving import Serving

    rows = [row for row in describe(Experiment) if row["name"] in TAKEN]
    rows += [row for row in describe(Serving) if row["name"] != "stay"]
    parameters = [
        _folder(),
        _option("method", "`ilk methods` lists them."),
        *(_option(row["name"], row["help"], row["default"], row["type"]) for row in rows),
        _option("set", "An option of the method, as threshold=0.3; may be repeated.", many=True),
        _option("out", "Folder for the run; default: DIR/server/run."),
        _option("listen", "Address to listen on; default: all that this machine has."),
        _flag("stay", "After the last round go on serving newcomers: signature in, the cluster's model out."),
        _flag("resume", "Go on with the run in the folder, with the options that it was begun with."),
        _flag("only_write", "Write the job and stop: for operators who start Flower themselves (`flwr run`)."),
        _flag("json", "Print one JSON object on stdout; everything else goes to stderr."),
    ]

    def called(**given: Any) -> None:
        command(given.pop("folder"), {name: value for name, value in given.items() if value not in (None, [], False)})

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # how Typer learns of parameters
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called


def serve(folder: Path, given: Mapping[str, Any]) -> None:
    """Serve a federation: wait for the clients, play the rounds, keep the run."""
    need_flower()
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    from ilk.checked import make
    from ilk.cli.tables import show
    from ilk.engines.flower.layout import server_folder
    from ilk.engines.flower.run import JOB, Job
    from ilk.engines.flower.supervise import serve, write_job
    from ilk.runs.experiment import Experiment
    from ilk.runs.folder import read_json
    from ilk.runs.play import methods_of
    from ilk.runs.result import Run
    from ilk.runs.serving import Serving

    home = server_folder(folder).resolve()
    values = {name: value if name in ("model", "protocol") else number(str(value)) for name, value in given.items()}
    serving = {name: values[name] for name in Serving.__dataclass_fields__ if name in values}
    if "resume" in given:
        begun = make(Job, read_json(home / JOB))
        job = Job(
            experiment=begun.experiment, serving=make(Serving, serving) if serving else begun.serving, out=begun.out
        )
    else:
        if "method" not in given:
            raise IlkError("No method was given: --method NAME. `ilk methods` lists them.")
        asked = {name: values[name] for name in TAKEN if name in values}
        asked |= {"methods": (given["method"],), "set": assignments(given.get("set", []))}
        out = Path(given.get("out", home / "run")).resolve()
        job = Job(experiment=make(Experiment, asked), serving=make(Serving, serving), out=str(out))
    methods_of(job.experiment)
    if "only_write" in given:
        write_job(home, job)
        return
    serve(home, job, "resume" in given, given.get("listen", "0.0.0.0"), lambda text: print(text, file=sys.stderr))
    show([Run.load(job.out)], "json" in given, False)


def _folder() -> inspect.Parameter:
    annotation = Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder, or the server's part.")]
    return inspect.Parameter("folder", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
