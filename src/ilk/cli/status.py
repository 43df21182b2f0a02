"""``ilk status``: who is connected to a federation over a network."""

from __future__ import annotations

import json as jsonlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The deployment's folder, or the server's part.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Show who is connected, in which cluster, the last round of each, and when it was last heard of."""
    from ilk.cli.serve import need_flower

    need_flower()
    from rich.table import Table
    from rich.text import Text

    from ilk.cli.console import console
    from ilk.engines.flower import layout
    from ilk.engines.flower.status import read

    told = read(layout.server_folder(folder))
    if json:
        print(jsonlib.dumps(told))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("client", "connected", "cluster", "last round", "last seen", ""):
        table.add_column(heading)
    for name, client in told["clients"].items():
        cells = ("yes" if client["connected"] else "no", *map(_shown, (client["cluster"], client["last_round"])))
        table.add_row(*map(Text, (name, *cells, _ago(client["last_seen"]), client["left_out"] or "")))
    out = console()
    out.print(f"{told['method']}: {told['phase']}, round {told['round']} of {told['rounds']}; {_ago(told['written'])}")
    out.print(table)


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


def _ago(when: float | None) -> str:
    return "never" if when is None else f"{max(time.time() - when, 0):.0f} s ago"
