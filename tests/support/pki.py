"""Certificates for tests: those of `lognode ca`, and what it never makes."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from lognode.client.protocol.tls import Tls
from lognode.node.certificates import ca
from lognode.node.certificates.ca import Authority, Issued

HOSTS = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Pki:
    """An authority, and what was made with it."""

    authority: Authority

    @property
    def ca(self) -> Path:
        """The file that everybody trusts."""
        return self.authority.issued.cert

    def node(self, name: str, **options: Any) -> Issued:
        """The certificate of a node on loopback."""
        return self.authority.node(name, options.pop("hosts", HOSTS), 30, **options)

    def client(self, name: str = "app", **options: Any) -> Issued:
        """The certificate of a client."""
        return self.authority.client(name, 30, **options)

    def tls(self, issued: Issued | None = None) -> Tls:
        """The options of a client with that certificate, or without any."""
        if issued is None:
            return Tls(ca=self.ca)
        return Tls(ca=self.ca, cert=issued.cert, key=issued.key)

    def aged(self, issued: Issued, begun_days: int, ended_days: int) -> Issued:
        """Put the same certificate in its place, valid between so many days from now."""
        old = x509.load_pem_x509_certificate(issued.cert.read_bytes())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder().subject_name(old.subject).issuer_name(old.issuer)
            .public_key(old.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=begun_days))
            .not_valid_after(now + datetime.timedelta(days=ended_days))
        )  # fmt: skip
        for extension in old.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        made = builder.sign(self.authority._key, hashes.SHA256())
        ca._replace(issued.cert, ca._cert_pem(made))
        return issued


def pki(directory: Path, cluster: str = "test") -> Pki:
    """A new authority in a directory of that name."""
    return Pki(Authority.create(directory, cluster, 30))
