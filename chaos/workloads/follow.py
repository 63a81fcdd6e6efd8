"""`follow`: followers of a key, of a prefix and of the whole log, while producers append.

A follower's position outlives its process: the next process in its slot goes on from this position
with a new client, like a consumer that keeps its own cursor.
"""

import asyncio
import random
from typing import Any, Final

from ...client.follow import AsyncFeed
from ...client.protocol.types import Cursor, FollowBatch
from ..process import Process
from .append import Producer
from .parts import Keys, text

_WAIT_S: Final = 1.0
"""An operation of a follower ends after this time, with or without entries."""
_WAITED: Final = 0.9
"""The share of that time after which an operation counts as a wait for nothing."""
_DRAIN_S: Final = 30.0
_KINDS: Final = ("log", "prefix", "key")


class FollowWorkload:
    """Two of three processes produce, the others follow."""

    def __init__(self, rng: random.Random) -> None:
        self._keys = Keys(10, 200, rng)
        self._rng = rng
        self._cursors: dict[int, Cursor] = {}
        self._targets: dict[int, tuple[str, str]] = {}

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return "follower" if slot % 3 == 2 else "producer"

    def worker(self, slot: int, process: Process) -> "Producer | Follower":
        """Return the worker of a new process in this slot."""
        if self.role(slot) == "producer":
            return Producer(process, self._keys)
        if slot not in self._targets:
            what = _KINDS[slot // 3 % len(_KINDS)]
            key = self._keys.to_read()
            target = {"log": "", "prefix": key[:2], "key": key}[what]
            self._targets[slot] = what, target
        return Follower(process, slot, self._targets[slot], self._cursors)


class Follower:
    """Takes one delivery after another, from the start or from the position of its slot."""

    def __init__(
        self, process: Process, slot: int, target: tuple[str, str], cursors: dict[int, Cursor]
    ) -> None:
        self._process = process
        self._slot = slot
        self._what, self._target = target
        self._cursors = cursors
        self._resumed = slot in cursors
        self._feed: AsyncFeed | None = None
        self._next: asyncio.Task[FollowBatch] | None = None

    async def step(self) -> None:
        """Take one delivery, or none within a second."""
        await self._take()

    async def drain(self) -> None:
        """Take deliveries until two consecutive operations wait for nothing, each for a second.

        Without faults this means that all entries have arrived. A batch without entries says only
        that the feed has reached the end of a range, or has lost its member.
        """
        loop = asyncio.get_running_loop()
        deadline, nothing = loop.time() + _DRAIN_S, 0
        while nothing < 2 and loop.time() < deadline:
            began = loop.time()
            answered = await self._take()
            waited = loop.time() - began > _WAITED * _WAIT_S
            empty = answered is not None and not answered["entries"]
            nothing = nothing + 1 if empty and waited else 0

    async def close(self) -> None:
        """End the follow; the position of the last recorded delivery stays."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
        if self._feed is not None:
            await self._feed.close()

    async def _take(self) -> dict[str, Any] | None:
        asked: dict[str, Any] = {
            "follower": f"f{self._slot}",
            "what": self._what,
            "target": self._target,
        }
        if self._resumed:
            asked["resumed"] = True
        self._resumed = False
        answered = await self._process.call("follow", asked, self._delivery(), writes=False)
        if answered is None:
            await self.close()  # its error cannot be retried; the next follow starts anew
            self._feed = self._next = None
            self._resumed = True
            await asyncio.sleep(_WAIT_S)
        return answered

    async def _delivery(self) -> dict[str, Any]:
        if self._feed is None:
            self._feed = self._opened()
        if self._next is None:
            self._next = asyncio.create_task(anext(self._feed))
        # No cancellation after the timeout: a delivery that was already taken would be lost.
        await asyncio.wait([self._next], timeout=_WAIT_S)
        if not self._next.done():
            return {"entries": []}
        done, self._next = self._next, None
        batch = done.result()
        self._cursors[self._slot] = batch.cursor
        return {"entries": [[e.key.decode(), e.seq, text(e.value)] for e in batch]}

    def _opened(self) -> AsyncFeed:
        keys = [self._target] if self._what == "key" else None
        prefix = self._target if self._what == "prefix" else None
        cursor = self._cursors.get(self._slot)
        if cursor is None:
            return self._process.log.follow(keys=keys, prefix=prefix, start="earliest")
        if cursor.keys is not None:
            return self._process.log.follow(start=cursor)
        return self._process.log.follow(prefix=prefix, start=cursor)
