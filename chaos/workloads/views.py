"""`view`: appends that wait for the views of a group and of a cursor, beside their readers.

The group is that of the workload `group`, with its consumers and operators. Keepers share a cursor:
the last one that opened the cursor follows the log and commits, and its predecessors are fenced.
Producers register the views, wait for them with appends of each kind, and sometimes delete a view.
"""

import asyncio
import random
from typing import Any, Final

from ...client.cursor import AsyncKeptCursor
from ...client.follow import AsyncFeed
from ...client.protocol.types import Ack, FollowBatch
from ..process import Process
from .groups import GROUP, Consumer, Operator
from .parts import Idle, Keys, text

CURSOR: Final = "index"
VIEWS: Final = ("cursor", "group")
"""The views, each named after its kind."""
_ROLES: Final = ("producer", "consumer", "keeper", "producer", "operator", "consumer")
_WAITS_MS: Final = (0, 100, 300, 1_000)
_RECORDS_MAX: Final = 4
_DELETES: Final = 0.01
_OPENS: Final = 0.01
_LOOKS: Final = 0.05
_AFTER_FENCED_S: Final = (1.0, 4.0)
_WAIT_S: Final = 1.0
_DRAIN_S: Final = 40.0


class ViewWorkload:
    """A third of the processes produce, a third consume, the others keep the cursor and operate."""

    def __init__(self, rng: random.Random) -> None:
        self._keys = Keys(12, 40, rng)
        self._registered: set[str] = set()
        """The views that exist, as far as the producers know."""

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return _ROLES[slot % len(_ROLES)]

    def worker(self, slot: int, process: Process) -> "Waiter | Consumer | Keeper | Operator":
        """Return the worker of a new process in this slot."""
        role = self.role(slot)
        if role == "producer":
            return Waiter(process, self._keys, self._registered)
        if role == "keeper":
            return Keeper(process)
        return (Consumer if role == "consumer" else Operator)(process)


