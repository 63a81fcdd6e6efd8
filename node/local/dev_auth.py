"""Make the tokens of a local cluster: the nodes' secret, and the founder's first token."""

import os
from pathlib import Path

from ...client.protocol.private_files import read_private, write_private
from ..directory.data_directory import ADMIN_TOKEN

_SECRET_BYTES = 32


class DevAuth:
    """The secret under `root`, made when it is first needed, and the founder's first token."""

    def __init__(self, root: Path, founder: Path) -> None:
        self._secret = root / "secret"
        self._token = founder / ADMIN_TOKEN

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of every node."""
        if not self._secret.exists():
            self._secret.parent.mkdir(parents=True, exist_ok=True)
            write_private(self._secret, os.urandom(_SECRET_BYTES).hex().encode())
        return ("--secret-file", str(self._secret), "--auth")

    @property
    def files(self) -> dict[str, str]:
        """The token's file, by its name in the address of the cluster."""
        return {"token": str(self._token.absolute())}

    @property
    def token(self) -> str | None:
        """The token that allows everything, or None before the founder has made it."""
        if not self._token.exists():
            return None
        return read_private(self._token, "token file").decode().strip()
