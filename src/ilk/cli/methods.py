"""``ilk methods``: what there is to choose from."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated, Any

import typer


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method only.", show_default=False)] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Names and descriptions only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """List every method with its options."""
    from rich.text import Text

    from ilk.checked import describe
    from ilk.cli.console import console
    from ilk.methods import method_class, registry, summary

    chosen = {name: method_class(name)} if name else registry()
    rows: list[dict[str, Any]] = [
        {
            "name": key,
            "paper": cls.paper,
            "description": summary(cls),
            "needs": ["server data"] if cls.needs_auxiliary else [],
            "options": describe(cls),
        }
        for key, cls in chosen.items()
    ]
    if json:
        print(jsonlib.dumps({"methods": rows}))
        return
    out = console()
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        out.print(
            Text.assemble((f"{row['name']:<{width}}", "bold"), "  ", row["description"], (f" ({row['paper']})", "dim")),
            soft_wrap=True,
        )
        if row["needs"] and not brief:
            out.print("    Needs data of the server's own: see --auxiliary of `ilk run --help`.")
        options = [option for option in row["options"] if name or not option["name"].startswith("local.")]
        if options and not brief:
            out.print(_table(options))
    if not name and not brief:
        local = "--epochs, --batch-size, --lr and --momentum"
        out.print(f"\nEvery method also has {local}. Set others with --set name=value; more: ilk methods NAME.")


def _table(options: list[dict[str, Any]]) -> Any:
    """Return a method's options: name and default, and what they mean."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=24)
    for option in options:
        default = "none" if option["default"] is None else option["default"]
        range_ = f"; {option['range']}" if option["range"] else ""
        table.add_row(Text(f"{option['name']} = {default}"), Text(f"{option['help']} [{option['type']}{range_}]"))
    return Padding(table, (0, 0, 0, 4))
