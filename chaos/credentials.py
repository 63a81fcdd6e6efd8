"""The credentials of a secured cluster under test: a CA, certificates, and two tokens.

`lognode ca` makes the CA and the certificates, as for an operator. The founder makes the
administrator's token. The administrator makes the token of the workload, and an invitation for each
node that joins.
"""

import asyncio
import ssl
import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from ..client.client import AsyncClient
from ..client.protocol.errors import Unavailable
from ..client.protocol.private_files import read_private, write_private
from ..client.protocol.tls import dial_context

FOLDER: Final = "credentials"
"""The folder beside the data directories of the nodes."""
_ADMIN_TOKEN: Final = "admin.token"
"""The file in the founder's data directory to which the founder writes the first token."""
_CLUSTER: Final = "chaos"
_CLIENT: Final = "chaos-client"
_HOST: Final = "127.0.0.1"
"""The host on which every proxy listens."""
_MAKE_S: Final = 60.0


class Credentials:
    """The files of one cluster, under `root`.

    `environment` is that of the nodes, so that their build makes the certificates.
    """

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._folder = (root / FOLDER).absolute()
        self._environment = dict(environment)
        self.ca = self._folder / "ca.crt"
        self.cert = self._folder / f"{_CLIENT}.crt"
        """The client's certificate. It gives no rights without a token."""
        self.key = self._folder / f"{_CLIENT}.key"
        self.admin_token = self._folder / _ADMIN_TOKEN
        """File of the token that allows everything."""
        self.workload_token = self._folder / "workload.token"
        """File of the token that allows reads and appends of the logs of the workload."""

    async def make(self, numbers: Collection[int]) -> None:
        """Make the CA, a certificate for each node, and one for clients. Raises Unavailable."""
        self._folder.mkdir(parents=True, exist_ok=True)
        await self._ca("init", "--cluster", _CLUSTER)
        await self._ca("client", _CLIENT)
        for number in numbers:
            await self._ca("node", f"node{number}", "--host", _HOST)

    def flags(self, number: int, *, is_founder: bool) -> tuple[str, ...]:
        """Return the flags of a node.

        They are mutual TLS with nodes and clients, tokens, and the invitation of a node that joins.
        """
        invited = () if is_founder else ("--invitation", str(self._invitation(number)))
        return (
            "--tls-cert", str(self._folder / f"node{number}.crt"),
            "--tls-key", str(self._folder / f"node{number}.key"),
            "--tls-ca", str(self.ca), "--auth", *invited,
        )  # fmt: skip

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client that shows the certificate."""
        return dial_context(self.ca, self.cert, self.key)

    @cached_property
    def anonymous(self) -> ssl.SSLContext:
        """Return the TLS context of a client without a certificate."""
        return dial_context(self.ca, None, None)

    def address(self, hosts: str, token: Path) -> str:
        """Return the cluster's address at these hosts, for a client with the token in that file."""
        files = {"ca": self.ca, "cert": self.cert, "key": self.key, "token": token}
        return f"lognodes://{hosts}?{urlencode(files, safe='/')}"

    def keep_admin_token(self, founder_data: Path) -> None:
        """Copy the first token out of the founder's data directory, which faults may hide.

        Raises InvalidArgument when the founder has made no token.
        """
        write_private(self.admin_token, read_private(founder_data / _ADMIN_TOKEN, "token file"))

    async def invite(self, admin: AsyncClient, number: int) -> None:
        """Get the invitation with which this node joins."""
        made = await admin.admin.invite_node()
        write_private(self._invitation(number), made["invitation"].encode())

    def _invitation(self, number: int) -> Path:
        return self._folder / f"node{number}.invitation"

    async def allow_workload(self, admin: AsyncClient, logs: Iterable[str]) -> None:
        """Make the token of the workload: it reads, appends to and groups these logs only."""
        scopes = [f"read,append,group {log}" for log in logs]
        made = await admin.admin.create_token("workload", scopes)
        write_private(self.workload_token, made["token"].encode())

    async def _ca(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lognode.node.main", "ca", *arguments, "--dir",
            str(self._folder), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_MAKE_S):
                _, said = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            said = b"it did not end in time"
        if process.returncode != 0:
            raise Unavailable(f"`lognode ca {arguments[0]}` failed: {said.decode().strip()}")
