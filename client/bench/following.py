"""Followers, each at the tail of its own key, while others append: the latency of deliveries."""

import asyncio
import time
from collections import deque
from typing import Any, Final

from ..log import AsyncLog
from ..protocol.errors import CorruptData
from . import pace
from .appending import Appender, Appending
from .report import Recorder
from .shape import Shape

_OPENED_AT_ONCE: Final = 64
_LAST_WAIT_S: Final = 60.0


class Followers:
    """`count` followers of the shape's first keys, and appends at a rate to all keys.

    The latency of a delivery counts from the time at which the append was due.
    """

    def __init__(self, log: AsyncLog, shape: Shape, count: int, load: Appending) -> None:
        self._log = log
        self._shape = shape
        self._load = load
        self._appender = Appender(log, shape, load)
        self._keys = [shape.key(number) for number in range(count)]
        self._awaited: dict[bytes, deque[tuple[bytes, float]]] = {
            key: deque() for key in self._keys
        }
        self._left = 0
        self._recorder = Recorder(warmup_s=load.warmup_s, every_s=load.every_s)
        self._opened = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def run(self) -> dict[str, Any]:
        """Run, and return the report, which counts deliveries. Raises CorruptData when an entry is
        missing or wrong.

        `append` holds the report of the appends.
        """
        load = self._load
        ready = [asyncio.get_running_loop().create_future() for _ in self._keys]
        tasks = [
            asyncio.create_task(self._follow(key, done))
            for key, done in zip(self._keys, ready, strict=True)
        ]
        appends = Recorder(warmup_s=load.warmup_s)
        try:
            await self._unless_ended(asyncio.gather(*ready), tasks)
            self._recorder.begin()
            seconds = load.warmup_s + load.seconds
            appending = pace.at_rate(load.rate / load.batch, seconds, self._append, appends)
            await self._unless_ended(asyncio.ensure_future(appending), tasks)
            self._recorder.end()
            await self._unless_ended(asyncio.ensure_future(self._drained()), tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._recorder.report(
            "follow",
            {
                "keys": self._shape.keys,
                "value_bytes": self._shape.value_bytes,
                "zipf": self._shape.zipf,
                "followers": len(self._keys),
                "rate": load.rate,
                "verified": self._recorder.calls,
                "append": appends.report("append", {"batch": load.batch}),
            },
        )

    async def _append(self, _: int, due: float) -> int:
        records = self._appender.next_records(self._load.batch)
        for key, value in records:
            awaited = self._awaited.get(key)
            if awaited is not None:
                awaited.append((value, due))
                self._left += 1
        await self._log.append_many(records)
        return len(records)

    async def _follow(self, key: bytes, ready: "asyncio.Future[None]") -> None:
        awaited = self._awaited[key]
        async with self._opened:
            feed = self._log.follow(keys=[key], start="latest")
            await feed.open()
        try:
            ready.set_result(None)
            async for entry in feed.entries():
                if not awaited:
                    raise CorruptData(
                        f"key {key!r} delivered {entry!r:.200}, which no client appended"
                    )
                value, due = awaited.popleft()
                if entry.key != key or entry.value != value:
                    raise CorruptData(f"key {key!r} delivered an entry out of order")
                self._left -= 1
                now = time.perf_counter()
                self._recorder.add(1, now, service_s=now - due, latency_s=now - due)
        finally:
            await feed.close()

    async def _drained(self) -> None:
        """Wait until every acknowledged entry was delivered."""
        deadline = time.perf_counter() + _LAST_WAIT_S
        while self._left:
            if time.perf_counter() > deadline:
                raise CorruptData(f"{self._left} entries did not arrive within {_LAST_WAIT_S} s")
            await asyncio.sleep(0.01)

    async def _unless_ended(
        self, wanted: "asyncio.Future[Any]", tasks: "list[asyncio.Task[None]]"
    ) -> None:
        """Await `wanted`; raises the error of a follower that fails first."""
        done, _ = await asyncio.wait({wanted, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        if wanted not in done:
            wanted.cancel()
            await asyncio.gather(wanted, return_exceptions=True)
            for task in done:
                await task
        await wanted
