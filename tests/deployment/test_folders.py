"""The folders of a deployment: what `ilk deploy` writes, what it refuses, and what it finds wrong. No processes."""

from __future__ import annotations

import socket
import ssl
import stat
import threading

import httpx
import pytest
import yaml
from cryptography import x509

from ilk.engines.flower import certificates, deploy, layout
from ilk.engines.flower.gate import Standing
from ilk.engines.flower.layout import ServerFile
from ilk.errors import IlkError

from .conftest import free_ports


@pytest.fixture
def made(tmp_path):
    deploy.init(tmp_path / "dep", ["north", "south"], "127.0.0.1", free_ports())
    return tmp_path / "dep"


def test_what_init_writes_is_right_and_secret(made):
    assert deploy.check(made) == []
    for part in (made / "server", made / "north"):
        assert deploy.check(part) == []
    for key in made.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600, key
    assert not list((made / "server").rglob("ca.key"))
    assert set(layout.public_keys(made / "server").values()) == {"north", "south"}
    served = (made / "server" / "ilk-serve.service").read_text()
    for name in ("FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1", "RAY_USAGE_STATS_ENABLED=0"):
        assert name in served
        assert name in (made / "south" / "ilk-client.service").read_text()
        assert name.replace("=", ': "') in (made / "compose.yaml").read_text()
    assert "DISABLE_RUNTIME_DEPENDENCY_INSTALLATION" in served
    services = yaml.safe_load((made / "compose.yaml").read_text())["services"]
    assert set(services) == {"server", "north", "south"}
    assert services["server"]["command"][:2] == ["sh", "-c"]
    assert services["server"]["command"][2].endswith("--stay; fi")


@pytest.mark.parametrize("name", ["North", "../x", "server", "ca", "", "a b", "-a", "ä", "a" * 70])
def test_names_that_are_no_names(made, name):
    with pytest.raises(IlkError, match="cannot be called"):
        deploy.add(made, name)


def test_nothing_is_written_over(made, tmp_path):
    with pytest.raises(IlkError, match="not empty"):
        deploy.init(made, ["a"], "host", 9092)
    with pytest.raises(IlkError, match="one key for good"):
        deploy.add(made, "north")
    with pytest.raises(IlkError, match="stands there twice"):
        deploy.init(tmp_path / "other", ["a", "a"], "host", 9092)


def spoil_key_mode(made):
    (made / "north" / "tls.key").chmod(0o644)


def spoil_certificate(made):
    (made / "north" / "tls.crt").write_bytes((made / "south" / "tls.crt").read_bytes())


def spoil_ca(made):
    certificates.make_ca(made / "another")
    (made / "south" / "ca.crt").write_bytes((made / "another" / "ca.crt").read_bytes())


def spoil_public_key(made):
    folder = made / "server" / "clients"
    (folder / "north.pub").write_bytes((folder / "south.pub").read_bytes())


def spoil_host(made):
    file = layout.read_server(made / "server")
    layout.write_json(made / "server" / "server.json", ServerFile(host="elsewhere.example", port=file.port))


def spoil_file(made):
    (made / "server" / "server.json").write_text("{")


def spoil_nothing_left(made):
    (made / "north" / "node.key").unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoil_key_mode, "chmod 600"),
        (spoil_certificate, "does not belong to"),
        (spoil_ca, "is not of the CA"),
        (spoil_public_key, "is not the key of"),
        (spoil_host, "is not for 'elsewhere.example'"),
        (spoil_file, "cannot be read"),
        (spoil_nothing_left, "There is no"),
    ],
)
def test_what_check_finds(made, spoil, says):
    spoil(made)
    assert any(says in line for line in deploy.check(made)), deploy.check(made)


def test_a_port_that_is_taken_and_no_deployment(made, tmp_path):
    port = layout.read_server(made / "server").port
    with socket.create_server(("127.0.0.1", port)):
        assert any(f"Port {port} is taken" in line for line in deploy.check(made))
    assert "is no deployment" in deploy.check(tmp_path)[0]


def test_certificates_are_for_their_use_only(made):
    client = x509.load_pem_x509_certificate((made / "north" / "tls.crt").read_bytes())
    server = x509.load_pem_x509_certificate((made / "server" / "tls.crt").read_bytes())
    for certificate, use in ((client, "clientAuth"), (server, "serverAuth")):
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert [one._name for one in uses] == [use]
        assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.fixture
def gate(made):
    """A gate, and behind it a server that says what it was sent."""
    file = layout.read_server(made / "server")
    heard = []

    def answer(connection):
        with connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(1 << 16)
            head, _, body = data.partition(b"\r\n\r\n")
            wanted = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            while len(body) < wanted:
                body += connection.recv(1 << 16)
            heard.append((head, body))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "server" / "tls.crt", made / "server" / "tls.key")
    inner = context.wrap_socket(socket.create_server(("127.0.0.1", file.inner_port)), server_side=True)

    def listen():
        try:
            while True:
                answer(inner.accept()[0])
        except OSError:
            return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    standing = Standing(made / "server", file, "127.0.0.1")
    standing.open()
    yield f"https://127.0.0.1:{file.port}", heard
    standing.close()
    inner.shutdown(socket.SHUT_RDWR)
    inner.close()
    thread.join(5)


def visitor(folder, certificate=None):
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    if certificate:
        context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
    return httpx.Client(verify=context, trust_env=False, timeout=10)


def test_the_gate_lets_a_client_speak_to_the_fleet_api_and_to_nothing_else(made, gate):
    address, heard = gate
    with visitor(made / "north", made / "north") as client:
        kept = {"flwr-public-key": "k", "x-forwarded-for": "1.2.3.4", "cookie": "c"}
        reply = client.post(address + "/v1/fleet/push-object", content=b"x" * 1000, headers=kept)
        assert (reply.status_code, reply.content, heard[0][1]) == (200, b"ok", b"x" * 1000)
        assert b"flwr-public-key: k" in heard[0][0]
        assert b"cookie" not in heard[0][0]
        assert b"1.2.3.4" not in heard[0][0]
        for path in (
            *(
                "/v1/control/start-run",
                "/v1/control/register-node",
                "/v1/runtime/get-nodes",
                "/docs",
                "/openapi.json",
                "/",
            ),
            *("/v1/fleet/register-node", "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run"),
        ):
            assert client.post(address + path, content=b"").status_code == 404, path
        assert client.get(address + "/v1/fleet/push-object").status_code == 404
        assert client.post(address + "/v1/fleet/push-object", content=b"x" * (17 << 20)).status_code == 413
        assert client.post(address + "/v1/fleet/push-object", content=iter([b"x" * 1000])).status_code == 200
        pieces = iter([b"x" * (1 << 20)] * 17)  # says no length before
        assert client.post(address + "/v1/fleet/push-object", content=pieces).status_code == 413
    assert len(heard) == 2


def test_the_gate_ends_the_handshake_of_strangers(made, gate, tmp_path):
    address, heard = gate
    certificates.make_ca(tmp_path / "ca")
    certificates.make_client(tmp_path / "ca", tmp_path / "stranger", "north")
    for certificate in (None, tmp_path / "stranger"):
        with visitor(made / "north", certificate) as client, pytest.raises(httpx.TransportError):
            client.post(address + "/v1/fleet/push-object", content=b"x")
    assert heard == []
