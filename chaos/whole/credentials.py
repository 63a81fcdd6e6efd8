"""The files of a secured run: the nodes' secret, certificates, tokens and invitations."""

import ssl
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from ...client.client import AsyncClient
from ...client.protocol.private_files import read_private, write_private
from ...client.protocol.tls import dial_context
from . import certificates
from .certificates import Issued

_ADMIN_TOKEN: Final = "admin.token"
"""The file in the founder's data directory to which the founder writes the first token."""
_SECRET: Final = b"a secret of all simulated nodes"
LEASE_S: Final = 5.0
"""The seconds for which a node believes tokens without news of the controller."""


class Credentials:
    """The files under `root`, and the flags and addresses that name them.

    `founder` is the data directory of the node that founds the cluster.
    """

    def __init__(self, root: Path, founder: Path, *, tokens: bool, tls: bool) -> None:
        self.has_tokens = tokens
        self.has_tls = tls
        self._founder = founder
        self._folder = root / "credentials"
        self._secret = self._folder / "secret"
        self._ca = self._folder / "ca.crt"
        self.workload_token = self._folder / "workload.token"
        if tokens or tls:
            self._folder.mkdir()
        if tokens:
            write_private(self._secret, _SECRET)
        if tls:
            self._ca.write_bytes(certificates.authority().certificate)
            self._write("client", certificates.of_client())

    def flags(self, number: int) -> list[str]:
        """Return the flags of a node; write its certificate."""
        flags = []
        if self.has_tokens:
            flags += ["--secret-file", str(self._secret), "--auth",
                      "--auth-lease", str(LEASE_S)]  # fmt: skip
        if self.has_tls:
            name = f"node{number}"
            self._write(name, certificates.of_node(number))
            flags += [
                "--tls-cert", str(self._folder / f"{name}.crt"),
                "--tls-key", str(self._folder / f"{name}.key"), "--tls-ca", str(self._ca),
            ]  # fmt: skip
        return flags

    def invited(self, number: int) -> list[str]:
        """Return the flags of a node that does not found the cluster."""
        return ["--invitation", str(self._invitation(number))] if self.has_tls else []

    def renew(self, number: int, renewals: int) -> None:
        """Replace the certificate of a node by a newer one with the same key."""
        new = self._folder / "renewed"
        new.write_bytes(certificates.of_node(number, renewals).certificate)
        new.replace(self._folder / f"node{number}.crt")

    @property
    def is_ready(self) -> bool:
        """Whether the founder has written the first token, where there are tokens."""
        return not self.has_tokens or (self._founder / _ADMIN_TOKEN).exists()

    @property
    def admin_token(self) -> str:
        """The token that allows everything."""
        return read_private(self._founder / _ADMIN_TOKEN, "token file").decode().strip()

    @cached_property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of a client, None without TLS."""
        if not self.has_tls:
            return None
        return dial_context(self._ca, self._folder / "client.crt", self._folder / "client.key")

    def address(self, hosts: str, token: Path | None = None) -> str:
        """Return the cluster's address at these hosts, with TLS if there is TLS."""
        files = {} if token is None else {"token": token}
        if self.has_tls:
            files |= {"ca": self._ca, "cert": self._folder / "client.crt",
                      "key": self._folder / "client.key"}  # fmt: skip
        scheme = "lognodes" if self.has_tls else "lognode"
        return f"{scheme}://{hosts}" + (f"?{urlencode(files, safe='/')}" if files else "")

    def of_admin(self, hosts: str) -> str:
        """Return the address of a client that may do everything."""
        return self.address(hosts, self._founder / _ADMIN_TOKEN if self.has_tokens else None)

    def of_workload(self, hosts: str) -> str:
        """Return the address of a client that may only do what the workload does."""
        return self.address(hosts, self.workload_token if self.has_tokens else None)

    async def invite(self, admin: AsyncClient, number: int) -> None:
        """Get the invitation with which this node joins, where it needs one."""
        if self.has_tls:
            made = await admin.admin.invite_node()
            write_private(self._invitation(number), made["invitation"].encode())

    async def allow_workload(self, admin: AsyncClient, logs: Iterable[str]) -> None:
        """Make the token of the workload: it reads, appends to and groups these logs only."""
        if self.has_tokens:
            scopes = [f"read,append,group {log}" for log in logs]
            made = await admin.admin.create_token("workload", scopes)
            write_private(self.workload_token, made["token"].encode())

    def _invitation(self, number: int) -> Path:
        return self._folder / f"node{number}.invitation"

    def _write(self, name: str, issued: Issued) -> None:
        (self._folder / f"{name}.crt").write_bytes(issued.certificate)
        write_private(self._folder / f"{name}.key", issued.key)
