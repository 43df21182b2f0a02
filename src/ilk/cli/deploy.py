"""``ilk deploy``: the folders of a federation over a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ilk.cli.serve import need_flower
from ilk.errors import IlkError

app = typer.Typer(help="Make and check the folders of a federation over a network.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(metavar="DIR", show_default=False)]


@app.command()
def init(
    folder: Folder,
    clients: Annotated[str, typer.Option(help="The clients' names, with commas between them.", show_default=False)],
    host: Annotated[str, typer.Option(help="The name or address by which they reach the server.", show_default=False)],
    port: Annotated[int, typer.Option(min=1, max=65534, help="Its port; the next one is used inside.")] = 9092,
) -> None:
    """Write certificates, keys, configurations, systemd units and a compose file."""
    need_flower()
    from ilk.engines.flower import deploy

    names = [name.strip() for name in clients.split(",") if name.strip()]
    if not names:
        raise IlkError("--clients is empty. Give the clients' names, as --clients north,south,east.")
    deploy.init(folder, names, host, port)
    print(
        f"{folder}/server goes to {host}; {folder}/NAME to the client NAME and to nobody else; {folder}/ca stays here."
    )
    print(f"Next: ilk deploy check {folder}")


@app.command()
def add(folder: Folder, name: Annotated[str, typer.Argument(show_default=False)]) -> None:
    """Add a client: write its folder, and its public key for the server, which may be running."""
    need_flower()
    from ilk.engines.flower import deploy

    key = deploy.add(folder, name)
    print(f"{folder / name} goes to the client; {key} into the server's folder clients/, if that is elsewhere.")


@app.command()
def check(folder: Folder) -> None:
    """Say what is wrong with a deployment's folder, or with one machine's part of it."""
    need_flower()
    from ilk.engines.flower import deploy

    if wrong := deploy.check(folder):
        raise IlkError("\n".join([f"{len(wrong)} things are wrong:" if len(wrong) > 1 else "", *wrong]).strip())
    print(f"{folder}: nothing is wrong.")
