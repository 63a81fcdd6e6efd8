"""`group`: consumers of one group, which take unique work items beside producers and operators.

Consumers acknowledge, give back, fail and reject batches at random. They stand still for longer
than their leases, leave, or crash with batches in hand. They also append an output for each item of
a batch and acknowledge the batch in the same step; outputs are items too. Some items fail at every
consumer, so that their keys are parked; operators let parked keys go on, or skip the item. In half
of the tests such an item becomes a dead letter instead, and operators seldom come first. In a third
of the tests the group has no order: each item is handed out for itself. The workload removes
nothing, so every item is acknowledged, skipped, parked or a dead letter in the end. In the end one
consumer holds a key of each range until the others have done everything else.
"""

import asyncio
import random
import zlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from ...client.consumer import AsyncConsumer
from ...client.group_batch import AsyncGroupBatch
from ...client.protocol.errors import LognodeError
from ...client.protocol.types import Ordering
from ..process import Process
from .append import Producer
from .parts import DEAD, Keys, text

GROUP: Final = "workers"
LEASE_MS: Final = 1_500
MAX_DELIVERIES: Final = 4
_ROLES: Final = ("producer", "consumer", "consumer", "operator", "producer", "consumer")
_HOLD_S: Final = 1.5
"""How long a consumer keeps its leases alive."""
_STALL_S: Final = (2.0, 4.5)
"""Pauses of a consumer, around the time at which its leases end."""
_KEYS_MAX: Final = 6
_AT_ONCE: Final = 3
"""The most batches of one `take`."""
_WAIT_S: Final = 1.0
"""An operation of a consumer ends after this time, with or without batches."""
_OUTPUT: Final = "+"
"""The last character of a key with outputs: the key follows that of the items, and is mostly in the
same range."""
_TRANSFORMS: Final = 0.2
"""The share of settles that are appends with acknowledgements."""
_POISON: Final = 150
"""One of so many items fails at every consumer."""
_DELAY_MS: Final = 800
_QUIET_S: Final = 6.0
"""A consumer that gets nothing for so long at the end has all: leases that others left are over."""
_DRAIN_S: Final = 60.0
_LOOK_S: Final = 1.0
_HOLD_MAX_S: Final = 30.0
"""How long a slow consumer holds its keys at the end, unless the others are done before."""
_ORDERINGS: Final[tuple[Ordering, ...]] = ("key", "key", "none")


class GroupWorkload:
    """A third of the processes produce, half of them consume, the others are operators."""

    def __init__(self, rng: random.Random) -> None:
        self.on_dead = rng.choice(("park", f"dead_letter:{DEAD}"))
        """What happens with an item that failed too often."""
        self.ordering = rng.choice(_ORDERINGS)
        """Whether the group hands out keys, or single items (`none`)."""
        self._keys = Keys(30, 40, rng)

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return _ROLES[slot % len(_ROLES)]

    def worker(self, slot: int, process: Process) -> "Producer | Consumer | Operator":
        """Return the worker of a new process in this slot."""
        role = self.role(slot)
        if role == "producer":
            return Producer(process, self._keys)
        if role == "operator":
            return Operator(process)
        is_slow = slot == _ROLES.index("consumer")
        return Consumer(process, is_slow=is_slow, on_dead=self.on_dead, ordering=self.ordering)


def fails_always(value: str | None) -> bool:
    """Whether no consumer can do this item."""
    return zlib.crc32((value or "").encode()) % _POISON == 0


