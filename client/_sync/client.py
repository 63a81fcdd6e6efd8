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
    """A connection to a cluster, through the address of any of its nodes.

    `address`: `lognode://host:port[,host:port...]`. The client discovers the other nodes.
    `lognodes://` is the same with TLS, and may name the files of `tls`:
    `lognodes://host:port?ca=FILE&cert=FILE&key=FILE`.
    `tls`: the files for TLS, see `lognode.Tls`. With `tls`, `lognode://` means TLS too.
    `token`: the credential of this client, as `lognode token create` prints it. The address may
    name a file that holds the token: `lognode://host:port?token=FILE`. The client sends the token
    only inside TLS or to its own machine.
    `timeout`: seconds, the default deadline of every call.
    `follow_bytes_max`: bytes of entries that each follow reads ahead of its caller, 4 MiB at most.
    The client connects at its first call. Every call must run on the event loop of the first call.
    Raises InvalidArgument for a bad address, for unusable files, and for a malformed token.
    """

    def __init__(
        self,
        address_list: str = default_address,
        *,
        tls: Tls | None = None,
        token: str | None = None,
        timeout: float = default_timeout_s,
        follow_bytes_max: int = limits.follow_credit_bytes_max,
    ) -> None:
        self._loop = LoopThread()
        self._twin = AsyncClient(
            address_list, tls=tls, token=token, timeout=timeout, follow_bytes_max=follow_bytes_max
        )

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncClient", "Client")

    @property
    def admin(self) -> Admin:
        """Return the operations for operators."""
        return Admin(self._loop, self._twin.admin)

    def log(self, name: str) -> Log:
        """Return the log with this name. Raises LimitExceeded or InvalidArgument for an invalid
        name."""
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
        hierarchy: bytes | str | None = None,
        local_retention_bytes: int | None = None,
        kafka_partitions: int | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> Log:
        """Create a log with `ranges` even ranges, or split at the given keys.

        `replicas`: 1 to `replicas_max`; with fewer nodes the log grows to this number later.
        `retention_ms`: entries older than this may be removed.
        `retention_bytes`: each range keeps at least this many bytes of its newest segments.
        `snapshot_delay_ms`: how long after a logical snapshot the older entries of its key are
        removed.
        These rules remove whole segments, so entries may stay longer.
        `cleanup="compact"` replaces these rules: the last entry of each key stays, tombstones stay
        for `delete_retention_ms`, a day by default. Seqs never change (S6).
        `cleanup="compact,delete"`: both rules remove entries. Needs feature level 7.
        `split_bytes`: a range with more bytes of segments is split automatically; None: never.
        `split_rate`: a range that handles more appended records and reads a second than this, for
        ten seconds, is split at the key that halves the load; at least 100. None: never.
        `kafka_partitions`: the fixed number of partitions that Kafka clients see. Keys then have
        478 bytes at most, and ranges begin at partitions. Needs feature level 4.
        `local_retention_bytes`: of each range, a node with a tier keeps about this many bytes of
        segments on its own disk, the newest; older segments are in the tier only. None: all are on
        the disks too. Needs feature level 4.
        `hierarchy`: the separator of the levels of keys, 1 to 8 bytes, by which patterns choose
        keys; it never changes. None: a key is one level. Needs feature level 4.
        A retry after a lost answer recognises the log that the same call created.
        Raises LogExists unless `exist_ok`, Conflict for a log that exists with another hierarchy or
        another number of partitions, Unsupported at a lower feature level, LimitExceeded,
        InvalidArgument.
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
                    hierarchy=hierarchy,
                    local_retention_bytes=local_retention_bytes,
                    kafka_partitions=kafka_partitions,
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
        local_retention_bytes: int | Unchanged | None = UNCHANGED,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Change the policy of a log and return the whole new policy; None removes a rule.

        Entries that are already removed do not come back. Ranges and replicas stay unchanged.
        The call is idempotent. Raises LogNotFound, and InvalidArgument for a policy that
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
                local_retention_bytes=local_retention_bytes,
                timeout=timeout,
            )
        )

    def delete_log(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a log and all its entries. A retry after a lost answer does not delete a log
        that was created under the same name meanwhile. Raises LogNotFound."""
        self._loop.call(self._twin.delete_log(name, timeout=timeout))

    def logs(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the id, name and policy of each log, ordered by name."""
        return self._loop.call(self._twin.logs(timeout=timeout))

    def metadata(self, log: str | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Return nodes, logs and ranges from the cluster's metadata. Raises LogNotFound."""
        return self._loop.call(self._twin.metadata(log, timeout=timeout))

    def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the dict of /status.json, as one node sees the cluster."""
        return self._loop.call(self._twin.status(timeout=timeout))

    def health(self, *, nodes: int = 1, timeout: float | None = None) -> dict[str, Any]:
        """Return `ok`, and when it is false the `reasons`, such as ranges without a leader, and
        `next`: what an operator does next, one line. Earlier versions of a node send no `next`."""
        return self._loop.call(self._twin.health(nodes=nodes, timeout=timeout))

    def close(self, timeout: float = 5.0) -> None:
        """Deliver pending records for at most `timeout` seconds, then close; always returns.

        All logs share the timeout. A call that is still waiting ends with an error that states the
        outcome of the call.
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
