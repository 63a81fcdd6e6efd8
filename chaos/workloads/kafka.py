"""`kafka`: clients of Kafka's protocol, through the nodes' door for them.

Idempotent producers send unique values to partitions, several at once, with acknowledgements of a
majority. Consumers with assigned partitions read from an offset of their own on, and begin anew at
random. Members of a group share the partitions, commit what they have consumed, and leave; so the
group is rebalanced again and again. Watchers ask for the watermarks and the committed offsets. In
the end the members consume until nothing comes any more, and a new consumer reads everything.

An append of this workload has the partition as its key, and offsets as seqs.
"""

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from ..process import Process
from .parts import Idle

if TYPE_CHECKING:
    from .kafka_clients import KafkaConsumer, KafkaProducer

PARTITIONS: Final = 6
GROUP: Final = "workers"
_ROLES: Final = ("producer", "member", "assigned", "producer", "member", "watcher")
_MOST: Final = 30
"""Records that a consumer takes at once."""
_TAKE_S: Final = 1.0
_QUIET_S: Final = 8.0
"""A member that gets nothing for so long at the end has all: longer than a rebalance takes."""
_DRAIN_S: Final = 90.0
_READ_S: Final = 60.0
_PAUSE_S: Final = 0.5


class KafkaWorkload:
    """A third each of the processes produce and are members of the group; a sixth each have
    partitions assigned, and watch."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def role(self, slot: int) -> str:
        """Return a word for the work of processes in this slot."""
        return _ROLES[slot % len(_ROLES)]

    def worker(self, slot: int, process: Process) -> "Sender | Member | Assigned | Watcher":
        """Return the worker of a new process in this slot."""
        role = self.role(slot)
        if role == "producer":
            return Sender(process)
        if role == "member":
            return Member(process)
        return Assigned(process) if role == "assigned" else Watcher(process)


def _producer(process: Process) -> "KafkaProducer":
    # The library of Kafka clients comes with the extra `chaos`; other workloads do without.
    from .kafka_clients import KafkaProducer

    rng = process.rng
    more = {
        "linger.ms": rng.choice((0, 5, 20)), "batch.num.messages": rng.choice((1, 3, 10)),
        "request.timeout.ms": rng.choice((1_000, 3_000)),
        "compression.type": rng.choice(("none", "gzip", "zstd")),
    }  # fmt: skip
    return KafkaProducer(process.kafka, process.timeout_s, more)


def _consumer(process: Process, group: str, *, tells_ends: bool = False) -> "KafkaConsumer":
    from .kafka_clients import KafkaConsumer

    return KafkaConsumer(process.kafka, group, tells_ends=tells_ends)


class Sender(Idle):
    """Sends unique values. A producer that does not know the outcome of a record is replaced."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._count = 0
        self._made = 0
        self._producer: KafkaProducer | None = None

    async def step(self) -> None:
        """Send some records to some partitions."""
        process, rng = self._process, self._process.rng
        await process.turn()
        if self._producer is None:
            self._made += 1
            self._producer = _producer(process)
        some = rng.sample(range(PARTITIONS), rng.choice((1, 1, 2)))
        records = []
        for _ in range(rng.choice((1, 2, 5, 12))):
            self._count += 1
            records.append((rng.choice(some), f"p{process.number}-{self._count}"))
        asked = {
            "producer": f"p{process.number}/{self._made}",
            "records": [[str(partition), value] for partition, value in records],
        }
        answered = await process.call("append", asked, self._producer.send(records), writes=True)
        if answered is None or answered["unsure"] or "broken" in answered:
            await self._renew()

    async def _renew(self) -> None:
        if self._producer is not None:
            await self._producer.close()
            self._producer = None

    async def close(self) -> None:
        """End the producer."""
        await self._renew()


class Member:
    """Consumes as a member of the group, and commits."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._consumer: KafkaConsumer | None = None
        self._positions: dict[int, int] = {}
        """The position in each partition of which the member has consumed records."""

    async def step(self) -> None:
        """Consume and commit; seldom leave the group, or stand still for a moment."""
        rng = self._process.rng
        await self._process.turn()
        draw = rng.random()
        if draw < 0.01:
            await self._leave()
        elif draw < 0.03:
            await asyncio.sleep(rng.uniform(0.5, 2.0))
        elif draw < 0.6 or not self._positions:
            await self._consume()
        else:
            await self._commit()

    async def drain(self) -> None:
        """Consume and commit everything, until nothing comes for longer than a rebalance takes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DRAIN_S
        quiet_since = loop.time()
        while loop.time() < deadline and loop.time() - quiet_since < _QUIET_S:
            answered = await self._consume()
            if answered is None or answered["events"]:
                quiet_since = loop.time()
            if self._positions:
                await self._commit()

    async def _consume(self) -> dict[str, Any] | None:
        answered = await self._process.call("consume", {"group": GROUP}, self._take(), writes=False)
        for event in [] if answered is None else answered["events"]:
            if event[0] in ("assign", "revoke"):
                self._positions = {}
            else:
                partition, offset, _ = event
                self._positions[partition] = offset + 1
        if answered is None:
            await self._leave()
        return answered

    async def _take(self) -> dict[str, Any]:
        if self._consumer is None:
            self._consumer = _consumer(self._process, GROUP)
            await self._consumer.subscribe()
        return await self._consumer.consume(_TAKE_S, self._process.rng.randint(1, _MOST))

    async def _commit(self) -> None:
        places = sorted(self._positions.items())
        self._positions = {}
        asked = {"group": GROUP, "offsets": [list(place) for place in places]}
        assert self._consumer is not None

        async def act(consumer: "KafkaConsumer") -> dict[str, Any]:
            await consumer.commit(places)
            return {}

        await self._process.call("commit", asked, act(self._consumer), writes=False)

    async def _leave(self) -> None:
        self._positions = {}
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()

    async def close(self) -> None:
        """Leave the group."""
        await self._leave()


