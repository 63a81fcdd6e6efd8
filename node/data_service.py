"""The data protocol's operations: what each request does, without sockets.

Every request names (range, generation): an exact match is served, anything else is refused with
what this node knows, so that the client can go where it should (ranges.md section 6).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..client import limits
from ..client.errors import (
    GenerationMismatch,
    InvalidArgument,
    LognodeError,
    NotLeader,
    RangeNotFound,
    Timeout,
    Unavailable,
    from_wire,
    to_wire,
)
from ..partitions.model import Span
from ..raft.types import GroupId
from ..statemachine import commands
from .metrics import Metrics
from .range_replica import RangeReplica

Body = dict[str, Any]
Operation = Callable[[Body], Awaitable[Body]]


class DataService:
    """Appends and reads on the ranges of this node.

    `replica` gives the running replica of a range, whatever its generation; `describe` the
    descriptors that this node knows for a span of a range.
    """

    def __init__(
        self,
        *,
        node_id: int,
        replica: Callable[[int], RangeReplica | None],
        describe: Callable[[int], list[Body]],
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._replica = replica
        self._describe = describe
        self._metrics = metrics
        self.operations: dict[str, Operation] = {
            "append": self.append,
            "fence": self.fence,
            "producer_number": self.producer_number,
            "scan": self.scan,
            "latest": self.latest,
            "count": self.count,
            "keys": self.keys,
            "read_span": self.read_span,
            "resolve": self.resolve,
        }

    def find(self, body: Body) -> RangeReplica:
        """The replica that the request names. Raises RangeNotFound, GenerationMismatch."""
        gid = GroupId(_integer(body, "range"), _integer(body, "generation"))
        replica = self._replica(gid.range_id)
        if replica is None:
            known = self._describe(gid.range_id)
            if known:
                raise GenerationMismatch(f"range {gid.range_id} is not on this node", ranges=known)
            raise RangeNotFound(f"no range {gid.range_id} on this node", range=gid.range_id)
        if replica.gid != gid:
            raise GenerationMismatch(
                f"range {gid.range_id} is at generation {replica.gid.generation} here",
                ranges=self._describe(gid.range_id),
            )
        return replica

    # Appends.

    async def append(self, body: Body) -> Body:
        """Append batches in their order; each has its own result."""
        started = time.monotonic()
        replica = self.find(body)
        batches = body.get("batches")
        if type(batches) is not list or not batches or set(map(type, batches)) != {bytes}:
            raise InvalidArgument("append needs `batches`, an array of bytes", what="batches")
        waiting: list[asyncio.Future[Body] | LognodeError] = []
        for data in batches:
            try:
                waiting.append(replica.append(data))
            except LognodeError as error:
                waiting.append(error)
        results = []
        for item in waiting:
            if isinstance(item, LognodeError):
                results.append({"status": "error", "error": to_wire(item)})
                continue
            try:
                results.append(await item)
            except LognodeError as error:
                results.append({"status": "error", "error": to_wire(error)})
        self._metrics.append_seconds.observe(time.monotonic() - started)
        return {"results": results}

    # Producers.

    async def fence(self, body: Body) -> Body:
        """Refuse lower epochs of a producer in this range from now on (executions 1.27)."""
        replica = self.find(body)
        epoch = _integer(body, "epoch")
        payload = [_integer(body, "id"), epoch, epoch]
        reply = await replica.propose_and_wait(commands.FENCE, payload)
        if reply.get("status") == "error":  # a seal was committed before it
            raise from_wire(reply["error"])
        return {}

    async def producer_number(self, body: Body) -> Body:
        """Whether a producer's number was applied here, and its seq (executions 1.17)."""
        replica = await self._readable(body)
        row = replica.state.producers.rows.get(_integer(body, "producer"))
        number = _integer(body, "number")
        seq = None if row is None else row.applied.get(number)
        return {"applied": seq is not None or (row is not None and number < row.low), "seq": seq}

    def producer_close(self, body: Body) -> None:
        """A producer has settled everything and goes: its row may go too. Nobody is answered."""
        try:
            replica = self.find(body)
            if replica.leads and not replica.is_sealed:
                replica.retire_producers([_integer(body, "id")])
        except LognodeError:
            return  # an idle row goes after 24 h

    # Reads.

    async def scan(self, body: Body) -> Body:
        """A page of a key's entries."""
        replica, key = await self._readable_key(body)
        page = replica.state.scan(
            key,
            _integer(body, "start", 1),
            _optional_integer(body, "end"),
            limit=_limit(body, limits.page_entries_max),
            bytes_max=_bytes_max(body),
            reverse=bool(body.get("reverse")),
        )
        return page.to_wire()

    async def latest(self, body: Body) -> Body:
        """A page with the key's last entry, or an empty one."""
        replica, key = await self._readable_key(body)
        page = replica.state.scan(
            key, 1, None, limit=1, bytes_max=limits.page_bytes_max, reverse=True
        )
        return page.to_wire()

    async def count(self, body: Body) -> Body:
        """How many entries of the key lie in [start, end)."""
        replica, key = await self._readable_key(body)
        start, end = _integer(body, "start", 1), _optional_integer(body, "end")
        return {"count": replica.state.count(key, start, end)}

    async def keys(self, body: Body) -> Body:
        """A page of the range's keys, in order."""
        replica = await self._readable(body)
        prefix = body.get("prefix") or b""
        after = body.get("start_after")
        limit = _limit(body, limits.keys_page_max)
        found = replica.state.keys(prefix, after, limit=limit)
        return {"keys": found, "more": len(found) == limit}

    async def read_span(self, body: Body) -> Body:
        """A page of the entries of a span of keys, in the order of seq."""
        replica = await self._readable(body)
        page = replica.state.read_span(
            body.get("start_key") or b"",
            body.get("end_key"),
            _integer(body, "start", 1),
            limit=_limit(body, limits.page_entries_max),
            bytes_max=_bytes_max(body),
        )
        return page.to_wire()

    async def resolve(self, body: Body) -> Body:
        """The seq of a start position: `["ts", ms]`, `["tail", n]` or `"latest"`."""
        replica = await self._readable(body)
        key, start = body.get("key"), body.get("start")
        if start == "latest":
            return {"seq": replica.state.next_seq}
        if type(start) is list and len(start) == 2 and type(start[1]) is int:
            if start[0] == "ts":
                return {"seq": replica.state.seq_at_timestamp(start[1], key)}
            if start[0] == "tail" and type(key) is bytes:
                return {"seq": replica.state.tail(key, start[1])}
        raise InvalidArgument(f"resolve does not know the start {start!r}", what="start")

    async def _readable_key(self, body: Body) -> tuple[RangeReplica, bytes]:
        key = body.get("key")
        if type(key) is not bytes:
            raise InvalidArgument("this read needs a `key` of bytes", what="key")
        replica = await self._readable(body)
        if key not in Span(replica.state.start, replica.state.end):
            raise GenerationMismatch(
                f"the key is not in range {replica.gid.range_id}",
                ranges=self._describe(replica.gid.range_id),
            )
        return replica, key

    async def _readable(self, body: Body) -> RangeReplica:
        """The replica, once it may serve this read at the consistency that it asks for."""
        replica = self.find(body)
        timeout_s = min(_integer(body, "timeout_ms", 10_000), 60_000) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                if body.get("node") is not None:
                    await self._own_replica(replica, body)
                elif body.get("consistency") != "prefix":
                    await replica.read_barrier()
        except TimeoutError:
            raise Timeout(
                f"the read did not finish within {timeout_s} s", outcome="not_applied"
            ) from None
        if replica.stopped:
            raise NotLeader("this replica has stopped", hint=None)
        return replica

    async def _own_replica(self, replica: RangeReplica, body: Body) -> None:
        if body["node"] != self._node_id:
            raise Unavailable(f"this is node {self._node_id}, not node {body['node']}")
        through = body.get("through")
        if type(through) is int:
            while replica.state.next_seq <= through and not replica.stopped:
                await replica.wait_applied(replica.applied_index + 1)


def _integer(body: Body, name: str, default: int | None = None) -> int:
    value = body.get(name, default)
    if value is None and default is not None:
        value = default
    if type(value) is not int or value < 0:
        raise InvalidArgument(f"`{name}` must be an integer of 0 or more, not {value!r}", what=name)
    return value


def _optional_integer(body: Body, name: str) -> int | None:
    return None if body.get(name) is None else _integer(body, name)


def _limit(body: Body, allowed: int) -> int:
    value = _optional_integer(body, "limit")
    return allowed if value is None else max(1, min(value, allowed))


def _bytes_max(body: Body) -> int:
    value = _integer(body, "bytes", limits.page_bytes_default)
    return max(1, min(value, limits.page_bytes_max))
