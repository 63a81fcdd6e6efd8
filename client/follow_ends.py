"""The ends of ranges: follows that begin at `latest` at the same time ask once for each range.

A caller gets the answer to a request that was sent after the call, so that the follow begins behind
every entry acknowledged before (S7). All who call before the next request is sent share that
request, and few requests for a range are under way at once. So thousands of follows that open
together ask a few times.
"""

import asyncio
from typing import Final

from .cluster import Cluster, LogRoutes, retrieve
from .pool import shared
from .protocol.errors import Timeout
from .protocol.reads import RESOLVE
from .routing import Range

under_way_max: Final = 4
"""Requests for one range that are under way at once; later callers share the next request."""

_On = tuple[int, int]
"""The id and the generation of a range."""


class RangeEnds:
    """The questions of one client for the ends of the ranges of one log."""

    def __init__(self, cluster: Cluster, log: LogRoutes) -> None:
        self._cluster = cluster
        self._log = log
        self._asking: dict[_On, set[asyncio.Task[int]]] = {}
        """The requests that were sent."""
        self._next: dict[_On, asyncio.Task[int]] = {}
        """The requests that are not sent yet, and may be shared."""

    async def end_of(self, known: Range, deadline: float) -> int:
        """Return the seq after the newest entry of the range. Raises the errors of
        `Cluster.call`."""
        on = known.range_id, known.generation
        while True:
            task = self._next.get(on)
            if task is None:
                task = asyncio.create_task(self._ask(on, known, deadline))
                task.add_done_callback(retrieve)
                self._next[on] = task
            try:
                async with asyncio.timeout_at(deadline):
                    return await shared(task)
            except TimeoutError:
                raise Timeout(f"{known} did not tell its end in time") from None
            except Timeout:
                if self._cluster.now() >= deadline:
                    raise
                # The first caller of the request had less time than this caller: ask again.

    async def _ask(self, on: _On, known: Range, deadline: float) -> int:
        while len(under_way := self._asking.get(on, ())) == under_way_max:
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        own = self._next.pop(on)
        self._asking.setdefault(on, set()).add(own)
        try:
            body = {"key": None, "start": "latest", "start_key": known.start, "end_key": None}
            answer, _ = await self._cluster.call(
                self._log, known.start, RESOLVE, body, deadline=deadline
            )
            return int(answer["seq"])
        finally:
            self._asking[on].discard(own)
            if not self._asking[on]:
                del self._asking[on]
