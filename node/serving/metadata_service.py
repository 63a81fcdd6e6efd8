"""Answer clients' questions about the metadata, in pages: nodes, logs, and ranges with leaders.

A page is of one version; the next page may be of another. The ranges of a log meet at keys: a
client that finds a gap or an overlap between two pages asks again from the beginning.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from ...client.accepting.request import Room
from ...client.protocol import Operation, cluster, limits
from ...client.protocol.errors import Unavailable
from ...client.protocol.key_spans import KeySpans
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor, LogRecord
from ..access.clipped import Clipped, start_of
from ..metadata.view import View

_VERSION_WAIT_S: Final = 0.5
_IDS_A_PAGE: Final = 10_000
"""Range ids that one page goes through, including ids of ranges that are gone."""

Body = dict[str, Any]
PaidHandler = Callable[[Body, Room], Coroutine[Any, None, Body]]


class MetadataService:
    """Serves pages of the metadata.

    `newest` brings this node's image up to the controller leader's, and returns whether the leader
    answered.
    """

    def __init__(self, view: View, newest: Callable[[], Awaitable[bool]]) -> None:
        self._view = view
        self._newest = newest
        self._held = ((0, -1), Counter[int]())
        """The replicas of each node, and the generation and version of the image they are from."""
        self.paid_handlers: dict[Operation, PaidHandler] = {
            cluster.METADATA: self.metadata,
            cluster.RANGES: self.ranges,
        }

    async def metadata(self, body: Body, room: Room) -> Body:
        """Return a page of a log's ranges, or without `log` a page of the logs.

        See the table of operations. `spans` holds the keys of the log that the asker may know;
        if missing or None, the asker may know every key. Raises LogNotFound, and Unavailable when
        the log is unknown here and the controller's leader cannot be asked."""
        name = body["log"]
        await self._at_least(body)
        if name is not None and name not in self._view.metadata.logs.ids:
            await self._ask_for(name)
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
        """Return a page of all ranges, or one range; see the table of operations."""
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
        """Return a descriptor with its last known leader."""
        leader = self._view.leader(range_.range_id, range_.generation)
        return {**range_.to_wire(), "leader": leader}

    def describe_range(self, range_id: int) -> list[Body]:
        """Return what this node knows of a range's span: the range itself, and the ranges that its
        last change created."""
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
        """Count the replicas of each node, once for each version: the count visits every range."""
        if self._held[0] != self._view.known:
            self._held = self._view.known, metadata.replicas_by_node()
        return self._held[1]

    async def _ask_for(self, name: str) -> None:
        """Bring the image up to date for a log that the image lacks.

        Raises Unavailable if that fails: the log may exist.
        """
        if not await self._newest() and name not in self._view.metadata.logs.ids:
            raise Unavailable(
                f"this node does not know log {name!r}, and no leader of the controller answers "
                "that may know the log; ask again later"
            )

    async def _at_least(self, body: Body) -> None:
        """Wait until the image has the requested version, or half a second. The answer names the
        version of the image."""
        version = body["at_least"]
        if self._view.metadata.version >= version:
            return
        try:
            async with asyncio.timeout(_VERSION_WAIT_S):
                await self._newest()
                while self._view.metadata.version < version:
                    await self._view.changed(_VERSION_WAIT_S)
        except TimeoutError:
            return


def _limit(body: Body) -> int:
    """Return how many ranges a page may have."""
    return min(int(body["limit"]), limits.ranges_page_max)


def range_page(
    ranges: Sequence[Descriptor], start: bytes, limit: int
) -> tuple[list[Descriptor], bytes | None]:
    """Return the ranges from the range of the key `start` on, and where the next page begins.

    If all ranges of the log fit a page, return them all from the first on: then one answer is
    enough, whichever key was asked for.
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
    """Return as many of the first ranges as `limit` and the bytes of a page allow, at least one."""
    found: list[Descriptor] = []
    size = 0
    for range_ in ranges:
        size += _size(range_)
        if found and (len(found) >= limit or size > limits.page_bytes_default):
            break
        found.append(range_)
    return found


def _size(range_: Descriptor) -> int:
    """Return the approximate size of the range's descriptor in bytes."""
    keys = (range_.span.start, range_.span.end or b"", *range_.met_at)
    return 150 + 130 * len(range_.lineage) + sum(map(len, keys))


def _log(record: LogRecord) -> Body:
    body: Body = {"id": record.log_id, "name": record.name, "policy": record.policy.to_body()}
    if record.hierarchy:
        body["hierarchy"] = record.hierarchy
    return body
