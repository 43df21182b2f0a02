"""The two apps that Flower can run: what `ilk serve` and `ilk client` do, for those who start Flower themselves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from ilk.engines.flower.client import Answering, replied
from ilk.engines.flower.own import source
from ilk.errors import IlkError

server, client = ServerApp(), ClientApp()


@server.main()
def play(grid: Any, context: Context) -> None:
    """Play the job in the folder that the run's configuration names."""
    from ilk.engines.flower.run import play as play_job

    if not (folder := str(context.run_config.get("folder", ""))):
        raise IlkError("Give the server's folder: flwr run APP --run-config 'folder=\"DIR/server\"'.")
    play_job(grid, Path(folder))


@client.query("ilk")
def answer(message: Message, context: Context) -> Message:
    """Answer for the client that a plain SuperNode's node config names: name, data, folder, and split if it has one."""
    config = {key: str(value) for key, value in context.node_config.items()}
    if missing := {"name", "data", "folder"} - set(config):
        raise IlkError(f"The node config lacks {', '.join(sorted(missing))}.")
    return Message(replied(message.content, _answering(*(config.get(k, "") for k in KEYS))), reply_to=message)


KEYS = ("name", "data", "folder", "split", "data-dir", "model")


@cache
def _answering(name: str, data: str, folder: str, split: str, data_dir: str, model: str) -> Answering:
    return Answering(name, source(name, data, split or None, data_dir or None), Path(folder), model)
