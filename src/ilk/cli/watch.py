"""``ilk watch``: follow a run that is going on, in this or another process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ilk.runs.following import Followed

PATIENCE = 15.0  # seconds without any process at work and without news, then nobody is coming back


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of a whole comparison.")],
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between looks.")] = 0.5,
) -> None:
    """Follow a run until it ends: accuracy, clusters, traffic, time left. Ctrl-C stops watching, not the run."""
    from ilk.cli.console import console
    from ilk.runs.following import follow

    followed, out = follow(run), console()
    try:
        ended = _live(followed, every, out) if out.is_terminal else _lines(followed, every, out)
    except KeyboardInterrupt:
        out.print("No longer watching. The run itself is not touched.")
        return
    if not ended:
        out.print(f"Nobody is working on it. Go on with: ilk run --resume {run}", soft_wrap=True, markup=False)


def _live(followed: Sequence[Followed], every: float, out: Console) -> bool:
    from rich.live import Live

    with Live(_table(followed), console=out, refresh_per_second=8, transient=False) as live:
        return _until_the_end(followed, every, lambda _: live.update(_table(followed), refresh=True))


def _lines(followed: Sequence[Followed], every: float, out: Console) -> bool:
    """Without a terminal: a line for each new state of a run."""
    return _until_the_end(
        followed, every, lambda one: out.print(f"{one.name} {_said(one)}", markup=False, soft_wrap=True)
    )


def _until_the_end(followed: Sequence[Followed], every: float, tell: Any) -> bool:
    """Look until all runs are finished, then return True; or until nobody has worked on them for a while."""
    idle_since = None
    while True:
        news = False
        for one in followed:
            if one.look():
                news = True
                tell(one)
        if all(one.finished for one in followed):
            return True
        if news or any(one.working for one in followed):
            idle_since = None
        else:
            idle_since = idle_since or time.monotonic()
            begun_alone = len(followed) == 1  # between two runs of a comparison nobody holds a folder for a moment
            if time.monotonic() - idle_since > (2 * every if begun_alone else PATIENCE):
                return False
        time.sleep(every)


def _table(followed: Sequence[Followed]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from ilk.runs.following import sparkline

    table = Table.grid(padding=(0, 2))
    for one in followed:
        said = Text(_said(one), no_wrap=True, overflow="ellipsis")
        table.add_row(Text(one.name, "bold"), Text(sparkline(one.accuracies), "green", no_wrap=True), said)
    return table


def _said(one: Followed) -> str:
    if not one.begun:
        return "not begun"
    parts = [f"round {one.played}/{one.rounds}"]
    if one.measured:
        count = one.measured["clusters"]
        parts += [f"{100 * one.measured['accuracy']:.1f} %", f"{count} cluster{'s' if count != 1 else ''}"]
    parts.append(f"{one.megabytes:,.1f} MB")
    if one.finished:
        parts.append("done")
    elif one.seconds_left is not None:
        parts.append(f"{_duration(one.seconds_left)} left")
    return "  ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
