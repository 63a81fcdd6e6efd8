"""A connection to a cluster on a thread of its own, for the blocking code of drivers and tasks."""

from types import TracebackType
from typing import Final, Self

from .. import tokens
from ..cluster import Cluster
from ..loop_thread import LoopThread
from ..protocol import address
from ..protocol.tls import ClientTls

_CLOSE_S: Final = 5.0


class Connection:
    """A client on its own thread, until it is closed; use it as a context manager.

    `servers` may name the files for TLS and of a token. The constructor raises InvalidArgument for
    files that are missing on this machine.
    """

    def __init__(self, servers: str) -> None:
        self._cluster = cluster_of(servers)
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.close(self._cluster.close(), _CLOSE_S)


def cluster_of(servers: str) -> Cluster:
    """Return the cluster, with the TLS and the token of the address."""
    seeds, files, token = address.parse(servers), address.tls_of(servers), None
    token_file = address.token_file_of(servers)
    if token_file is not None:
        token = tokens.read_token(token_file)
    return Cluster(seeds, None if files is None else ClientTls(files), token)
