"""``ilk client``: one participant of a federation over a network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ilk.errors import Interrupted


def client(
    folder: Annotated[Path, typer.Argument(metavar="DIR/NAME", help="The client's folder, from `ilk deploy init`.")],
    data: Annotated[
        str, typer.Option(help="Its .npz file, a folder that has NAME.npz, or a data set's name with --split.")
    ],
    split: Annotated[
        str | None, typer.Option(help="Partition file that says which samples are its own.", show_default=False)
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder with the data sets' files; default: ILK_DATA.", show_default=False)
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="host:port of the server, if not what client.json says.", show_default=False)
    ] = None,
) -> None:
    """Take part: connect, answer the server's questions from this machine's data, and come back whenever it ends."""
    from ilk.cli.serve import need_flower

    need_flower()
    from ilk.engines.flower import layout
    from ilk.engines.flower.own import source
    from ilk.engines.flower.supervise import keep_client

    source(layout.read_client(folder).name, data, split, data_dir)(0)  # what is wrong with the data is said now
    arguments = {"data": data, "split": split, "data-dir": data_dir, "address": server}
    try:
        keep_client(folder.resolve(), arguments, lambda text: print(text, file=sys.stderr))
    except KeyboardInterrupt:
        raise Interrupted("Stopped; what this client remembers is kept for when it comes back.") from None