class Consumer:
    """Takes batches, and settles those in hand in a random way and order."""

    def __init__(
        self, process: Process, *, is_slow: bool = False, on_dead: str = "park",
        ordering: Ordering = "key",
    ) -> None:  # fmt: skip
        self._process = process
        self._is_slow = is_slow
        self._on_dead, self._ordering = on_dead, ordering
        self._name = f"c{process.number}"
        self._outputs = 0
        self._keys_max, self._hold_s = _KEYS_MAX, _HOLD_S
        self._consumer: AsyncConsumer | None = None
        self._next: asyncio.Task[AsyncGroupBatch] | None = None
        self._held: list[AsyncGroupBatch] = []

    async def step(self) -> None:
        """Take or settle batches, stand still, or begin anew as another consumer."""
        rng = self._process.rng
        await self._process.turn()
        draw = rng.random()
        if draw < 0.01:
            await asyncio.sleep(rng.uniform(*_STALL_S))
        elif draw < 0.02:
            await self._end()
        elif not self._held or (len(self._held) < _KEYS_MAX and draw < 0.4):
            await self._take()
        elif rng.random() < _TRANSFORMS and (whole := self._whole()):
            await self._transform(rng.choice(whole))
        else:
            count = rng.randint(1, len(self._held))
            await self._settle([(batch, *self._drawn(batch)) for batch in self._some(count)])

    async def drain(self) -> None:
        """Acknowledge everything that comes, until nothing comes for longer than a lease lasts. A
        slow consumer holds keys before, so that the others finish without these."""
        if self._is_slow:
            await self._hold()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DRAIN_S
        quiet_since = loop.time()
        while loop.time() < deadline:
            if self._held:
                await self._settle([(batch, *_done(batch)) for batch in self._some(_KEYS_MAX)])
            answered = await self._take()
            if answered is None or answered["batches"]:
                quiet_since = loop.time()
            elif loop.time() - quiet_since > _QUIET_S:
                return

    async def close(self) -> None:
        """Leave the group, or crash: the leases of a crashed consumer end by themselves."""
        if self._process.rng.random() < 0.5:
            await self._process.close()
        await self._end()

    async def _hold(self) -> None:
        await self._end()
        self._keys_max, self._hold_s = 1, 2 * _HOLD_MAX_S
        deadline = asyncio.get_running_loop().time() + _HOLD_MAX_S
        while asyncio.get_running_loop().time() < deadline:
            await self._take()  # the key of another range, which this consumer has already
            keys = [batch.key.decode() for batch in self._held]
            looked = await self._process.call("hold", {"keys": keys}, self._rest(), writes=False)
            if looked and not looked["waiting"] and looked["in_flight"] <= len(keys):
                return

    async def _rest(self) -> dict[str, Any]:
        lag = await self._process.log.group(GROUP).lag()
        return {"waiting": lag.waiting, "in_flight": lag.in_flight}

    async def _end(self) -> None:
        self._held = []
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            self._next = None
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None

    async def _take(self) -> dict[str, Any] | None:
        asked = {"ordering": self._ordering}
        answered = await self._process.call("take", asked, self._batches(), writes=False)
        if answered is None:
            await self._end()  # its error cannot be retried; the next take is of another consumer
            await asyncio.sleep(_WAIT_S)
        return answered

    async def _batches(self) -> dict[str, Any]:
        if self._consumer is None:
            consumer = self._process.log.consume(
                GROUP, max_deliveries=MAX_DELIVERIES, lease_ms=LEASE_MS, on_dead=self._on_dead,
                ordering=self._ordering, keys_max=self._keys_max, hold_s=self._hold_s,
            )  # fmt: skip
            self._consumer = consumer
            await consumer.open()
        found: list[AsyncGroupBatch] = []
        while len(found) < _AT_ONCE:
            if self._next is None:
                self._next = asyncio.create_task(anext(self._consumer))
            # No cancellation after the timeout: a batch that was already taken would be lost.
            await asyncio.wait([self._next], timeout=0.0 if found else _WAIT_S)
            if not self._next.done():
                break
            done, self._next = self._next, None
            found.append(done.result())
        self._held += found
        return {"batches": [_told(batch) for batch in found]}

    def _some(self, count: int) -> list[AsyncGroupBatch]:
        """Return some of the batches in hand, each key once, or without an order each item once: a
        lost batch may come again."""
        batches = self._process.rng.sample(self._held, min(count, len(self._held)))
        in_order = self._ordering == "key"
        return list({
            (batch.key, 0 if in_order else batch.entries[0].seq): batch for batch in batches
        }.values())  # fmt: skip

    def _drawn(self, batch: AsyncGroupBatch) -> tuple[str, int]:
        """Draw what to do with a batch; of a batch whose first item fails always, nothing else."""
        what, through = _done(batch)
        draw = self._process.rng.random()
        if draw < 0.01:
            return "reject", batch.entries[0].seq
        if draw < 0.05:
            return "fail", 0
        if draw < 0.12:
            return "release", 0
        if draw < 0.2:
            return "extend", 0
        if what == "ack" and draw < 0.5:
            return what, self._process.rng.choice(
                [entry.seq for entry in batch.entries if entry.seq <= through]
            )
        return what, through

    def _whole(self) -> list[AsyncGroupBatch]:
        """Return the batches in hand of which each item can be done, and which have no outputs."""
        return [
            batch for batch in self._held
            if not batch.key.decode().endswith(_OUTPUT)
            and not any(fails_always(text(entry.value)) for entry in batch.entries)
        ]  # fmt: skip

    async def _transform(self, batch: AsyncGroupBatch) -> None:
        """Append an output for each item of a batch, and acknowledge the batch in the same step."""
        key, seqs = batch.key.decode(), [entry.seq for entry in batch.entries]
        records = []
        for _ in seqs:
            self._outputs += 1
            records.append([key + _OUTPUT, f"{self._name}-{self._outputs}"])
        acks = [[key, batch.token, seqs]]
        asked = {"producer": self._name, "records": records, "acks": acks}

        async def act() -> dict[str, Any]:
            made = [(to, value.encode()) for to, value in records]
            first = (await self._process.log.append_batch(made, acks=[batch])).seq
            return {"seqs": [None if first is None else first + n for n in range(len(made))]}

        # What is refused stays in hand: the two keys may be in different ranges for now.
        if await self._process.call("append", asked, act(), writes=True) is not None:
            self._held.remove(batch)

    async def _settle(self, acts: Sequence[tuple[AsyncGroupBatch, str, int]]) -> None:
        """Settle batches, all at once, as one operation."""
        # The last seq is that of the batch before the operation, which changes the batch.
        chosen = [(*each, each[0].entries[-1].seq) for each in acts]
        asked = {
            "items": [
                [what, batch.key.decode(), batch.token, through] for batch, what, through in acts
            ]
        }

        async def act() -> dict[str, Any]:
            calls = [self._act(*each) for each in acts]
            return {"refused": refused(await asyncio.gather(*calls, return_exceptions=True))}

        answered = await self._process.call("settle", asked, act(), writes=True)
        places = range(len(chosen)) if answered is None else answered["refused"]
        for place, (batch, what, through, last) in enumerate(chosen):
            keeps = what == "extend" or (what == "ack" and through < last)
            if place in places or not keeps:
                self._held.remove(batch)

    def _act(self, batch: AsyncGroupBatch, what: str, through: int) -> Awaitable[None]:
        if what == "ack":
            return batch.ack(through)
        if what == "reject":
            return batch.reject("by chance")
        if what == "extend":
            return batch.extend()
        error = "failed" if what == "fail" else None
        return batch.release(delay_ms=self._process.rng.choice((0, _DELAY_MS)), error=error)


