"""The command line. One sub-command a file; heavy imports happen inside the commands, so that `--help` is quick."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.console import Console

from ilk.cli.arguments import with_experiment_options
from ilk.errors import IlkError, IlkWarning, Interrupted

INTERRUPTED = 130

app = typer.Typer(
    name="ilk",
    help="Clustered federated learning: clients whose data are alike train one model together.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 the user can put it right, 130 stopped, 1 a bug."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows another, and the run is not lost
    warnings.showwarning = _warn  # type: ignore[assignment]  # its last two arguments are not ours to name
    try:
        _register()
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        if code == INTERRUPTED:
            _complain("Stopped before anything was played.", INTERRUPTED)
        sys.exit(code or 0)
    except KeyboardInterrupt:
        _complain("Stopped before anything was played.", INTERRUPTED)
    except Interrupted as stopped:
        _complain(str(stopped), INTERRUPTED)
    except IlkError as error:
        _complain(f"Error: {error}", 2)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # Typer's own: a command line that it cannot read
            error.show()
            sys.exit(error.exit_code)
        if os.environ.get("ILK_DEBUG"):
            raise
        _complain(
            f"This is a mistake in ilk, not in what you did: {type(error).__name__}: {error}\n"
            "Run it again with ILK_DEBUG=1 in the environment and report what it prints.",
            1,
        )


@app.callback()
def ilk(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Clustered federated learning: clients whose data are alike train one model together."""
    if version:
        typer.echo(f"ilk {metadata.version('ilk')}")
        raise typer.Exit


def _register() -> None:
    if app.registered_commands:
        return
    from ilk.cli import (
        bench,
        client,
        compare,
        data,
        demo,
        deploy,
        methods,
        report,
        run,
        runs,
        serve,
        status,
        watch,
    )

    app.command("run", help="Run a method.")(with_experiment_options(run.run))
    app.command("compare", help="Run several methods on the same federation, side by side.")(
        with_experiment_options(compare.compare)
    )
    app.command("demo", help="The library at work, on data that it brings along.")(demo.demo)
    app.command("report", help="Runs as one HTML page: who is with whom, who gains, what it cost.")(report.report)
    app.command("figures", help="The charts of a report as files for a paper.")(report.figures)
    app.command("watch", help="Follow a run that is going on.")(watch.watch)
    app.command("runs", help="Every run in a folder as a table.")(runs.runs)
    app.command("methods", help="Every method, its options and their defaults.")(methods.methods)
    app.add_typer(data.app, name="data")
    app.add_typer(deploy.app, name="deploy")
    app.command("serve", help="The server of a federation over a network.")(serve.with_serving_options(serve.serve))
    app.command("client", help="One participant of a federation over a network.")(client.client)
    app.command("status", help="Who is connected to a federation over a network.")(status.status)
    rest = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("bench", help="Measure speed and size on this machine.", context_settings=rest)(bench.bench)


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    """Show a warning as what it says; where in the code it was raised only if it is not one of ours."""
    where = "" if issubclass(category, IlkWarning) else f" ({category.__name__}, {filename}:{lineno})"
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"Warning: {message}{where}", markup=False)


def _complain(text: str, code: int) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
    sys.exit(code)
