"""The folder of a deployment: what lies where, and who may read it.

::

    DIR/ca/              the private CA's key: for `ilk deploy add` only; keep it off the network
    DIR/server/          goes to the server: its certificate and key, the CA's certificate, server.json,
                         clients/NAME.pub (the keys that may take part), ilk-serve.service
    DIR/NAME/            goes to that client, and to nobody else: its key, certificates, client.json, ilk-client.service
    DIR/compose.yaml     all of them as containers
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from pydantic import Field

from ilk.checked import make, options, plain
from ilk.errors import IlkError
from ilk.runs.folder import read_json

CA, SERVER, CLIENTS = "ca", "server", "clients"
CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY, NODE_KEY = "tls.crt", "tls.key", "node.key"
SERVER_FILE, CLIENT_FILE = "server.json", "client.json"
NAME = re.compile(r"[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?")
PORT = 9092

Port = Annotated[int, Field(ge=1, le=65535, strict=True)]


@options
class ServerFile:
    """Where a server listens."""

    host: str
    """The name that the clients know it by."""
    port: Port = PORT
    """Open to the clients."""
    inner_port: Port = PORT + 1
    """Flower's own, on 127.0.0.1 only; never open it."""


@options
class ClientFile:
    """Who a client is, and where its server is."""

    name: str
    server: str
    """host:port"""
    model: str = ""
    """A network of one's own (module:callable) that the server may ask for."""


def check_name(name: str) -> str:
    """Return a client's name, or refuse it: names become folders and files."""
    if not NAME.fullmatch(name) or name in (CA, SERVER, "compose.yaml"):
        raise IlkError(
            f"A client cannot be called '{name}'. Allowed: small letters, digits, and between them - _ . ; not "
            f"'{CA}' and not '{SERVER}'."
        )
    return name


def read_server(folder: Path) -> ServerFile:
    """Read a server's folder."""
    return make(ServerFile, read_json(_there(folder, SERVER_FILE)))


def read_client(folder: Path) -> ClientFile:
    """Read a client's folder."""
    return make(ClientFile, read_json(_there(folder, CLIENT_FILE)))


def server_folder(folder: Path) -> Path:
    """Return the server's folder, whether the whole deployment's or itself was given."""
    return folder if (folder / SERVER_FILE).exists() else folder / SERVER


def write_json(path: Path, content: Any) -> None:
    """Write options as JSON."""
    path.write_text(json.dumps(plain(content), indent=2) + "\n")


def public_keys(folder: Path) -> Mapping[bytes, str]:
    """Return the keys that may take part, as Flower writes them, and whose they are."""
    found = {}
    for path in sorted((folder / CLIENTS).glob("*.pub")):
        try:
            key = load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError) as error:
            raise IlkError(f"{path} is not a public key: {error}. Copy it anew from where `ilk deploy` ran.") from None
        found[key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)] = path.stem
    return found


def _there(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        raise IlkError(f"{folder} has no {name}. `ilk deploy init` makes such folders; give the one for this machine.")
    return folder / name