class Operator:
    """Looks at the parked keys, and lets one of them go on, or skips its next item."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._group = process.log.group(GROUP)

    async def step(self) -> None:
        """Look; then decide about one parked key."""
        process = self._process
        await process.turn()
        looked = await process.call("look", {}, self._look(), writes=False)
        if looked is None or not looked["parked"]:
            await asyncio.sleep(_LOOK_S)
            return
        key, position = process.rng.choice(looked["parked"])
        await process.turn()
        if process.rng.random() < 0.5:
            asked = {"what": "retry", "key": key}
            await process.call("decide", asked, self._retry(key), writes=True)
        else:
            asked = {"what": "skip", "key": key, "through": position}
            await process.call("decide", asked, self._skip(key, position), writes=True)

    async def drain(self) -> None:
        """Look at the group until its consumers have had nothing to do for some time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DRAIN_S
        quiet_since = loop.time()
        while loop.time() < deadline:
            answered = await self._process.call("group", {}, self._state(), writes=False)
            if answered is None or _is_busy(answered):
                quiet_since = loop.time()
            elif loop.time() - quiet_since > _QUIET_S:
                return
            await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        """Do nothing: an operator holds nothing open except the client."""

    async def _look(self) -> dict[str, Any]:
        parked = []
        for row in (await self._group.parked())[:_KEYS_MAX]:
            async for entry in self._process.log.scan(row.key, start=row.position, limit=1):
                parked.append([row.key.decode(), entry.seq])
        return {"parked": parked}

    async def _retry(self, key: str) -> dict[str, Any]:
        await self._group.retry(key)
        return {}

    async def _skip(self, key: str, through: int) -> dict[str, Any]:
        await self._group.skip(key, through=through, why="an operator")
        return {}

    async def _state(self) -> dict[str, Any]:
        info, lag = await self._group.describe(), await self._group.lag()
        parked = await self._group.parked()
        return {
            "max_deliveries": info.max_deliveries, "on_dead": info.on_dead,
            "parked": [[row.key.decode(), row.position] for row in parked],
            "lag": {
                "entries": lag.entries, "waiting": lag.waiting, "in_flight": lag.in_flight,
                "parked": lag.parked,
            },
        }  # fmt: skip


def _is_busy(state: Mapping[str, Any]) -> bool:
    """Whether the group goes on by itself: consumers have something to do, or leaders to copy."""
    lag = state["lag"]
    copies = lag["parked"] and state["on_dead"] != "park"
    return bool(lag["waiting"] or lag["in_flight"] or copies)


def refused(results: Sequence[BaseException | None]) -> list[int]:
    """Return the places of the refused items of one operation.

    If the outcome of any item is unknown, raises its error: it decides the outcome of the
    operation.
    """
    places = []
    for place, error in enumerate(results):
        if error is None:
            continue
        if not isinstance(error, LognodeError) or error.outcome != "not_applied":
            raise error
        places.append(place)
    return places


def _done(batch: AsyncGroupBatch) -> tuple[str, int]:
    """Return what a consumer without bad luck does: `ack` up to the first item that fails always,
    or `fail` for this item."""
    through = 0
    for entry in batch.entries:
        if fails_always(text(entry.value)):
            break
        through = entry.seq
    return ("ack", through) if through else ("fail", 0)


def _told(batch: AsyncGroupBatch) -> list[Any]:
    entries = [[entry.seq, text(entry.value)] for entry in batch.entries]
    return [batch.key.decode(), batch.token, batch.deliveries, entries]
