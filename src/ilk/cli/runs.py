"""``ilk runs``: every run in a folder as a table."""

from __future__ import annotations

import csv as csvlib
import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ilk.errors import IlkError

PERCENT = ("accuracy", "worst")
# Which columns a narrow terminal has, the most telling first. Names of folders are what one goes on with: they stay whole.
TELLING = (
    *("run", "method", "accuracy", "state", "played", "rounds", "split", "seed", "clusters", "data", "mb", "worst"),
    *("ari", "clients", "seconds"),
)


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look, folders below included.")] = Path("runs"),
    where: Annotated[list[str] | None, typer.Option(help="As method=pacfl or accuracy>=0.9; may be repeated.")] = None,
    sort: Annotated[str | None, typer.Option(help="Column: numbers from the largest, texts from A.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The other way round.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print a table with commas on stdout, options included.")] = False,
) -> None:
    """List runs: what each is, how far it got, what it reached."""
    from ilk.runs import listing

    if json and csv:
        raise IlkError("--json and --csv are two forms of the same; give one.")
    rows = [listing.row_of(found) for found in listing.find(folder)]
    kept = listing.where(rows, where or []) if rows else []
    if sort and kept:
        kept = listing.by(kept, sort, reverse)
    if json:
        print(jsonlib.dumps({"runs": kept}))
    elif csv:
        columns = list(dict.fromkeys(name for row in kept for name in row)) or list(listing.SHOWN)
        writer = csvlib.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    else:
        _show(kept, len(rows), folder)


def _show(rows: list[dict[str, Any]], all_: int, folder: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from ilk.cli.console import console
    from ilk.runs.listing import SHOWN

    out = console()
    if not rows:
        out.print(
            f"No run below {folder}." if not all_ else f"None of the {all_} runs below {folder} is like that.",
            markup=False,
        )
        return
    cells = [{name: _cell(name, row.get(name)) for name in SHOWN} for row in rows]
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) + 3 for name in SHOWN}
    fitting = [name for k, name in enumerate(TELLING) if sum(widths[n] for n in TELLING[: k + 1]) + 2 <= out.width]
    columns = [name for name in SHOWN if name in (fitting or TELLING[:2])]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in columns:
        words = name in ("method", "data", "split", "state", "run")
        table.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=name != "run")
    for row in cells:
        table.add_row(*(Text(row[name]) for name in columns))
    out.print(table)
    out.print(
        f"{len(rows)} of {all_} runs below {folder}" if len(rows) < all_ else f"{all_} runs below {folder}",
        markup=False,
    )


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in PERCENT:
        return f"{100 * value:.1f} %"
    return f"{value:,.2f}" if name == "ari" else f"{value:,.1f}" if isinstance(value, float) else str(value)
