"""Write the folders of a deployment, add a client to it, and look whether everything is as it must be."""

from __future__ import annotations

import socket
import ssl
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)

from ilk.engines.flower import certificates, layout, units
from ilk.engines.flower.layout import (
    CA,
    CA_CERTIFICATE,
    CA_KEY,
    CERTIFICATE,
    CLIENT_FILE,
    CLIENTS,
    KEY,
    NODE_KEY,
    SERVER,
    SERVER_FILE,
    ClientFile,
    ServerFile,
)
from ilk.errors import IlkError

SOON = 30  # days before a certificate ends that it is mentioned


def init(folder: Path, clients: Sequence[str], host: str, port: int) -> None:
    """Write a deployment's folder: a CA, the server, and these clients."""
    if folder.exists() and any(folder.iterdir()):
        raise IlkError(f"{folder} is not empty. Give a new folder; `ilk deploy add` adds a client to an old one.")
    if len(set(clients)) < len(clients):
        raise IlkError(f"Of --clients {','.join(clients)} one stands there twice. Give each once.")
    names = [layout.check_name(name) for name in clients]
    server = ServerFile(host=host, port=port, inner_port=port + 1)
    certificates.make_ca(folder / CA)
    certificates.make_server(folder / CA, folder / SERVER, host)
    (folder / SERVER / CLIENTS).mkdir()
    layout.write_json(folder / SERVER / SERVER_FILE, server)
    (folder / SERVER / "ilk-serve.service").write_text(units.server_unit())
    for name in names:
        add(folder, name)
    (folder / "compose.yaml").write_text(units.compose(server, names))


def add(folder: Path, name: str) -> Path:
    """Make a client's folder, and enter its public key at the server; return the key's file."""
    layout.check_name(name)
    server = layout.read_server(folder / SERVER)
    if (folder / name).exists():
        raise IlkError(f"{folder / name} exists. A client has one key for good; give another name.")
    line = certificates.make_client(folder / CA, folder / name, name)
    layout.write_json(folder / name / CLIENT_FILE, ClientFile(name=name, server=f"{server.host}:{server.port}"))
    (folder / name / "ilk-client.service").write_text(units.client_unit(name))
    path = folder / SERVER / CLIENTS / f"{name}.pub"
    path.write_bytes(line)
    return path


def check(folder: Path) -> list[str]:
    """Return what is wrong with a deployment's folder, or the server's, or a client's; nothing if nothing is."""
    if (folder / SERVER_FILE).exists():
        return list(_server(folder))
    if (folder / CLIENT_FILE).exists():
        return list(_client(folder, None))
    if not (folder / SERVER / SERVER_FILE).exists():
        return [f"{folder} is no deployment: it has no {SERVER}/{SERVER_FILE}. Make one with `ilk deploy init`."]
    server = folder / SERVER
    found = [*_server(server), *_secret(folder / CA / CA_KEY)]
    names = sorted(path.parent.name for path in folder.glob(f"*/{CLIENT_FILE}"))
    for name in names:
        found += _client(folder / name, server)
    return found + [
        f"{path} has no folder {folder / path.stem}: the key of a client that is not here."
        for path in sorted((server / CLIENTS).glob("*.pub"))
        if path.stem not in names
    ]


def _server(folder: Path) -> Iterator[str]:
    yield from _certified(folder)
    try:
        server = layout.read_server(folder)
        keys = layout.public_keys(folder)
    except IlkError as error:
        yield str(error)
        return
    if not keys:
        yield f"{folder / CLIENTS} has no key: nobody could connect. Add a client with `ilk deploy add`."
    if server.port == server.inner_port:
        yield f"{folder / SERVER_FILE}: port and inner_port are both {server.port}. Give two."
    for port in (server.port, server.inner_port):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                yield f"Port {port} is taken on this machine. Is a server running already?"
    if not _covers(folder / CERTIFICATE, server.host):
        yield f"{folder / CERTIFICATE} is not for '{server.host}', the name that the clients use. Make the deployment anew."


def _client(folder: Path, server: Path | None) -> Iterator[str]:
    yield from _certified(folder)
    yield from _secret(folder / NODE_KEY)
    try:
        client = layout.read_client(folder)
        own = load_ssh_private_key((folder / NODE_KEY).read_bytes(), None).public_key()
    except (IlkError, OSError, ValueError) as error:
        yield f"{folder}: {error}"
        return
    if client.name != folder.name:
        yield f"{folder / CLIENT_FILE} is of '{client.name}', not of '{folder.name}'."
    if server is not None:
        pem = own.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        if layout.public_keys(server).get(pem) != client.name:
            yield f"{server / CLIENTS / client.name}.pub is not the key of {folder}: the server would not let it in."


def _certified(folder: Path) -> Iterator[str]:
    """Say what is wrong with a certificate: its key, its CA, its time."""
    yield from _secret(folder / KEY)
    try:
        certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        ca = x509.load_pem_x509_certificate((folder / CA_CERTIFICATE).read_bytes())
        key = load_pem_private_key((folder / KEY).read_bytes(), None)
        ssl.create_default_context(cafile=str(folder / CA_CERTIFICATE))
    except (OSError, ValueError) as error:
        yield f"{folder}: {error}"
        return
    if certificate.public_key() != key.public_key():
        yield f"{folder / CERTIFICATE} does not belong to {folder / KEY}."
    try:
        certificate.verify_directly_issued_by(ca)
    except Exception:  # whatever it is, it is not of this CA
        yield f"{folder / CERTIFICATE} is not of the CA in {folder / CA_CERTIFICATE}."
    days = (certificate.not_valid_after_utc - datetime.now(UTC)).days
    if days < SOON:
        yield f"{folder / CERTIFICATE} is valid for {max(days, 0)} more days only."


def _secret(path: Path) -> Iterator[str]:
    if not path.exists():
        yield f"There is no {path}."
    elif stat.S_IMODE(path.stat().st_mode) & 0o077:
        yield f"{path} can be read by others: chmod 600 {path}"


def _covers(path: Path, host: str) -> bool:
    try:
        names = x509.load_pem_x509_certificate(path.read_bytes()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (OSError, ValueError, x509.ExtensionNotFound):
        return True  # said already
    return host in {str(name.value) for name in names.value}
