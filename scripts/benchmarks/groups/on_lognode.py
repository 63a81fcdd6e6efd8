"""Appends to lognode, and consumers of a group of lognode."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import lognode

from .. import nodes
from .plan import DELIVERIES_MAX, RETRY_S, Plan
from .work import Item, Work

MODES: Final = ("group",)
_LOG: Final = "groups"
_GROUP: Final = "workers"


class Appends:
    """Appends of one process."""

    def __init__(self, plan: Plan) -> None:
        self._client = _client(plan)
        self._log = self._client.log(_LOG)

    async def open(self) -> None:
        """Do nothing: the first append connects."""

    async def append(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Return when the records are acknowledged."""
        if len(records) == 1:
            await self._log.append(*records[0])
        else:
            await self._log.append_many(records)

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()


async def create(plan: Plan) -> None:
    """Create the log; return when its ranges have leaders."""
    async with _client(plan) as client:
        await nodes.healthy(client)
        await _finalize(client)
        split_at = [plan.stamps.key(plan.keys * n // plan.ranges) for n in range(1, plan.ranges)]
        await client.create_log(_LOG, split_at=split_at, split_rate=None)
        await nodes.healthy(client)


async def consume(plan: Plan, number: int, work: Work, left: asyncio.Event) -> None:
    """Be a consumer until `left` is set. Raises LognodeError."""
    async with (
        _client(plan) as client,
        client.log(_LOG).consume(
            _GROUP, max_deliveries=DELIVERIES_MAX, keys_max=plan.credit
        ) as consumer,
    ):
        await Consumer(number, work, consumer).run(left)


class Consumer:
    """Acknowledges without waiting for each batch. Items count as acknowledged when a later flush
    has returned, which raises Fenced if any of them was refused."""

    def __init__(self, number: int, work: Work, consumer: lognode.AsyncConsumer) -> None:
        self._number = number
        self._work = work
        self._consumer = consumer
        self.sent: list[tuple[list[Item], float]] = []
        """Items whose acknowledgement is under way, and when it was sent."""
        self._more = asyncio.Event()
        self._releases: set[asyncio.Task[None]] = set()

    async def run(self, left: asyncio.Event) -> None:
        """Work until `left` is set."""
        leaving = asyncio.create_task(left.wait())
        taking = asyncio.create_task(self._take())
        flushing = asyncio.create_task(self._flush())
        tasks = {leaving, taking, flushing}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *self._releases, return_exceptions=True)
        await self.settled()

    async def _take(self) -> None:
        work = self._work
        async for batch in self._consumer:
            key = batch.key
            items = [work.begin(key, value) for value in batch.values]
            if work.fails(items[0]):
                task = asyncio.create_task(
                    batch.release(delay_ms=round(RETRY_S * 1e3), error="poison")
                )
                self._releases.add(task)
                task.add_done_callback(self._releases.discard)
                continue
            self.sent.append((items, time.perf_counter()))
            self._more.set()
            await batch.ack(wait=False)

    async def _flush(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            await self.settled()

    async def settled(self) -> None:
        """Wait until the range has what was sent so far, and count that."""
        sent = list(self.sent)
        await self._consumer.flush()
        for items, called in sent:
            self._work.end(self._number, items, called)
        del self.sent[: len(sent)]  # not before: the flush may have been cancelled


def _client(plan: Plan) -> lognode.AsyncClient:
    return lognode.AsyncClient(",".join(plan.addresses), timeout=plan.timeout_s)


async def _finalize(client: lognode.AsyncClient) -> None:
    """Let the cluster use all that its nodes know."""
    for attempt in range(300):
        try:
            await client.admin.finalize()
            return
        except (lognode.Conflict, lognode.Unavailable):
            if attempt == 299:
                raise
            await asyncio.sleep(0.2)
