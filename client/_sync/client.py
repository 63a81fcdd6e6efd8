# Generated from client/client.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/client.py`."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from ..client import AsyncClient, default_address, default_timeout_s
from ..loop_thread import LoopThread
from ..protocol import limits
from ..protocol.tls import Tls
from ..protocol.types import UNCHANGED, Unchanged
from .admin import Admin
from .log import Log


class Client:
    """A connection to a cluster, by any of its nodes' addresses.

    `address`: `lognode://host:port[,host:port...]`; the rest of the nodes is found out.
    `lognodes://` is the same with TLS, and may name the files of `tls` itself:
    `lognodes://host:port?ca=FILE&cert=FILE&key=FILE`.
    `tls`: the files for TLS, see `lognode.Tls`; with them `lognode://` means TLS too.
    `token`: what this client proves its identity with, as `lognode token create` prints it; the
    address may name a file that has the token, `lognode://host:port?token=FILE`. The token is sent
    inside TLS or to this very machine only.
    `timeout`: seconds, the default deadline of every call. Nothing is dialled before the first
    call. All use is on the loop that is running when it is first used.
    Raises InvalidArgument for a bad address, for files that cannot be used, and for text that is
    not a token.
    """

    def __init__(
        self,
        address_list: str = default_address,
        *,
        tls: Tls | None = None,
        token: str | None = None,
        timeout: float = default_timeout_s,
    ) -> None:
        self._loop = LoopThread()
        self._twin = AsyncClient(address_list, tls=tls, token=token, timeout=timeout)

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncClient", "Client")

    @property
    def admin(self) -> Admin:
        """The verbs of operators."""
        return Admin(self._loop, self._twin.admin)

    def log(self, name: str) -> Log:
        """The log of that name. Raises LimitExceeded, InvalidArgument for an impossible name."""
        return Log(self._loop, self._loop.run(lambda: self._twin.log(name)))

    def create_log(
        self,
        name: str,
        *,
        ranges: int | None = None,
        split_at: Sequence[bytes | str] | None = None,
        replicas: int = 3,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        cleanup: str = "delete",
        delete_retention_ms: int | None = None,
        snapshot_delay_ms: int | None = None,
        split_bytes: int | None = limits.split_bytes_default,
        split_rate: int | None = limits.split_rate_default,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> Log:
        """Create a log of `ranges` even ranges, or split at the given keys.

        `replicas`: 1 to `replicas_max`; with fewer nodes the log grows to it later.
        `retention_ms`: entries older may go. `retention_bytes`: of each range so many bytes of
        segments stay at least, the newest. `snapshot_delay_ms`: what a key had before a logical
        snapshot goes so long after it. Both go by whole segments, so that entries may stay longer.
        `cleanup="compact"`, instead of these: of each key the last entry stays, tombstones for
        `delete_retention_ms`, a day by default. Seqs never change (S6).
        `split_bytes`: a range with more bytes of segments is split by itself; None: never.
        `split_rate`: so is one that appends more records and answers more reads a second, for ten
        seconds and where they halve; at least 100. None: never.
        A call that repeats itself because an answer was lost recognises its own log.
        Raises LogExists unless `exist_ok`, LimitExceeded, InvalidArgument.
        """
        return Log(
            self._loop,
            self._loop.call(
                self._twin.create_log(
                    name,
                    ranges=ranges,
                    split_at=split_at,
                    replicas=replicas,
                    retention_ms=retention_ms,
                    retention_bytes=retention_bytes,
                    cleanup=cleanup,
                    delete_retention_ms=delete_retention_ms,
                    snapshot_delay_ms=snapshot_delay_ms,
                    split_bytes=split_bytes,
                    split_rate=split_rate,
                    exist_ok=exist_ok,
                    timeout=timeout,
                )
            ),
        )

    def alter_log(
        self,
        name: str,
        *,
        retention_ms: int | Unchanged | None = UNCHANGED,
        retention_bytes: int | Unchanged | None = UNCHANGED,
        cleanup: str | Unchanged = UNCHANGED,
        delete_retention_ms: int | Unchanged | None = UNCHANGED,
        snapshot_delay_ms: int | Unchanged | None = UNCHANGED,
        split_bytes: int | Unchanged | None = UNCHANGED,
        split_rate: int | Unchanged | None = UNCHANGED,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Change the policy of a log; None takes a rule away. The whole policy as it is then.

        What is already removed does not come back. Ranges and replicas stay as they are.
        Doing it twice is doing it once. Raises LogNotFound, InvalidArgument for a policy that
        contradicts itself.
        """
        return self._loop.call(
            self._twin.alter_log(
                name,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                cleanup=cleanup,
                delete_retention_ms=delete_retention_ms,
                snapshot_delay_ms=snapshot_delay_ms,
                split_bytes=split_bytes,
                split_rate=split_rate,
                timeout=timeout,
            )
        )

    def delete_log(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a log and all its entries. A call that repeats itself because an answer was lost
        deletes no log that was created under the same name meanwhile. Raises LogNotFound."""
        self._loop.call(self._twin.delete_log(name, timeout=timeout))

    def logs(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """The logs: id, name and policy of each, by name."""
        return self._loop.call(self._twin.logs(timeout=timeout))

    def metadata(self, log: str | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Nodes, logs and ranges as the cluster's metadata has them. Raises LogNotFound."""
        return self._loop.call(self._twin.metadata(log, timeout=timeout))

    def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The dict of /status.json, as one node sees the cluster."""
        return self._loop.call(self._twin.status(timeout=timeout))

    def health(self, *, nodes: int = 1, timeout: float | None = None) -> dict[str, Any]:
        """`ok`, and if not the `reasons`: too few nodes, ranges without leader or members."""
        return self._loop.call(self._twin.health(nodes=nodes, timeout=timeout))

    def close(self, timeout: float = 5.0) -> None:
        """Deliver what is under way for at most `timeout` seconds, then close; always returns.

        The timeout is that of all logs together. A call that waits meanwhile ends with an error
        that says what became of the call.
        """
        self._loop.close(self._twin.close(timeout), timeout + 2.0)

    def __enter__(self) -> Self:
        self._loop.call(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
