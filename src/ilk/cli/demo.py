"""``ilk demo``: the main job, on data that comes along."""

from __future__ import annotations

from typing import Annotated

import typer

from ilk.cli.arguments import Asked, Playing
from ilk.cli.run import play

STORY = (
    "40 clients hold handwritten digits. Nobody told the server that they come in four kinds: each kind\n"
    "sees its digits turned by 0, 90, 180 or 270 degrees. Who should train with whom?\n\n"
    "  SOLO    everybody alone\n"
    "  FedAvg  all together\n"
    "  PACFL   clusters, found before training from a small signature of each client's data\n"
)


def demo(json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False) -> None:
    """SOLO, FedAvg and PACFL on the digits, 40 clients in four hidden groups."""
    typer.echo(STORY, err=True)
    values = {"data": "digits", "split": "rotate:4", "clients": 40}
    play(Asked(["solo", "fedavg", "pacfl"], values, Playing(json=json)), several=True)