class Waiter(Idle):
    """Appends one record, or several atomically or to many keys, and waits for views."""

    def __init__(self, process: Process, keys: Keys, registered: set[str]) -> None:
        self._process = process
        self._keys = keys
        self._registered = registered
        self._name = f"p{process.number}"
        self._count = 0

    async def step(self) -> None:
        """Register a view that does not exist, delete a view, or append."""
        process, rng = self._process, self._process.rng
        await process.turn()
        missing = [name for name in VIEWS if name not in self._registered]
        if missing and rng.random() < 0.5:
            await self._register(rng.choice(missing))
        elif not missing and rng.random() < _DELETES:
            await self._unregister(rng.choice(VIEWS))
        else:
            await self._append()

    async def _register(self, view: str) -> None:
        async def act() -> dict[str, Any]:
            group, cursor = (GROUP, None) if view == "group" else (None, CURSOR)
            log = self._process.log
            return {"id": (await log.register_view(view, group=group, cursor=cursor)).id}

        # Neither the group nor the cursor exists before its first consumer or keeper.
        if await self._process.call("register", {"view": view}, act(), writes=True) is not None:
            self._registered.add(view)

    async def _unregister(self, view: str) -> None:
        async def act() -> dict[str, Any]:
            await self._process.log.delete_view(view)
            return {}

        self._registered.discard(view)
        await self._process.call("unregister", {"view": view}, act(), writes=True)

    async def _append(self) -> None:
        process, rng = self._process, self._process.rng
        kind = rng.choices(("one", "batch", "many"), (6, 1, 2))[0]
        count = 1 if kind == "one" else rng.randint(2, _RECORDS_MAX)
        if kind == "batch":
            keys = [self._keys.to_append(count)] * count
        else:
            keys = [self._keys.to_append() for _ in range(count)]
        records = [[key, self._value()] for key in keys]
        known = sorted(self._registered)
        asked = {
            "producer": self._name, "records": records,
            "wait_for": rng.sample(known, rng.randint(min(1, len(known)), len(known))),
            "wait_ms": rng.choice(_WAITS_MS), "timeout_ms": int(1000 * process.timeout_s),
        }  # fmt: skip
        await process.call("append", asked, self._acked(kind, asked), writes=True)

    async def _acked(self, kind: str, asked: dict[str, Any]) -> dict[str, Any]:
        log, records = self._process.log, [(key, v.encode()) for key, v in asked["records"]]
        views, wait_ms = asked["wait_for"], asked["wait_ms"]
        if kind == "one":
            acks = [await log.append(*records[0], wait_for=views, wait_ms=wait_ms)]
        elif kind == "many":
            acks = await log.append_many(records, wait_for=views, wait_ms=wait_ms)
        else:
            ack = await log.append_batch(records, wait_for=views, wait_ms=wait_ms)
            first = ack.seq
            seqs = [None if first is None else first + n for n in range(len(records))]
            acks = [Ack(seq, ack.timestamp_ms, seen=ack.seen) for seq in seqs]
        return {"seqs": [ack.seq for ack in acks], "seen": [ack.seen or {} for ack in acks]}

    def _value(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"


class Keeper:
    """Opens the cursor, follows the log from its position, and commits what was delivered."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._cursor: AsyncKeptCursor | None = None
        self._feed: AsyncFeed | None = None
        self._next: asyncio.Task[FollowBatch] | None = None

    async def step(self) -> None:
        """Take a delivery and commit it, look at the positions, or open the cursor anew."""
        process, rng = self._process, self._process.rng
        await process.turn()
        draw = rng.random()
        if draw < _LOOKS:
            await self._look()
        elif draw < _LOOKS + _OPENS:
            await self._end()
        elif not await self._keep():
            await self._end()
            await asyncio.sleep(rng.uniform(*_AFTER_FENCED_S))

    async def drain(self) -> None:
        """Keep on until nothing comes, or another keeper has the cursor; then look."""
        loop = asyncio.get_running_loop()
        deadline, left = loop.time() + _DRAIN_S, 3
        while left and loop.time() < deadline:
            began = loop.time()
            if not await self._keep():
                break
            left -= loop.time() - began > _WAIT_S / 2
        await self._look()

    async def close(self) -> None:
        """End the follow; the cursor stays."""
        await self._end()

    async def _keep(self) -> bool:
        """Commit the next delivery, if one comes. Return whether the cursor is this keeper's."""
        process = self._process
        if self._cursor is None:
            self._cursor = process.log.cursor(CURSOR)
            if await process.call("open", {}, self._open(self._cursor), writes=True) is None:
                return False
        batch: list[FollowBatch] = []
        asked = {"follower": f"f{process.number}", "what": "log", "target": ""}
        took = await process.call("follow", asked, self._delivery(batch), writes=False)
        if took is None:
            return False
        if not batch:
            return True
        spans = [[low.decode(), high and high.decode(), next_]
                 for low, high, next_ in batch[0].cursor.spans]  # fmt: skip
        commit = self._commit(self._cursor, batch[0])
        return await process.call("commit", {"spans": spans}, commit, writes=True) is not None

    async def _open(self, cursor: AsyncKeptCursor) -> dict[str, Any]:
        await cursor.open()
        self._feed = self._process.log.follow(start=await cursor.position())
        return {"holder": cursor.holder}

    async def _delivery(self, batch: list[FollowBatch]) -> dict[str, Any]:
        assert self._feed is not None
        if self._next is None:
            self._next = asyncio.create_task(anext(self._feed))
        # No cancellation after the timeout: a delivery that was already taken would be lost.
        await asyncio.wait([self._next], timeout=_WAIT_S)
        if not self._next.done():
            return {"entries": []}
        done, self._next = self._next, None
        batch.append(done.result())
        return {"entries": [[e.key.decode(), e.seq, text(e.value)] for e in batch[0]]}

    async def _commit(self, cursor: AsyncKeptCursor, batch: FollowBatch) -> dict[str, Any]:
        await cursor.commit(batch)
        return {}

    async def _look(self) -> None:
        async def act() -> dict[str, Any]:
            spans, keys = await self._process.log.cursor(CURSOR).rows()
            return {
                "spans": [[low.decode(), high and high.decode(), n] for low, high, n in spans],
                "keys": [[key.decode(), next_] for key, next_ in keys],
            }

        await self._process.call("positions", {}, act(), writes=False)

    async def _end(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            self._next = None
        if self._feed is not None:
            await self._feed.close()
            self._feed = None
        self._cursor = None
