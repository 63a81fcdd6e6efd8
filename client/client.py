"""The client: one per process and cluster. `AsyncClient.log` returns its logs."""

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from . import tokens
from .admin import AsyncAdmin
from .appends import to_key
from .cluster import Cluster
from .log import AsyncLog
from .protocol import Operation, address, limits, log_names
from .protocol.cluster import ALTER_LOG, CREATE_LOG, DELETE_LOG, HEALTH, STATUS
from .protocol.errors import (
    Conflict,
    InvalidArgument,
    LimitExceeded,
    LogNotFound,
    RemoteProtocolError,
)
from .protocol.patterns import check_separator
from .protocol.tls import ClientTls, Tls
from .protocol.types import UNCHANGED, Unchanged

default_timeout_s: Final = 10.0
default_address: Final = "lognode://127.0.0.1:4600"


class AsyncClient:
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
        if not 1 <= follow_bytes_max <= limits.follow_credit_bytes_max:
            raise InvalidArgument(
                f"follow_bytes_max is {follow_bytes_max}; give 1 to "
                f"{limits.follow_credit_bytes_max} bytes", what="follow_bytes_max",
            )  # fmt: skip
        if timeout <= 0:
            raise InvalidArgument(f"timeout is {timeout}; give seconds above 0", what="timeout")
        seeds, in_address = address.parse(address_list), address.tls_of(address_list)
        if tls is not None and in_address not in (None, Tls()):
            raise InvalidArgument(
                "the TLS files are given twice, in the address and as `tls`; give the files once",
                what="tls",
            )
        how = tls or in_address
        token_file = address.token_file_of(address_list)
        if token is not None and token_file is not None:
            raise InvalidArgument(
                "the token is given twice, in the address and as `token`; give the token once",
                what="token",
            )
        if token_file is not None:
            token = tokens.read_token(token_file)
        elif token is not None:
            tokens.id_of(token)
        found = None if how is None else ClientTls(how)
        self._cluster = Cluster(seeds, found, token, follow_bytes_max)
        self._scheme = address.SCHEME if how is None else address.TLS_SCHEME
        self._timeout = timeout
        self._logs: dict[str, AsyncLog] = {}
        self._admin = AsyncAdmin(self._cluster, timeout=timeout)

    def __repr__(self) -> str:
        seeds = ",".join(map(str, self._cluster.seeds))
        return f"<AsyncClient {self._scheme}{seeds}>"

    @property
    def admin(self) -> AsyncAdmin:
        """Return the operations for operators."""
        return self._admin

    def log(self, name: str) -> AsyncLog:
        """Return the log with this name. Raises LimitExceeded or InvalidArgument for an invalid
        name."""
        found = self._logs.get(name)
        if found is None:
            log_names.check(name)
            found = AsyncLog(self._cluster, name, timeout=self._timeout)
            self._logs[name] = found
        return found

    async def create_log(
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
    ) -> AsyncLog:
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
        log = self.log(name)
        _check_shape(ranges, split_at, replicas)
        body = {
            "name": name, "ranges": ranges,
            "split_at": None if split_at is None else sorted(set(map(to_key, split_at))),
            "replicas": replicas, "retention_ms": retention_ms, "retention_bytes": retention_bytes,
            "cleanup": cleanup,
            "delete_retention_ms": delete_retention_ms,
            "snapshot_delay_ms": snapshot_delay_ms,
            "split_bytes": split_bytes,
            "split_rate": split_rate,
            "exist_ok": exist_ok,
            "creation": os.urandom(limits.creation_bytes),
        }  # fmt: skip
        separator = None if hierarchy is None else to_key(hierarchy)
        if separator is not None:
            check_separator(separator)
        optional = {"hierarchy": separator, "kafka_partitions": kafka_partitions,
                    "local_retention_bytes": local_retention_bytes}  # fmt: skip
        body |= {rule: value for rule, value in optional.items() if value is not None}
        answer = await self._ask(CREATE_LOG, body, timeout)
        _check_hierarchy(name, answer["hierarchy"], separator)
        _check_partitions(name, answer["kafka_partitions"], kafka_partitions)
        return log

    async def alter_log(
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
        log_names.check(name)
        given = {
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "cleanup": cleanup,
            "delete_retention_ms": delete_retention_ms,
            "snapshot_delay_ms": snapshot_delay_ms,
            "split_bytes": split_bytes,
            "split_rate": split_rate,
            "local_retention_bytes": local_retention_bytes,
        }
        changes = {rule: value for rule, value in given.items() if value is not UNCHANGED}
        body = {"name": name, "changes": changes}
        answer = await self._ask(ALTER_LOG, body, timeout)
        policy = answer.get("policy")
        if not isinstance(policy, dict):
            raise RemoteProtocolError("the policy of a log is not valid")
        return policy

    async def delete_log(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a log and all its entries. A retry after a lost answer does not delete a log
        that was created under the same name meanwhile. Raises LogNotFound."""
        deadline = self._deadline(timeout)
        await self._cluster.refresh(name, deadline, key=b"")
        body = {"name": name, "id": self._cluster.log(name).log_id}
        while True:
            try:
                await self._cluster.call_any(DELETE_LOG, body, deadline=deadline)
                break
            except LogNotFound as error:
                if error.outcome == "unknown":
                    break  # an earlier attempt, whose answer was lost, deleted the log
                newer = error.fields.get("id")
                if type(newer) is not int or newer == body["id"]:
                    raise
                body["id"] = newer  # the node that reported the id did not know this log yet
        self._cluster.forget(name)
        self._logs.pop(name, None)

    async def logs(self, *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the id, name and policy of each log, ordered by name."""
        answer = await self._cluster.overview(self._deadline(timeout))
        return sorted(answer["logs"], key=lambda log: str(log["name"]))

    async def metadata(
        self, log: str | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return nodes, logs and ranges from the cluster's metadata. Raises LogNotFound."""
        deadline = self._deadline(timeout)
        if log is not None:
            return await self._cluster.refresh(log, deadline)
        overview = await self._cluster.overview(deadline)
        return {**overview, "ranges": await self._cluster.every_range(deadline)}

    async def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return the dict of /status.json, as one node sees the cluster."""
        deadline = self._deadline(timeout)
        found: dict[str, Any] = {}
        after: object = None
        while True:
            page = await self._cluster.call_any(STATUS, {"after": after}, deadline=deadline)
            after = page.pop("next", None)
            for name, part in page.items():
                if isinstance(part, list) and name in found:
                    found[name] += part
                else:
                    found[name] = part
            if after is None:
                return found

    async def health(self, *, nodes: int = 1, timeout: float | None = None) -> dict[str, Any]:
        """Return `ok`, and when it is false the `reasons`, such as ranges without a leader, and
        `next`: what an operator does next, one line. Earlier versions of a node send no `next`."""
        return await self._ask(HEALTH, {"nodes": nodes}, timeout)

    async def close(self, timeout: float = 5.0) -> None:
        """Deliver pending records for at most `timeout` seconds, then close; always returns.

        All logs share the timeout. A call that is still waiting ends with an error that states the
        outcome of the call.
        """
        try:
            await asyncio.gather(*(log.close(timeout) for log in self._logs.values()))
        finally:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.now() + (self._timeout if timeout is None else timeout)

    async def _ask(
        self, operation: Operation, body: dict[str, Any], timeout: float | None
    ) -> dict[str, Any]:
        return await self._cluster.call_any(operation, body, deadline=self._deadline(timeout))


def _check_shape(ranges: int | None, split_at: Sequence[bytes | str] | None, replicas: int) -> None:
    """Raise InvalidArgument or LimitExceeded for ranges and replicas that no log can have."""
    if ranges is not None and split_at is not None:
        raise InvalidArgument(
            "ranges and split_at are both given; give only one of the two", what="ranges"
        )
    if ranges is not None and not 1 <= ranges <= limits.ranges_per_log_max:
        raise LimitExceeded(
            f"{ranges} ranges; 1 to {limits.ranges_per_log_max} are allowed",
            limit="ranges_per_log_max", value=ranges, allowed=limits.ranges_per_log_max,
        )  # fmt: skip
    if not 1 <= replicas <= limits.replicas_max:
        raise LimitExceeded(
            f"{replicas} replicas; 1 to {limits.replicas_max} are allowed",
            limit="replicas_max", value=replicas, allowed=limits.replicas_max,
        )  # fmt: skip


def _check_hierarchy(name: str, found: bytes | None, wanted: bytes | None) -> None:
    """Raise Conflict for a log that has not the wanted hierarchy; None: any hierarchy fits."""
    if wanted is not None and found != wanted:
        raise Conflict(
            f"the log {name!r} has the hierarchy {found!r}, and {wanted!r} was asked for; a "
            "hierarchy never changes. Use another name, or delete the log and create it again at "
            "feature level 4"
        )


def _check_partitions(name: str, found: int | None, wanted: int | None) -> None:
    """Raise Conflict for a log that has not the wanted Kafka partitions; None: any log fits."""
    if wanted is not None and found != wanted:
        raise Conflict(
            f"the log {name!r} has {found or 'no'} Kafka partitions, and {wanted} were asked for; "
            "the number never changes. Use another name, or delete the log and create it again at "
            "feature level 4"
        )
