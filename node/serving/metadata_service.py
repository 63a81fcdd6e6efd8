"""What clients ask of the metadata, in pages: nodes, logs, and ranges with their leaders.

A page is of one version. Pages that follow each other may be of different versions: the ranges of a
log fit together at a key, and whoever finds that two pages do not asks again from the beginning.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import Operation, cluster, limits
from ...client.protocol.key_spans import KeySpans
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor, LogRecord
from ..access.clipped import Clipped, start_of
from ..metadata.view import View

_VERSION_WAIT_S: Final = 0.5
_IDS_A_PAGE: Final = 10_000
"""Ids that one page goes through, those of ranges that are gone included."""

Body = dict[str, Any]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class MetadataService:
    """`refresh` lets this node's image catch up with the controller's leader."""

    def __init__(self, view: View, refresh: Callable[[], Awaitable[None]]) -> None:
        self._view = view
        self._refresh = refresh
        self._held = ((0, -1), Counter[int]())
        """Replicas of each node, in the image of that generation and version."""
        self.paid_handlers: dict[Operation, PaidHandler] = {
            cluster.METADATA: self.metadata,
            cluster.RANGES: self.ranges,
        }

    async def metadata(self, body: Body, room: Room) -> Body:
        """A page of the ranges of a log, or without `log` a page of the logs; see
        the table of operations. `spans`: of the log the asker may know these keys alone; missing
        or None: every key. Raises LogNotFound."""
        name = body["log"]
        await self._at_least(body)
        if name is not None and name not in self._view.metadata.logs.ids:
            await self._refresh()
        await room()
        metadata = self._view.metadata
        answer: Body = {"cluster": metadata.cluster_id, "version": metadata.version}
        if body["nodes"]:
            answer["nodes"] = self._nodes(metadata, with_replicas=name is None)
        if name is not None:
            record = metadata.log_named(name)
            ranges_of: Sequence[Descriptor] = metadata.ranges_of(record.log_id)
            spans: KeySpans | None = body.get("spans")
            if spans is not None:
                ranges_of, answer["keys"] = Clipped(ranges_of, spans), spans.rows
            found, following = range_page(ranges_of, body["start_key"], _limit(body))
            ranges = list(map(self.describe, found))
            return {**answer, "logs": [_log(record)], "ranges": ranges, "next_key": following}
        return {**answer, **self._logs(metadata, body)}

    def _logs(self, metadata: Metadata, body: Body) -> Body:
        after, limit = body["after"], min(body["limit"], limits.logs_page_max)
        ids = [log_id for log_id in sorted(metadata.logs) if log_id > after]
        logs = [_log(metadata.logs[log_id]) for log_id in ids[:limit]]
        following = ids[limit - 1] if len(ids) > limit else None
        return {"logs": logs, "ranges": [], "next": following}

    async def ranges(self, body: Body, room: Room) -> Body:
        """A page of all ranges, or one of them alone; see the table of operations."""
        wanted = body["range"]
        await self._at_least(body)
        await room()
        metadata = self._view.metadata
        if wanted is not None:
            found = [metadata.ranges[wanted]] if wanted in metadata.ranges else []
            following = None
        else:
            found, following = ranges_after(metadata, body["after"], _limit(body))
        ranges = list(map(self.describe, found))
        return {"version": metadata.version, "ranges": ranges, "next": following}

    def describe(self, range_: Descriptor) -> Body:
        """A descriptor with the leader last heard of."""
        leader = self._view.leader(range_.range_id, range_.generation)
        return {**range_.to_wire(), "leader": leader}

    def describe_range(self, range_id: int) -> list[Body]:
        """What this node knows of the span of a range: the range itself, and those that came of
        it when it last changed."""
        return list(map(self.describe, self._view.metadata.descendants(range_id)))

    def _nodes(self, metadata: Metadata, *, with_replicas: bool) -> list[Body]:
        held = self._replicas(metadata) if with_replicas else None
        return [
            {"id": n.node_id, "address": n.address, "http": n.http, "zone": n.zone,
             "state": n.state, "insecure": self._view.insecure.get(n.node_id),
             **({} if held is None else {"replicas": held[n.node_id]})}
            for n in metadata.nodes.values()
        ]  # fmt: skip

    def _replicas(self, metadata: Metadata) -> "Counter[int]":
        """Counted once a version: it goes over all ranges."""
        if self._held[0] != self._view.known:
            self._held = self._view.known, metadata.replicas_by_node()
        return self._held[1]

    async def _at_least(self, body: Body) -> None:
        """Wait until the image is as new as was asked for, or half a second; the answer tells its
        version."""
        version = body["at_least"]
        if self._view.metadata.version >= version:
            return
        try:
            async with asyncio.timeout(_VERSION_WAIT_S):
                await self._refresh()
                while self._view.metadata.version < version:
                    await self._view.changed(_VERSION_WAIT_S)
        except TimeoutError:
            return


def _limit(body: Body) -> int:
    """How many ranges a page may have."""
    return min(int(body["limit"]), limits.ranges_page_max)


def range_page(
    ranges: Sequence[Descriptor], start: bytes, limit: int
) -> tuple[list[Descriptor], bytes | None]:
    """Return the ranges from the one on that has the key `start`, and where the next page begins.

    All ranges of a log, from the first on, where they fit a page: then one answer is enough,
    whichever key was asked for.
    """
    first = max(0, bisect_right(ranges, start, key=start_of) - 1)
    if len(ranges) <= limit and len(_fitting(ranges, limit)) == len(ranges):
        first = 0
    found = _fitting(ranges[first : first + limit], limit)
    end = first + len(found)
    return found, ranges[end].span.start if end < len(ranges) else None


def ranges_after(metadata: Metadata, after: int, limit: int) -> tuple[list[Descriptor], int | None]:
    """Return ranges with ids above `after`, ascending, and the id after which the next page
    begins."""
    end = min(metadata.next_ids["range"], after + 1 + _IDS_A_PAGE)
    ids = [range_id for range_id in range(after + 1, end) if range_id in metadata.ranges]
    found = _fitting(map(metadata.ranges.__getitem__, ids), limit)
    last = found[-1].range_id if len(found) < len(ids) else end - 1
    return found, last if last + 1 < metadata.next_ids["range"] else None


def _fitting(ranges: Iterable[Descriptor], limit: int) -> list[Descriptor]:
    """The first ranges, as many as `limit` and the bytes of a page allow, one at least."""
    found: list[Descriptor] = []
    size = 0
    for range_ in ranges:
        size += _size(range_)
        if found and (len(found) >= limit or size > limits.page_bytes_default):
            break
        found.append(range_)
    return found


def _size(range_: Descriptor) -> int:
    """About the bytes of its descriptor."""
    keys = (range_.span.start, range_.span.end or b"", *range_.met_at)
    return 150 + 130 * len(range_.lineage) + sum(map(len, keys))


def _log(record: LogRecord) -> Body:
    return {"id": record.log_id, "name": record.name, "policy": record.policy.to_body()}
