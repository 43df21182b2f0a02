"""What `ilk serve` tells Flower's SuperLink: whose keys may connect, and to run the app."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from ilk.engines.flower.layout import CA_CERTIFICATE, ServerFile
from ilk.errors import IlkError

APP = Path(__file__).parent / "app"


class Control:
    """The control API of a SuperLink on this machine."""

    def __init__(self, folder: Path, file: ServerFile) -> None:
        self.client = ControlHttpClient.from_server_address(
            server_address=f"127.0.0.1:{file.inner_port}",
            insecure=False,
            root_certificates=str(folder / CA_CERTIFICATE),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def is_up(self) -> bool:
        """Say whether it answers."""
        try:
            self.client.ListNodes(ListNodesRequest())
        except httpx.HTTPError:
            return False
        return True

    def register(self, keys: Mapping[bytes, str]) -> None:
        """Let the holders of these keys connect; who is registered stays it."""
        there = {node.public_key for node in self.client.ListNodes(ListNodesRequest()).nodes_info}
        for key, name in keys.items():
            if key not in there:
                self.client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def start(self, folder: Path) -> int:
        """Start the app on the job in this folder; return the run's number."""
        content = build_fab_from_disk(APP)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        config: Any = {"folder": str(folder)}
        reply = self.client.StartRun(
            StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(config))
        )
        if not reply.HasField("run_id"):
            raise IlkError("Flower did not start the run; its log says why.")
        return int(reply.run_id)

    def ended(self, run: int) -> str | None:
        """Return how the run ended, as Flower says it; None while it goes on."""
        found = self.client.ListRuns(ListRunsRequest(run_id=run)).run_dict.get(run)
        if found is None or found.status.status != "finished":
            return None
        return f"{found.status.sub_status}: {found.status.details}"

    def stop(self, run: int) -> None:
        """Stop the run."""
        self.client.StopRun(StopRunRequest(run_id=run))
