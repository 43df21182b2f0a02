"""The only door to a server: mutual TLS, Flower's fleet API and nothing else, and a limit on what may be carried in.

Flower serves three APIs on one port. Through two of them anybody who can connect may start runs, register nodes or speak
for the server, and what they send is parsed before anybody is asked who they are. So Flower listens on 127.0.0.1 only,
and this stands before it: a connection without a certificate of the federation's CA ends in the handshake, a path other
than a node's own is not found, and a body that is too long is not read.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from ilk.engines.flower.layout import CA_CERTIFICATE, CERTIFICATE, KEY, ServerFile
from ilk.errors import IlkError

FLEET = "/v1/fleet/"
PATHS = frozenset(
    FLEET + name
    for name in (
        *("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages"),
        *("get-run", "get-fab", "push-object", "pull-object", "confirm-message-received"),
    )
)
HEADERS = ("content-type", "accept")  # and those of Flower's own
LARGEST_BODY = 16 << 20  # Flower cuts arrays into pieces of 5 MiB

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Gate:
    """An ASGI app that hands requests on, or does not."""

    def __init__(self, inner: str, ca: Path, largest: int = LARGEST_BODY) -> None:
        self.largest = largest
        context = ssl.create_default_context(cafile=str(ca))
        self.client = httpx.AsyncClient(base_url=inner, verify=context, timeout=120.0, trust_env=False)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if scope["method"] != "POST" or scope["path"] not in PATHS:
            await _end(send, 404)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await self._body(headers.get("content-length", "0"), receive)
        if body is None:
            await _end(send, 413)
            return
        kept = {name: value for name, value in headers.items() if name in HEADERS or name.startswith("flwr-")}
        try:
            reply = await self.client.post(scope["path"], content=body, headers=kept)
        except httpx.HTTPError:
            await _end(send, 503)  # nodes try again
            return
        types = [(b"content-type", reply.headers.get("content-type", "application/octet-stream").encode("latin-1"))]
        types += [(n.encode("latin-1"), v.encode("latin-1")) for n, v in reply.headers.items() if n.startswith("flwr-")]
        await _end(send, reply.status_code, reply.content, types)

    async def _body(self, announced: str, receive: Receive) -> bytes | None:
        if not announced.isdecimal() or int(announced) > self.largest:
            return None
        body = bytearray()
        while True:
            event = await receive()
            if event["type"] != "http.request":
                return None
            body += event.get("body", b"")
            if len(body) > self.largest:
                return None
            if not event.get("more_body"):
                return bytes(body)


async def _end(send: Send, status: int, body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*(headers or []), length]})
    await send({"type": "http.response.body", "body": body})


class Standing:
    """A gate that stands, in a thread of its own."""

    def __init__(self, folder: Path, file: ServerFile, host: str = "0.0.0.0") -> None:  # all that it has
        config = uvicorn.Config(
            Gate(f"https://127.0.0.1:{file.inner_port}", folder / CA_CERTIFICATE),
            host=host,
            port=file.port,
            ssl_certfile=str(folder / CERTIFICATE),
            ssl_keyfile=str(folder / KEY),
            ssl_ca_certs=str(folder / CA_CERTIFICATE),
            ssl_cert_reqs=ssl.CERT_REQUIRED,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=1000,
            timeout_keep_alive=60,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def open(self) -> None:
        """Begin to listen."""
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.05)
            if not self.thread.is_alive():
                raise IlkError(
                    f"The gate cannot listen on port {self.server.config.port}: it is taken, or not allowed."
                )

    def close(self) -> None:
        """Stop listening."""
        self.server.should_exit = True
        self.thread.join(10)
