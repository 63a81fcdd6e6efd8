"""Appends to lognode, and followers of its keys.

`together`: one follow of all keys by one client. `each`: a follow for every key, by several
clients.
"""

import asyncio
from collections.abc import Sequence

import lognode

from .. import nodes
from .delivered import Delivered
from .plan import Plan

LOG = "follow"
MODES = ("together", "each")
_OPENED_AT_ONCE = 4_096
_ALL_OPEN_S = 600.0


class Appends:
    """Appends of one process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._client = _client(plan)
        self._log = self._client.log(LOG)

    async def open(self) -> None:
        """Do nothing: the first append connects."""

    async def append(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Return when the records are acknowledged."""
        await self._log.append_many(records)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()


class Following:
    """All followers. `failed` is the first error of any of them."""

    def __init__(self, plan: Plan, delivered: Delivered) -> None:
        self._plan = plan
        self._delivered = delivered
        count = plan.clients if plan.mode == "each" else 1
        self._clients = [_client(plan) for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []
        self._gate = asyncio.Semaphore(_OPENED_AT_ONCE)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Return when every follower is at the end of its key. Raises LognodeError."""
        keys = [self._plan.stamps.key(number) for number in self._plan.followed()]
        groups = [keys] if self._plan.mode == "together" else [[key] for key in keys]
        feeds = []
        async with asyncio.TaskGroup() as opening:
            for at, group in enumerate(groups):
                log = self._clients[at % len(self._clients)].log(LOG)
                feed = log.follow(keys=group, start="latest")
                feeds.append(feed)
                opening.create_task(self._open(feed))
        caught_up = [asyncio.get_running_loop().create_future() for _ in feeds]
        for feed, done in zip(feeds, caught_up, strict=True):
            task = asyncio.create_task(self._follow(feed, done))
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        async with asyncio.timeout(_ALL_OPEN_S):
            await asyncio.wait(
                {self.failed, asyncio.gather(*caught_up)}, return_when=asyncio.FIRST_COMPLETED
            )
        if self.failed.done():
            await self.failed

    async def close(self) -> None:
        """End all followers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    async def _open(self, feed: lognode.AsyncFeed) -> None:
        async with self._gate:
            await feed.open()

    async def _follow(self, feed: lognode.AsyncFeed, caught_up: "asyncio.Future[None]") -> None:
        take = self._delivered.take
        async for batch in feed:
            for entry in batch:
                take(entry.key, entry.value)
            if batch.caught_up and not caught_up.done():
                caught_up.set_result(None)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)


async def create(plan: Plan) -> None:
    """Create the log; return when its ranges have leaders."""
    async with _client(plan) as client:
        await nodes.healthy(client)
        split_at = [plan.stamps.key(plan.keys * n // plan.ranges) for n in range(1, plan.ranges)]
        await client.create_log(LOG, split_at=split_at, split_rate=None)
        await nodes.healthy(client)


def _client(plan: Plan) -> lognode.AsyncClient:
    return lognode.AsyncClient(",".join(plan.addresses), timeout=plan.timeout_s)
