"""A small certificate authority in a directory, for clusters without an authority of their own.

    ca.crt, ca.key          the authority: give ca.crt to every node and client, ca.key to nobody
    <name>.crt, <name>.key  a node or a client

Keys are ECDSA P-256. A node's certificate names its hosts, which clients check, and in a URI its
cluster and the node, which nodes check. A client's certificate names the cluster and the client.
Files with keys are 0600 from the first byte on. No file is ever overwritten, except a certificate
when it is renewed.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...client.protocol import certificate as names
from ...client.protocol.certificate import Certificate
from ...client.protocol.errors import Conflict, InvalidArgument, Unavailable
from ...client.protocol.private_files import read_private

days_max: Final = 36_500
_BACKDATED: Final = datetime.timedelta(hours=1)
"""How far back a certificate's validity begins: clocks of other machines may be behind."""
_DNS_NAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*"
)
_CLUSTER_URI: Final = re.compile(r"lognode://cluster/([^/]+)")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its files. The fingerprints of the certificate and its key are SHA-256."""

    cert: Path
    key: Path
    certificate: Certificate


class Authority:
    """The authority of one directory, for one cluster."""

    def __init__(
        self,
        directory: Path,
        issued: Issued,
        signer: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
    ) -> None:
        self.directory = directory
        self.issued = issued
        self._signer = signer
        self._key = key
        (self.cluster,) = (
            match[1] for match in map(_CLUSTER_URI.fullmatch, issued.certificate.uris) if match
        )

    @classmethod
    def create(cls, directory: Path, cluster: str, days: int) -> "Authority":
        """Make an authority in a directory without one; make the directory too.

        `cluster` is the cluster's name in all certificates. `days` is how long the authority is
        valid. Raises Conflict if there is an authority, InvalidArgument, Unavailable.
        """
        names.check_name(cluster, "cluster")
        if names.is_cluster_id(cluster):
            raise InvalidArgument(
                f"{cluster!r} looks like the id of a cluster; give another name: a CA is "
                "made before the cluster has an id", what="cluster",
            )  # fmt: skip
        _make_directory(directory)
        cert, key_path = directory / "ca.crt", directory / "ca.key"
        _check_absent(cert, key_path)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "lognode"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"CA of {cluster}"),
            ]
        )
        usage = _usage(signs_certificates=True)
        builder = (
            _builder(subject, subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(_identifier(key.public_key()), critical=False)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.UniformResourceIdentifier(f"lognode://cluster/{cluster}")]
                ),
                critical=False,
            )
        )
        made = builder.sign(key, hashes.SHA256())
        _write_new(key_path, _key_pem(key))
        _write_new(cert, _cert_pem(made))
        return cls.open(directory)

    @classmethod
    def open(cls, directory: Path) -> "Authority":
        """Return the authority in a directory. Raises InvalidArgument if there is none."""
        cert, key_path = directory / "ca.crt", directory / "ca.key"
        if not cert.exists():
            raise InvalidArgument(
                f"{directory} contains no CA (ca.crt); make a CA with `lognode ca init --dir "
                f"{directory}`", what="dir",
            )  # fmt: skip
        key = _load_key(key_path, "CA key")
        try:
            signer = x509.load_pem_x509_certificate(cert.read_bytes())
            (certificate,) = names.from_pem(cert.read_text("ascii"))
            return cls(directory, Issued(cert, key_path, certificate), signer, key)
        except (OSError, ValueError) as error:
            raise InvalidArgument(
                f"{cert} is not a CA from `lognode ca init`: {error}", what="dir"
            ) from None

    def node(
        self, node: str, hosts: Sequence[str], days: int, *, cluster: str = "", renew: bool = False
    ) -> Issued:
        """Make or renew the certificate of a node.

        `node` is a name, or the node's id in digits. `hosts` are the names and IP addresses at
        which clients dial the node; a renewal without hosts keeps those of the old certificate.
        `cluster` is the name or the id of the cluster, by default the authority's.
        Raises InvalidArgument, Conflict if the files exist, or for a renewal if they do not.
        """
        names.check_name(node, "node")
        uris = [names.node_uri(each, node) for each in self._clusters(cluster)]
        kept = self._hosts(node) if renew and not hosts else []
        alternatives = kept or [_host(host) for host in dict.fromkeys(hosts)]
        if not alternatives:
            raise InvalidArgument(
                f"the certificate of node {node} has no host; give each name and address at "
                "which clients dial the node with --host", what="host",
            )  # fmt: skip
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(node, uris, alternatives, purposes, days, renew)

    def client(self, client: str, days: int, *, cluster: str = "", renew: bool = False) -> Issued:
        """Make or renew the certificate of a client. Raises the errors of `node`."""
        names.check_name(client, "client")
        uris = [names.client_uri(each, client) for each in self._clusters(cluster)]
        return self._issue(client, uris, [], [ExtendedKeyUsageOID.CLIENT_AUTH], days, renew)

    def _clusters(self, cluster: str) -> list[str]:
        """Return the cluster's names in a certificate: an id goes with the name all nodes know."""
        if not cluster:
            return [self.cluster]
        names.check_name(cluster, "cluster")
        return [self.cluster, cluster] if names.is_cluster_id(cluster) else [cluster]

    def _issue(
        self,
        name: str,
        uris: list[str],
        hosts: list[x509.GeneralName],
        purposes: list[x509.ObjectIdentifier],
        days: int,
        renew: bool,
    ) -> Issued:
        if name == "ca":
            raise InvalidArgument(
                "the name 'ca' is reserved for the authority; give another name", what="name"
            )
        cert, key_path = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        if renew:
            key = _load_key(key_path, "key")
        else:
            _check_absent(cert, key_path)
            key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        alternatives = [*hosts, *map(x509.UniformResourceIdentifier, uris)]
        made = (
            _builder(subject, self._signer.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(_identifier(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        if renew:
            _replace(cert, _cert_pem(made))
        else:
            _write_new(key_path, _key_pem(key))
            _write_new(cert, _cert_pem(made))
        (certificate,) = names.from_pem(_cert_pem(made).decode("ascii"))
        return Issued(cert, key_path, certificate)

    def _hosts(self, name: str) -> list[x509.GeneralName]:
        """Return the hosts in the certificate that is to be renewed."""
        path = self.directory / f"{name}.crt"
        try:
            old = x509.load_pem_x509_certificate(path.read_bytes())
            found = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, x509.ExtensionNotFound) as error:
            raise Conflict(
                f"cannot renew {path}: {error}; make a new certificate, with --host"
            ) from None
        return [each for each in found if isinstance(each, x509.DNSName | x509.IPAddress)]


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    if not 1 <= days <= days_max:
        raise InvalidArgument(f"the validity is {days} days; give 1 to {days_max}", what="days")
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates,
        crl_sign=signs_certificates, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _identifier(key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass  # a name
    if not _DNS_NAME.fullmatch(host):
        raise InvalidArgument(
            f"host {host!r} is neither an IP address nor a host name; give the host without "
            "a port, and letters other than a to z as punycode (xn--...)", what="host",
        )  # fmt: skip
    return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _cert_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _load_key(path: Path, what: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_private(path, what), password=None)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{what} {path} is not valid: {error}", what=what) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidArgument(f"{what} {path} is not an ECDSA key", what=what)
    return key


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"cannot use directory {directory}: {error.strerror}; give another directory with --dir"
        ) from None


def _check_absent(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise Conflict(
                f"{path} exists, and this command overwrites no file; move the file away, "
                "or renew a certificate with --renew"
            )


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file, 0600 and durable. Raises Conflict if it exists, Unavailable."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise Conflict(
            f"{path} exists, and this command overwrites no file; move the file away"
        ) from None
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}") from None


def _replace(path: Path, data: bytes) -> None:
    """Replace a whole file at once: a reader gets either the old file or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    _write_new(new, data)
    try:
        os.replace(new, path)
    except OSError as error:
        raise Unavailable(f"cannot replace {path}: {error.strerror}") from None
