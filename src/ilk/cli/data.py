"""``ilk data``: what data there is, and ``ilk data split``: a frozen partition that others can use."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ilk.errors import IlkError

app = typer.Typer(help="The data sets: what there is and where it comes from.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def data(
    context: typer.Context,
    data_dir: Annotated[str | None, typer.Option(help="Folder with data sets.", show_default="$ILK_DATA")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """List the data sets."""
    if context.invoked_subcommand:
        return
    from rich.text import Text

    from ilk.cli.console import console
    from ilk.data.datasets import catalogue

    listing = catalogue(data_dir)
    if json:
        print(jsonlib.dumps({"data": [asdict(entry) for entry in listing]}))
        return
    out = console()
    for entry in listing:
        size = f"{entry.train:,} + {entry.test:,} images {'x'.join(map(str, entry.shape))}, {entry.classes} classes"
        out.print(Text.assemble((f"{entry.name:<14}", "bold"), f"{size}; {entry.description}"))
        where = f"here: {entry.available_from}" if entry.available_from else f"not here. {entry.how_to_get}"
        out.print(Text(f"{'':<14}{where}", style="green" if entry.available_from else "dim"), soft_wrap=True)
    out.print("\nYour own: --data FOLDER with one .npz file for each client (x and y), or arrays in Python.")


@app.command("split", help="Write a frozen partition file: who owns which samples.")
def split(
    out: Annotated[Path, typer.Argument(help="The file to write; its name ends in .json.")],
    data: Annotated[str, typer.Option(help="The data set.")] = "digits",
    split: Annotated[str, typer.Option(help="iid, label-skew:RHO, dirichlet:ALPHA, rotate:K, ...")] = "rotate:4",
    clients: Annotated[int, typer.Option(help="How many clients.")] = 40,
    seed: Annotated[int, typer.Option(help="Names the random streams.")] = 0,
    test_policy: Annotated[str, typer.Option(help="label-set, own or holdout.")] = "own",
    auxiliary: Annotated[str, typer.Option(help="Training samples that go to the server; or test:N (leaks).")] = "0",
    data_dir: Annotated[str | None, typer.Option(help="Folder with data sets.", show_default="$ILK_DATA")] = None,
    download: Annotated[bool, typer.Option("--download", help="Allow a download from the hub.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Split a data set and write who owns what."""
    from ilk.data.federation import federation

    if seed < 0:
        raise IlkError(f"--seed {seed} is not allowed. Allowed: a whole number (>= 0); default 0.")
    if split.endswith(".json"):
        raise IlkError(f"--split {split} is a partition file already. Copy it, or give a rule such as rotate:4.")
    if auxiliary.endswith(".npz"):
        raise IlkError(f"--auxiliary {auxiliary} is a file; a partition file cannot hold it. Give it to `ilk run`.")
    if out.suffix != ".json":
        raise IlkError(f"The partition file {out} must have a name that ends in .json; --split knows it by that.")
    if out.exists():
        raise IlkError(f"{out} exists already. Partition files are meant to stay as they are: give another name.")
    made = federation(
        data,
        split=split,
        clients=clients,
        seed=seed,
        test_policy=test_policy,  # type: ignore[arg-type]  # checked by the split itself
        auxiliary=auxiliary,
        data_dir=data_dir,
        download=download,
    )
    made.partition.save(out)
    sizes, tests = made.sizes, [len(share.test) for share in made.partition.shares]
    if json:
        print(jsonlib.dumps({"file": str(out), "clients": len(sizes), "sizes": sizes.tolist(), "tests": tests}))
        return
    typer.echo(
        f"{out}: {made.partition.data} by {made.partition.split} among {len(sizes)} clients, "
        f"{sizes.min()} to {sizes.max()} training samples, {min(tests)} to {max(tests)} test samples a client.\n"
        f"Use it: ilk run METHOD --split {out}"
    )
