"""A follow of a merged range: parts with positions from before the merge are read apart."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lognode.client.cluster import Body, Cluster, LogRoutes
from lognode.client.follow import AsyncFeed
from lognode.client.protocol import Operation
from lognode.client.protocol.types import Cursor
from lognode.client.routing import Range

MERGED_AT = 6
"""The first seq of the merged range; its parts were cut at m."""


class _Stream:
    """A stream that pushes once, and again when an entry is appended."""

    def __init__(self, cluster: "_Merged", body: Body) -> None:
        self._cluster = cluster
        self._body = body

    async def __aiter__(self) -> AsyncIterator[Body]:
        body, start, end = self._body, self._body["start_key"], self._body["end_key"]
        apart = body["from_seq"] < MERGED_AT and start < b"m" and (end is None or end > b"m")
        end = b"m" if apart else end
        at = body["from_seq"]
        while True:
            own = [(key, seq) for key, seq in self._cluster.entries
                   if seq >= at and start <= key and (end is None or key < end)]  # fmt: skip
            at = own[-1][1] + 1 if own else at
            page = {
                "keys": [key for key, _ in own], "seqs": [seq for _, seq in own],
                "timestamps": [1] * len(own), "values": [b"v"] * len(own), "next": at,
                "more": False,
            }  # fmt: skip
            yield {"page": page, "next": at, "caught_up": True, "end_key": end if apart else None}
            await self._cluster.news.wait()

    def cancel(self) -> None:
        """Nothing is open."""


class _Merged(Cluster):
    """One range, which was merged of two."""

    def __init__(self) -> None:
        super().__init__([])
        self.entries: list[tuple[bytes, int]] = []
        self.news = asyncio.Event()
        self.opened = 0
        self.routes: LogRoutes = self.log("orders")
        self.routes.begin(1)
        self.routes.table.insert_all([Range(3, 1, 1, b"", None, (1, 2, 3), 1)])

    def append(self, *entries: tuple[bytes, int]) -> None:
        self.entries += entries
        self.news.set()
        self.news = asyncio.Event()

    async def stream(
        self, known: Range, operation: Operation, body: Body, deadline: float, *, node: int,
        credit_bytes: int,
    ) -> Any:  # fmt: skip
        self.opened += 1
        return _Stream(self, body)


@pytest.mark.parametrize("positions", [(6, 4), (4, 6), (5, 5)])
def test_parts_that_one_stream_cannot_read_stay_apart_until_both_have_new_entries(
    positions: tuple[int, int],
) -> None:
    """The follow joined and cut the parts for ever, with a new stream every few milliseconds."""

    async def run() -> None:
        cluster = _Merged()
        low, high = positions
        start = Cursor(spans=((b"", b"m", low), (b"m", None, high)))
        feed = AsyncFeed(
            cluster, cluster.routes, keys=None, prefix=None, pattern=None, start=start, timeout=5
        )
        taken: list[tuple[bytes, int]] = []

        async def take() -> None:
            async for batch in feed:
                taken.extend((entry.key, entry.seq) for entry in batch)

        task = asyncio.create_task(take())
        await asyncio.sleep(0.3)
        assert cluster.opened <= 8, "the parts are joined and cut again and again"
        fresh = [(b"a", 6), (b"z", 7), (b"b", 8)]
        for entry in fresh:
            cluster.append(entry)
            await asyncio.sleep(0.1)
        assert taken == fresh
        assert len(feed.cursor.spans) <= 2
        assert len(feed._spans) == 1, "both parts are behind the merge, and joined"
        task.cancel()
        await feed.close()

    asyncio.run(run())
