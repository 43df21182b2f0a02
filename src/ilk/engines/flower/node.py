"""The program of a client: Flower's SuperNode, and beside it what answers its messages.

Flower would fetch the app from the server and start a process of it for every message. Here nothing that comes from a server
is ever run: messages are answered by the code that is installed on this machine, in this process, which keeps the data
and the network from one message to the next. The connection carries the client's certificate, for the gate.
"""

from __future__ import annotations

import argparse
import logging
import os
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ilk.engines.flower.quiet import switch_off

switch_off()

import httpx  # noqa: E402  # after Flower's switches are set
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402  # after Flower's switches are set
from cryptography.hazmat.primitives.serialization import load_ssh_private_key  # noqa: E402
from flwr.app import Message  # noqa: E402
from flwr.common.constant import ISOLATION_MODE_PROCESS  # noqa: E402
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse, DeactivateNodeRequest  # noqa: E402
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree  # noqa: E402
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents  # noqa: E402
from flwr.supercore.object_store import ObjectStoreFactory  # noqa: E402
from flwr.supernode import fleet_http_connection, start_client_internal  # noqa: E402
from flwr.supernode.fleet_http_client import FleetHttpClient  # noqa: E402
from flwr.supernode.nodestate import NodeStateFactory  # noqa: E402

from ilk.engines.flower.client import Answering, replied  # noqa: E402
from ilk.engines.flower.layout import CA_CERTIFICATE, CERTIFICATE, KEY, NODE_KEY, read_client  # noqa: E402
from ilk.engines.flower.link import end_with_parent  # noqa: E402
from ilk.engines.flower.own import source  # noqa: E402

ARRIVAL = 600.0  # seconds that the pieces of a message may take to arrive
NODE = "node.id"  # the number that the server gave this client last
log = logging.getLogger("ilk.flower")


def run(folder: Path, answering: Answering, address: str) -> None:
    """Connect, and answer until the process ends."""
    key = load_ssh_private_key((folder / NODE_KEY).read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    states = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    threading.Thread(target=_answer_all, args=(states, answering), daemon=True).start()
    setattr(fleet_http_connection, "FleetHttpClient", _with_certificate(folder))  # noqa: B010  # it has no other way in
    start_client_internal.start_client_internal(
        state_factory=states,
        server_address=address,
        node_config={"name": answering.name},
        root_certificates=(folder / CA_CERTIFICATE).read_bytes(),
        insecure=False,
        authentication_keys=(key, key.public_key()),
        isolation=ISOLATION_MODE_PROCESS,  # Flower starts nothing itself
    )


def _with_certificate(folder: Path) -> type[FleetHttpClient]:
    """Return Flower's client of the fleet API, such that it shows this client's certificate, and signs off the one before.

    A server takes a client that was killed for connected until its heartbeats have been missed for a minute, and refuses
    the next one with its key for so long. But it was the same client, and may say so.
    """
    context = ssl.create_default_context(cafile=str(folder / CA_CERTIFICATE))
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)

    class Client(FleetHttpClient):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **{**more, "verify": context})

        def ActivateNode(self, request: ActivateNodeRequest) -> ActivateNodeResponse:  # Flower's name
            with suppress(httpx.HTTPError, OSError, ValueError):
                self.DeactivateNode(DeactivateNodeRequest(node_id=int((folder / NODE).read_text())))
            reply = super().ActivateNode(request)
            (folder / NODE).write_text(str(reply.node_id))
            return reply

    return Client


def _answer_all(states: NodeStateFactory, answering: Answering) -> None:
    """Answer what the SuperNode has received, one message after the other."""
    state = states.state()
    while True:
        messages = state.get_messages_legacy(is_reply=False, limit=1)
        if not messages:
            time.sleep(0.1)
            continue
        try:
            state.record_message_processing_start(messages[0].metadata.message_id)
            reply = _reply(state, messages[0], answering)
            start_client_internal._insert_message(reply, state, state.object_store)
            state.record_message_processing_end(messages[0].metadata.message_id)
        except Exception:
            # The SuperNode waits for a reply that will not come. A new process does better, and the supervisor starts one.
            log.exception("a message could not be answered")
            os._exit(1)


def _reply(state: Any, bare: Message, answering: Answering) -> Message:
    """Put a message together of its pieces, and answer it."""
    name, store, late = bare.metadata.message_id, state.object_store, time.monotonic() + ARRIVAL
    contents = {}
    for piece in iterate_object_tree(store.get_object_tree(name)):
        while not (content := store.get(piece.object_id)):
            if time.monotonic() > late:
                raise TimeoutError(f"message {name[:12]} did not arrive whole")
            time.sleep(0.05)
        contents[piece.object_id] = content
    message = inflate_object_from_contents(name, contents)
    assert isinstance(message, Message)
    message.metadata.__dict__["_message_id"] = name
    store.delete(name)
    return Message(replied(message.content, answering), reply_to=message)


def main() -> None:
    """Run a client; its supervisor gives the folder and the data."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split")
    parser.add_argument("--data-dir")
    parser.add_argument("--address")
    given = parser.parse_args()
    end_with_parent()
    file = read_client(given.folder)
    data = source(file.name, given.data, given.split, given.data_dir)
    run(given.folder, Answering(file.name, data, given.folder, file.model), given.address or file.server)


if __name__ == "__main__":
    main()
