"""Make the certificates of a local cluster: an authority, its nodes, and one client."""

import ssl
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...client.protocol.tls import Tls, dial_context

if TYPE_CHECKING:
    from ..certificates.ca import Authority

_HOSTS = ("127.0.0.1", "localhost")
_AUTHORITY_DAYS = 3_650
_DAYS = 365
_CLIENT = "dev"


class DevTls:
    """The files under one directory; each is made when it is first needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    @cached_property
    def authority(self) -> "Authority":
        """The authority; it is made if there is none yet."""
        from ..certificates.ca import Authority  # loads the cryptography package

        if (self.directory / "ca.crt").exists():
            return Authority.open(self.directory)
        return Authority.create(self.directory, "dev", _AUTHORITY_DAYS)

    def flags(self, number: int) -> tuple[str, ...]:
        """Return the flags of a node; make its certificate if it has none."""
        name = f"node{number}"
        if not (self.directory / f"{name}.crt").exists():
            self.authority.node(name, _HOSTS, _DAYS)
        return (
            "--tls-cert", str(self.directory / f"{name}.crt"),
            "--tls-key", str(self.directory / f"{name}.key"),
            "--tls-ca", str(self.directory / "ca.crt"),
        )  # fmt: skip

    @cached_property
    def client(self) -> Tls:
        """The files of the client; its certificate is made if it has none."""
        if not (self.directory / f"{_CLIENT}.crt").exists():
            self.authority.client(_CLIENT, _DAYS)
        return Tls(
            ca=self.directory / "ca.crt",
            cert=self.directory / f"{_CLIENT}.crt",
            key=self.directory / f"{_CLIENT}.key",
        )

    @property
    def files(self) -> dict[str, str]:
        """The client's files, by their names in the address of the cluster."""
        files = self.client
        return {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The TLS context for HTTPS, with the client's certificate."""
        files = self.client
        return dial_context(*(Path(str(path)) for path in (files.ca, files.cert, files.key)))
