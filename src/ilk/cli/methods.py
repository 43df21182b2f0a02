"""``ilk methods``: what there is to choose from."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated, Any

import typer


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method only.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """List every method with its options."""
    from rich.console import Console
    from rich.text import Text

    from ilk.methods import method_class, registry, summary
    from ilk.options import describe

    chosen = {name: method_class(name)} if name else registry()
    rows: list[dict[str, Any]] = [
        {"name": key, "paper": cls.paper, "description": summary(cls), "options": describe(cls)}
        for key, cls in chosen.items()
    ]
    if json:
        print(jsonlib.dumps({"methods": rows}))
        return
    console = Console(highlight=False)
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        console.print(Text.assemble((f"{row['name']:<{width}}  ", "bold"), row["description"]))
        console.print(Text(f"{'':<{width}}  {row['paper']}", style="dim"))
        for option in row["options"]:
            if option["name"].startswith("local.") and not name:
                continue
            range_ = f" {option['range']}" if option["range"] else ""
            shown = f"{option['name']} = {option['default']}"
            console.print(Text(f"{'':<{width}}    {shown:<28} {option['type']}{range_}. {option['help']}"))
    if not name:
        console.print(
            "\nEvery method also has --epochs, --batch-size, --lr and --momentum. Set others: --set name=value."
        )
