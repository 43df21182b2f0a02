"""What `ilk status` shows: a file that the server writes whenever it has looked around."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilk.errors import IlkError
from ilk.runs.folder import read_json, replace

if TYPE_CHECKING:
    from ilk.engines.flower.server import Flower

STATUS = "status.json"


class Status:
    """Who is connected, in which cluster, and when they were last heard of."""

    def __init__(self, folder: Path, engine: Flower, method: str, rounds: int) -> None:
        self.folder, self.engine, self.method, self.rounds = folder, engine, method, rounds
        self.last, self.phase = 0, "waiting"
        self.cluster: dict[str, int] = {}

    def round(self, row: Mapping[str, Any]) -> None:
        """Note a round that was played."""
        self.last, self.phase = row["round"], "playing"
        names = self.engine.seats.names if self.engine.seats else []
        self.cluster |= dict(zip(names, row.get("cluster_by_client", ()), strict=False))
        self.write()

    def placed(self, clusters: Mapping[str, int]) -> None:
        """Note who is in which cluster now."""
        self.cluster |= clusters
        self.write()

    def write(self) -> None:
        """Write it down, whole or not at all."""
        sizes = self.engine.seats.sizes if self.engine.seats else {}
        clients = {
            name: {
                "connected": seen.node is not None,
                "joined": name in sizes,
                "samples": sizes.get(name),
                "cluster": self.cluster.get(name) if name in sizes else None,
                "last_round": seen.round,
                "last_seen": seen.last,
                "left_out": seen.said or None,
            }
            for name, seen in sorted(self.engine.clients.items())
        }
        about = {"method": self.method, "phase": self.phase, "round": self.last, "rounds": self.rounds}
        content = {**about, "written": time.time(), "bytes": self.engine.bytes, "clients": clients}
        replace(self.folder / STATUS, json.dumps(content, indent=2).encode())


def read(folder: Path) -> dict[str, Any]:
    """Return what the server wrote last."""
    if not (folder / STATUS).exists():
        raise IlkError(f"{folder} has no {STATUS}: nothing has been served from it yet. Start it with `ilk serve`.")
    return read_json(folder / STATUS)
