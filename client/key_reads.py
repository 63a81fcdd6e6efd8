"""Reads of one key: where they begin and end, and their pages."""

from collections.abc import AsyncGenerator
from typing import Any

from . import progress
from .begins import begin_of, checked_end
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .protocol import Operation, limits
from .protocol.reads import RESOLVE, SCAN
from .protocol.types import Consistency, End, Start, Timestamp
from .span_columns import check_consistency
from .span_pages import How
from .stored_keys import shown_answer


class KeyReads:
    """Reads keys of a log. `timeout`: seconds for a read that names no time."""

    def __init__(self, cluster: Cluster, routes: LogRoutes, timeout: float) -> None:
        self._cluster = cluster
        self._routes = routes
        self._timeout = timeout

    async def pages(
        self, wanted: bytes, start: Start, end: End, limit: int | None, reverse: bool, how: How
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the pages of a scan of a key."""
        consistency, timeout, node, through = how
        low = await self.resolve(wanted, start, timeout, consistency, node)
        high = await self.resolve_end(wanted, end, timeout, consistency, node)
        left = limit
        while left is None or left > 0:
            body = {
                "key": wanted, "start": low, "end": high, "reverse": reverse,
                "limit": min(left or limits.page_entries_max, limits.page_entries_max),
                "bytes": limits.page_bytes_default,
            }  # fmt: skip
            page = await self.read(SCAN, wanted, body, timeout, consistency, node, through)
            yield page
            if left is not None:
                left -= len(page["seqs"])
            if not page["more"]:
                return
            if reverse:
                high = progress.lower(page, "next", high)
            else:
                low = progress.higher(page, "next", low)

    async def resolve(
        self, key: bytes, start: Start, timeout: float | None, consistency: Consistency,
        node: int | None,
    ) -> int:  # fmt: skip
        """Return the seq of a start."""
        how = begin_of(start)
        if isinstance(how, int):
            return how
        body, end = {"key": key, "start": how}, None
        while True:
            answer = await self.read(RESOLVE, key, body, timeout, consistency, node, None)
            if not answer["more"]:
                return int(answer["seq"])
            body["end"] = end = progress.lower(answer, "seq", end)

    async def resolve_end(
        self, key: bytes, end: End, timeout: float | None, consistency: Consistency,
        node: int | None,
    ) -> int | None:  # fmt: skip
        """Return the seq of an end."""
        if isinstance(end, Timestamp):
            return await self.resolve(key, end, timeout, consistency, node)
        return checked_end(end)

    async def read(
        self, operation: Operation, key: bytes, body: dict[str, Any], timeout: float | None,
        consistency: Consistency, node: int | None, through: int | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the answer of a range to a read, from a replica that the arguments allow."""
        check_consistency(consistency)
        full = {
            **body, "consistency": consistency, "node": node, "through": through,
            "timeout_ms": milliseconds(self._timeout if timeout is None else timeout),
        }  # fmt: skip
        answer, _ = await self._cluster.call(
            self._routes, key, operation, full, node=node,
            deadline=self._cluster.now() + (self._timeout if timeout is None else timeout),
            any_replica=consistency == "prefix", waits=through is not None, is_shown=True,
        )  # fmt: skip
        return shown_answer(self._routes, answer, key)