class Assigned(Idle):
    """Consumes partitions that it chooses, from an offset on that it chooses."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._consumer: KafkaConsumer | None = None
        self._seen: dict[int, list[int]] = {}
        """Offsets of each partition at which to begin again."""

    async def step(self) -> None:
        """Consume, or choose other partitions and offsets."""
        process, rng = self._process, self._process.rng
        await process.turn()
        if self._consumer is None or rng.random() < 0.08:
            await self._choose()
            return
        consuming = self._consumer.consume(_TAKE_S, rng.randint(1, _MOST))
        answered = await process.call("consume", {"group": None}, consuming, writes=False)
        for partition, offset, _ in [] if answered is None else answered["events"]:
            self._seen.setdefault(partition, [0]).append(offset + 1)
        if answered is None:
            await self.close()

    async def _choose(self) -> None:
        rng = self._process.rng
        if self._consumer is None:
            self._consumer = _consumer(self._process, "none")
        some = rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS))
        places = [(at, rng.choice(self._seen.get(at, [0])[-200:])) for at in some]

        async def act(consumer: "KafkaConsumer") -> dict[str, Any]:
            await consumer.assign(places)
            return {}

        asked = {"places": [list(place) for place in places]}
        done = await self._process.call("assign", asked, act(self._consumer), writes=False)
        if done is None:
            await self.close()

    async def close(self) -> None:
        """End the consumer."""
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()


class Watcher(Idle):
    """Asks for watermarks and committed offsets."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._consumer = _consumer(process, GROUP)

    async def step(self) -> None:
        """Ask for one of both."""
        process = self._process
        await process.turn()
        if process.rng.random() < 0.5:
            await process.call("offsets", {}, self._ends(), writes=False)
        else:
            await process.call("committed", {"group": GROUP}, self._committed(), writes=False)
        await asyncio.sleep(_PAUSE_S)

    async def drain(self) -> None:
        """Ask for the watermarks and the committed offsets until both questions have an answer. On
        a slow machine the faults can leave every earlier question without an answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DRAIN_S
        asks = {"offsets": ({}, self._ends), "committed": ({"group": GROUP}, self._committed)}
        while asks and loop.time() < deadline:
            for f, (asked, ask) in list(asks.items()):
                if await self._process.call(f, asked, ask(), writes=False) is not None:
                    del asks[f]
            await asyncio.sleep(_PAUSE_S)

    async def _ends(self) -> dict[str, Any]:
        return {"ends": await self._consumer.ends(PARTITIONS)}

    async def _committed(self) -> dict[str, Any]:
        return {"offsets": await self._consumer.committed(PARTITIONS)}

    async def close(self) -> None:
        """End the consumer."""
        await self._consumer.close()


async def read_topic(process: Process) -> None:
    """Run one `final` operation: a new consumer reads every partition from its begin to its end.
    Where the last record is lost, the consumer says that nothing more comes up to the end."""
    consumer = _consumer(process, GROUP, tells_ends=True)

    async def act() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READ_S
        ends = await consumer.ends(PARTITIONS)
        committed = await consumer.committed(PARTITIONS)
        await consumer.assign([(int(partition), low) for partition, (low, _) in ends.items()])
        keys: dict[str, list[list[Any]]] = {partition: [] for partition in ends}
        left = {partition for partition, (low, high) in ends.items() if low < high}
        while left and loop.time() < deadline:
            taken = await consumer.consume(_TAKE_S, 1_000)
            for partition, offset, value in taken["events"]:
                keys[str(partition)].append([offset, value])
            left -= {at for at in left if consumer.reached(at) >= ends[at][1]}
            left -= {at for at in left if keys[at] and keys[at][-1][0] + 1 >= ends[at][1]}
        return {"keys": keys, "ends": ends, "offsets": committed, "left": sorted(left)}

    try:
        await process.call("final", {}, act(), writes=False)
    finally:
        await consumer.close()
