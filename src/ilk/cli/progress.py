"""Progress on stderr: a live line for each run on a terminal, else one log line a round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ilk.method import Method

Listener = Callable[[Mapping[str, Any]], None]


@contextmanager
def watching(rounds: int, several_seeds: bool) -> Iterator[Callable[[Method[Any], int], Listener]]:
    """Yield what gives each run its listener."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield (
            lambda method, seed: lambda row: print(_line(method.name, seed, rounds, row), file=console.file, flush=True)
        )
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=False) as progress:

        def watch(method: Method[Any], seed: int) -> Listener:
            name = f"{method.name} seed {seed}" if several_seeds else method.name
            task = progress.add_task(name, total=rounds, state="getting ready")
            known: dict[str, Any] = {}

            def listen(row: Mapping[str, Any]) -> None:
                known.update(row)
                progress.update(task, completed=row["round"], state=_state(known))

            return listen

        yield watch


def _state(row: Mapping[str, Any]) -> str:
    megabytes = (row["bytes_up"] + row["bytes_down"]) / 1e6
    if "accuracy" not in row:
        return f"{megabytes:,.1f} MB"
    groups = f"{row['clusters']} cluster{'s' if row['clusters'] != 1 else ''}"
    return f"accuracy {100 * row['accuracy']:5.1f} %  {groups:<11} {megabytes:8,.1f} MB"


def _line(method: str, seed: int, rounds: int, row: Mapping[str, Any]) -> str:
    return f"{method} seed {seed} round {row['round']}/{rounds}  {_state(row)}  {row['seconds']:.2f} s"
