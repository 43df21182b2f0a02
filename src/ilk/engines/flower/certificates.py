"""A private CA, and the certificates and keys of one federation.

A client has one key pair (P-384, as Flower wants it). It is written twice: for TLS as PEM with a certificate of the private
CA, and for Flower's node authentication in the form of OpenSSH. So both locks have the same key, and whoever copies
one has copied the other.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ilk.engines.flower.layout import CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY, NODE_KEY
from ilk.errors import IlkError

YEARS_CA, YEARS = 10, 2
Key = ec.EllipticCurvePrivateKey


def make_ca(folder: Path) -> None:
    """Make a CA: a key, and a certificate that it signs itself."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("ilk federation CA")
    made = (
        _begun(name, name, key, YEARS_CA)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA384())
    )
    _write(folder / CA_CERTIFICATE, made.public_bytes(Encoding.PEM))
    _write_secret(folder / CA_KEY, _pem(key))


def make_server(ca: Path, folder: Path, host: str) -> None:
    """Make the server's key and certificate: for its name, and for this machine itself."""
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    key = ec.generate_private_key(ec.SECP384R1())
    _certify(ca, folder, key, host, ExtendedKeyUsageOID.SERVER_AUTH, [own, *(n for n in names if n != own)])


def make_client(ca: Path, folder: Path, name: str) -> bytes:
    """Make a client's key pair and certificate; return the public key as one line, to be given to the server."""
    key = ec.generate_private_key(ec.SECP384R1())
    _certify(ca, folder, key, name, ExtendedKeyUsageOID.CLIENT_AUTH, [x509.DNSName(name)])
    _write_secret(folder / NODE_KEY, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + f" {name}\n".encode()


def _certify(
    ca: Path, folder: Path, key: Key, name: str, use: x509.ObjectIdentifier, names: list[x509.GeneralName]
) -> None:
    try:
        signer = load_pem_private_key((ca / CA_KEY).read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((ca / CA_CERTIFICATE).read_bytes())
    except (OSError, ValueError) as error:
        raise IlkError(f"The CA in {ca} cannot be read: {error}. It is where `ilk deploy init` ran.") from None
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    made = (
        _begun(_name(name), issuer.subject, key, YEARS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    _write(folder / CERTIFICATE, made.public_bytes(Encoding.PEM))
    _write(folder / CA_CERTIFICATE, issuer.public_bytes(Encoding.PEM))
    _write_secret(folder / KEY, _pem(key))


def _begun(name: x509.Name, issuer: x509.Name, key: Key, years: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # the clocks of two machines differ
        .not_valid_after(now + timedelta(days=365 * years))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _usage(digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _write_secret(path: Path, content: bytes) -> None:
    """Write what only its owner may read, and never let it be readable before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
