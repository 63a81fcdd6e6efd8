"""Access rights in `scripts/demo --secure`: of an administrator, a program, and strangers."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from lognode.testing import LocalCluster

Verb = Callable[..., str]


class Access:
    """The addresses of a cluster, each with the files and rights of one kind of client.

    `program` is the address for the program that imports and reads one log. Without TLS and tokens
    all clients may do everything, and all addresses are the same.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.program = cluster.servers

    @property
    def secure(self) -> bool:
        """Whether the cluster has TLS and tokens."""
        return self._cluster.tls is not None

    def allow(self, log: str, run_verb: Verb) -> None:
        """Give the program a token of its own, which may read this log and append to it."""
        if not self.secure:
            return
        token = self._cluster.root / "program.token"
        run_verb("token", "create", "program", "--scope", f"read,append {log}", "--out", str(token))
        self.program = self._address(token)

    def strangers(self) -> dict[str, str]:
        """Return the addresses of clients that may not read, by what they lack."""
        if not self.secure:
            return {}
        hosts = self._cluster.servers.partition("?")[0].partition("//")[2]
        return {"TLS": f"lognode://{hosts}", "a token": self._address(None)}

    def _address(self, token: Path | None) -> str:
        files = {} if self._cluster.tls is None else dict(self._cluster.tls.files)
        if token is not None:
            files["token"] = str(token)
        return f"{self._cluster.servers.partition('?')[0]}?{urlencode(files, safe='/')}"
