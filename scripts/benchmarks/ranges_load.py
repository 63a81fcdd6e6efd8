"""The loads of `scripts/bench ranges`, each in a process of its own: producers, and followers.

    python -m benchmarks.ranges_load produce|follow SERVERS LOG LOAD

The process prints `ready` once all connections are open, goes on until a line comes in on standard
input, and prints its figures as JSON. The line to the producers is empty. The line to the followers
says how many records each key has; the followers wait for the missing records.
"""

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import lognode
from lognode.client.bench.garbage import few_collections

from .stamps import Stamps

_TIMEOUT_S = 60.0
_OPENED_AT_ONCE = 64
_LINE_BYTES_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class RangesLoad:
    """The options of a load.

    `producers` append `rate` records a second together, in calls of `batch` records. Each producer
    has neighbouring keys of its own, and takes them one after the other. `followers` follow one key
    each, as far from each other as possible.
    """

    producers: int = 100
    followers: int = 1_000
    rate: float = 20_000.0
    batch: int = 50
    keys: int = 20_000
    value_bytes: int = 128
    step: int = 1

    def stamps(self) -> Stamps:
        """Return the stamps of its keys and values; made anew, with megabytes of digits."""
        return Stamps(self.keys, self.value_bytes, self.step)

    def own(self, producer: int) -> range:
        """Return the keys of a producer."""
        return range(self.keys * producer // self.producers,
                     self.keys * (producer + 1) // self.producers)  # fmt: skip

    @property
    def followed(self) -> list[int]:
        """Return the keys that are followed."""
        return [self.keys * n // self.followers for n in range(self.followers)]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(slots=True)
class _Times:
    due: "array[float]" = field(default_factory=lambda: array("d"))
    ended: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, due: float) -> None:
        self.due.append(due)
        self.ended.append(time.perf_counter())

    def to_json(self) -> dict[str, list[float]]:
        return {"due": [round(at, 6) for at in self.due],
                "ended": [round(at, 6) for at in self.ended]}  # fmt: skip


class Producers:
    """Open loops: a call is made when it is due, whatever the outcome of earlier calls."""

    def __init__(self, log: lognode.AsyncLog, load: RangesLoad) -> None:
        self._log = log
        self._load = load
        self._stamps = load.stamps()
        self._counts = [0] * load.keys
        self._times = _Times()
        self._over = False

    async def run(
        self, ready: Callable[[], None], told: Callable[[], Awaitable[str]]
    ) -> dict[str, Any]:
        """Append until told to stop; then wait until everything is acknowledged.

        Raises the errors of producers.
        """
        load = self._load
        begun = asyncio.get_running_loop().create_future()
        opened = [asyncio.Event() for _ in range(load.producers)]
        async with asyncio.TaskGroup() as group:
            for number, event in enumerate(opened):
                group.create_task(self._produce(number, event, begun))
            for event in opened:
                await event.wait()
            ready()
            begun.set_result(time.perf_counter())
            await told()
            self._over = True
        return {"counts": self._counts, **self._times.to_json()}

    async def _produce(
        self, number: int, opened: asyncio.Event, begun: "asyncio.Future[float]"
    ) -> None:
        load, own, at = self._load, self._load.own(number), 0
        every_s = load.batch * load.producers / load.rate
        async with (
            self._log.producer(linger_ms=0, timeout=_TIMEOUT_S) as producer,
            asyncio.TaskGroup() as calls,
        ):
            opened.set()
            due = await begun + every_s * number / load.producers
            while not self._over:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                keys = [own[n % len(own)] for n in range(at, at + load.batch)]
                tickets = [await self._submit(producer, key, due) for key in keys]
                calls.create_task(self._acknowledged(tickets, due))
                at, due = at + load.batch, due + every_s

    async def _submit(
        self, producer: lognode.AsyncProducer, number: int, due: float
    ) -> lognode.AsyncTicket:
        key, nth = self._stamps.key(number), self._counts[number]
        self._counts[number] += 1
        return await producer.submit(key, self._stamps.value(key, nth, due))

    async def _acknowledged(self, tickets: Sequence[lognode.AsyncTicket], due: float) -> None:
        for ticket in tickets:
            await ticket
        self._times.add(due)


class Followers:
    """Followers that each get every record of their key once, in order, from the first on."""

    def __init__(self, log: lognode.AsyncLog, load: RangesLoad) -> None:
        self._log = log
        self._load = load
        self._stamps = load.stamps()
        self._had = dict.fromkeys(load.followed, 0)
        self._times = _Times()
        self._opening = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def run(
        self, ready: Callable[[], None], told: Callable[[], Awaitable[str]]
    ) -> dict[str, Any]:
        """Follow until told how many records each key has; then wait for the rest.

        Raises CorruptData when a record is missing, wrong, out of order, or arrives twice.
        """
        opened = {number: asyncio.Event() for number in self._had}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(number, opened[number])) for number in opened]
            for event in opened.values():
                await event.wait()
            ready()
            counts = json.loads(await told())
            await self._drained({number: counts[number] for number in self._had})
            for task in tasks:
                task.cancel()
        return {"delivered": sum(self._had.values()), **self._times.to_json()}

    async def _follow(self, number: int, opened: asyncio.Event) -> None:
        key = self._stamps.key(number)
        feed = self._log.follow(keys=[key], start="earliest", timeout=_TIMEOUT_S)
        try:
            async with self._opening:
                await feed.open()
            opened.set()
            async for entry in feed.entries():
                if entry.key != key:
                    raise lognode.CorruptData(f"a follower of {key!r} was given {entry.key!r}")
                self._times.add(self._stamps.due(key, self._had[number], entry.value))
                self._had[number] += 1
        finally:
            await feed.close()

    async def _drained(self, counts: dict[int, int]) -> None:
        deadline = time.perf_counter() + _TIMEOUT_S
        while self._had != counts:
            if time.perf_counter() > deadline:
                had, due = sum(self._had.values()), sum(counts.values())
                raise lognode.CorruptData(
                    f"{had} records were delivered of {due} within {_TIMEOUT_S:g} s"
                )
            await asyncio.sleep(0.01)


async def run(role: str, servers: str, log: str, load: RangesLoad) -> dict[str, Any]:
    """Return the figures of one process."""
    async with lognode.AsyncClient(servers, timeout=_TIMEOUT_S) as client:
        made = (Producers if role == "produce" else Followers)(client.log(log), load)
        try:
            with few_collections():
                return await made.run(lambda: print("ready", flush=True), _line)
        except BaseExceptionGroup as found:
            raise _first(found) from None


async def _line() -> str:
    """Return the next line of standard input.

    Raises Unavailable when the starting process is gone.
    """
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    if not (line := await reader.readline()):
        raise lognode.Unavailable("who started this load is gone")
    return line.decode()


def _first(found: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def main(role: str, servers: str, log: str, load: str) -> None:
    """Run the load and print the figures."""
    print(json.dumps(asyncio.run(run(role, servers, log, RangesLoad(**json.loads(load))))))


if __name__ == "__main__":
    main(*sys.argv[1:])
