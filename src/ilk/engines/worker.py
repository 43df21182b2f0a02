"""The program that a worker process runs: answer for one client after the other until the pipe closes."""

from __future__ import annotations

import pickle  # from the parent process only
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from ilk.client import Place
from ilk.engines.workers import receive, send
from ilk.errors import IlkError

IN_A_MODULE = "Put your tasks and models into a module that can be imported, or use the engine 'inline'."


def main(pipe: Connection) -> None:
    """Do what the parent says, and say how it went."""
    torch.set_num_threads(1)
    place: Place | None = None
    arrays: dict[Any, Any] = {}
    last_ask = 0
    while True:
        try:
            what, content, *new = receive(pipe)
        except (EOFError, OSError):
            return
        except (AttributeError, ImportError) as error:
            send(pipe, ("refused", f"A worker process cannot import what it was sent ({error}). {IN_A_MODULE}"))
            continue
        try:
            if what == "open":
                place, reply = Place(pickle.loads(content)), None
            else:
                assert place is not None
                ask, task, index, round, message, memory = content
                if ask != last_ask:
                    arrays, last_ask = {}, ask
                    place.noted.clear()
                arrays.update(new[0])
                client = place.client(index, round, {kind: arrays[key] for kind, key in memory.items()})
                answer = task.answer(client, {kind: arrays[key] for kind, key in message.items()})
                reply = (answer, client.kept)
            send(pipe, ("done", reply))
        except IlkError as error:
            send(pipe, ("refused", str(error)))
        except Exception:
            send(pipe, ("crashed", traceback.format_exc()))


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
