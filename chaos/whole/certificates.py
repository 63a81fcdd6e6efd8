"""The certificates of a secured run: the same bytes in every run and in every process.

The keys are Ed25519, whose signatures have one length and contain nothing random. Keys, serial
numbers and dates are constants, so that no length in a run depends on entropy that is not the
seed's. Certificates are made once per process, because making them takes longer than their use.
"""

import datetime
import functools
import hashlib
import ipaddress
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...client.protocol.certificate import client_uri, node_uri

_CLUSTER: Final = "simulated"
_HOST: Final = "127.0.0.1"
_FROM: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_UNTIL: Final = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
"""OpenSSL compares these dates with the machine's clock, which the simulator does not replace."""
_AUTHORITY: Final = "authority"


class Issued(NamedTuple):
    """A certificate and its key, as PEM files have them."""

    certificate: bytes
    key: bytes


@functools.cache
def authority() -> Issued:
    """Return the authority of all certificates."""
    return _pem(_signed(_builder(_AUTHORITY, is_authority=True)), _key(_AUTHORITY))


@functools.cache
def of_node(number: int, renewals: int = 0) -> Issued:
    """Return the certificate of a node. A renewed certificate has the same key."""
    names = [
        x509.IPAddress(ipaddress.ip_address(_HOST)),
        x509.UniformResourceIdentifier(node_uri(_CLUSTER, f"node{number}")),
    ]
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _issued(f"node{number}", names, uses, renewals)


@functools.cache
def of_client() -> Issued:
    """Return the certificate of all clients. It gives no rights without a token."""
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(client_uri(_CLUSTER, "client"))]
    return _issued("client", names, [ExtendedKeyUsageOID.CLIENT_AUTH], 0)


def _issued(
    name: str, names: list[x509.GeneralName], uses: list[x509.ObjectIdentifier], renewals: int
) -> Issued:
    builder = (
        _builder(name, renewals=renewals)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(_key(_AUTHORITY).public_key()),
            critical=False,
        )
    )
    return _pem(_signed(builder), _key(name))


def _builder(
    name: str, *, is_authority: bool = False, renewals: int = 0
) -> x509.CertificateBuilder:
    digest = hashlib.sha256(f"{name}/{renewals}".encode()).digest()
    public = _key(name).public_key()
    usage = x509.KeyUsage(
        digital_signature=not is_authority, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=is_authority,
        crl_sign=is_authority, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    path = 0 if is_authority else None
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(_AUTHORITY))
        .public_key(public)
        .serial_number(int.from_bytes(b"\x40" + digest[:15]))  # of one length
        .not_valid_before(_FROM)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=path), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"key/{name}".encode()).digest())


def _signed(builder: x509.CertificateBuilder) -> x509.Certificate:
    return builder.sign(_key(_AUTHORITY), None)


def _pem(certificate: x509.Certificate, key: Ed25519PrivateKey) -> Issued:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(certificate.public_bytes(pem), private)
