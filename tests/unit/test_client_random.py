"""Random histories: faults of every kind, and what the SDK said held against what is.

Of each record: acknowledged means stored once, at the seq of its Ack; not_applied means absent;
unknown means at most once. Per key the stored order is that of submission. An append with a
condition stands right behind the entry that it expected (S9).
"""

import asyncio
import os
import random

import pytest
from fake_cluster import Drop, FakeCluster, FakeNode, fake_cluster

import lognode
from lognode import AsyncClient, AsyncLog
from lognode.client.accepting.request import Request
from lognode.client.protocol.errors import LognodeError, NotLeader, Overloaded, Sealed, Unavailable

HISTORIES = 24
KEYS = [b"%c" % letter for letter in range(97, 123)]
Results = dict[bytes, lognode.Ack | LognodeError]


class Chaos:
    """Disturbs a fraction of the appends, and the ranges meanwhile."""

    def __init__(self, cluster: FakeCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.rate = rng.choice((0.05, 0.2, 0.5))
        self.happened: list[str] = []

    def fault(self, node: FakeNode, request: Request, when: str) -> None:
        if when == "metadata" or self.rng.random() > self.rate:
            return
        kind = self.rng.choice(("drop", "refuse", "unknown", "move", "split"))
        self.happened.append(f"{kind} {when}")
        known = self.cluster.range_of(self.rng.choice(KEYS))
        if kind == "move":
            self.cluster.lead(known, self.rng.choice(known.members))
        elif kind == "split" and len(self.cluster.ranges) < 8:
            at = self.rng.choice(KEYS)
            if at != known.start and known.contains(at):
                self.cluster.split(at, quietly=self.rng.random() < 0.5)
                raise Drop  # the request named a generation that has just ended
        elif kind == "unknown" and when == "after":
            raise Unavailable("the leader changed", outcome="unknown")
        elif kind == "refuse" and when == "before":
            raise self.rng.choice((
                Overloaded("full", retry_after=0.002), Sealed("ended"),
                NotLeader("not here", hint=None),
            ))  # fmt: skip
        elif kind == "drop":
            raise Drop


async def append_in_turn(log: AsyncLog, rng: random.Random, results: Results) -> None:
    for n in range(40):
        value = b"turn %d" % n
        try:
            results[value] = await log.append(rng.choice(KEYS), value, timeout=rng.choice((0.1, 3)))
        except LognodeError as error:
            results[value] = error


async def append_many(log: AsyncLog, rng: random.Random, results: Results) -> None:
    for turn in range(4):
        records = [(rng.choice(KEYS), b"many %d %d" % (turn, i)) for i in range(50)]
        try:
            acks = await log.append_many(records, timeout=3)
            results.update(zip((value for _, value in records), acks, strict=True))
        except lognode.PartialFailure as failure:
            for (_, value), ack, error in zip(records, failure.acks, failure.errors, strict=True):
                results[value] = ack or error
        except LognodeError as error:
            results.update((value, error) for _, value in records)


async def produce(log: AsyncLog, rng: random.Random, results: Results) -> None:
    producer = log.producer(linger_ms=rng.choice((0, 2)), timeout=rng.choice((0.1, 5)))
    tickets = {}
    for n in range(300):
        value = b"produced %d" % n
        try:
            tickets[value] = await producer.submit(rng.choice(KEYS), value)
        except LognodeError as error:
            results[value] = error
        if rng.random() < 0.1:
            await asyncio.sleep(0.001)
    delivery = await producer.close()
    for value, ticket in tickets.items():
        try:
            results[value] = await ticket
        except LognodeError as error:
            results[value] = error
    acked = sum(isinstance(results[value], lognode.Ack) for value in tickets)
    assert delivery.acknowledged == acked
    assert delivery.acknowledged + delivery.undelivered == len(tickets)


async def contend(
    log: AsyncLog, rng: random.Random, results: Results, expected: dict[bytes, int]
) -> None:
    """Callers of a few keys, each with the last seq that it has heard of."""

    async def caller(number: int) -> None:
        known: dict[bytes, int] = {}
        for n in range(30):
            key, value = rng.choice(KEYS[::6]), b"contended %d %d" % (number, n)
            expected[value] = known.get(key, 0)
            try:
                ack = await log.append(
                    key,
                    value,
                    expect=expected[value] or lognode.ABSENT,
                    timeout=rng.choice((0.1, 3)),
                )
                results[value] = ack
                known[key] = ack.seq or 0
            except LognodeError as error:
                results[value] = error
                if isinstance(error, lognode.SequenceMismatch):
                    known[key] = error.fields["actual"]

    await asyncio.gather(*map(caller, range(8)))


def check_expected(cluster: FakeCluster, expected: dict[bytes, int]) -> None:
    for key in KEYS:
        before = 0
        for entry in cluster.range_of(key).entries:
            if entry.key == key:
                wanted = expected.get(entry.value or b"", before)
                assert wanted == before, f"{entry.value!r} is behind {before}, not {wanted}"
                before = entry.seq


async def history(seed: int) -> None:
    rng = random.Random(seed)
    async with fake_cluster() as cluster:
        cluster.create("log", (b"i", b"r"))
        chaos = Chaos(cluster, rng)
        cluster.faults.append(chaos.fault)
        all_results: list[Results] = [{}, {}, {}]
        contended: Results = {}
        expected: dict[bytes, int] = {}
        async with AsyncClient(cluster.address, timeout=5.0) as client:
            log = client.log("log")
            works = (append_in_turn, append_many, produce)
            await asyncio.gather(
                *(work(log, rng, into) for work, into in zip(works, all_results, strict=True)),
                contend(log, rng, contended, expected),
            )
            cluster.faults.clear()
        assert any(isinstance(result, lognode.Ack) for result in contended.values())
        check_expected(cluster, expected)
        each_alone = [{value: result} for value, result in contended.items()]
        check(cluster, [*all_results, *each_alone])


def check(cluster: FakeCluster, all_results: list[Results]) -> None:
    stored: dict[bytes, list[int]] = {}
    for entry in cluster.entries():
        stored.setdefault(entry.value or b"", []).append(entry.seq)
    for results in all_results:
        order = {value: at for at, value in enumerate(results)}
        for value, result in results.items():
            seqs = stored.pop(value, [])
            if isinstance(result, lognode.Ack):
                assert len(seqs) == 1, f"{value!r}: {result} is stored {len(seqs)} times"
                assert result.seq in (seqs[0], None)
            elif result.outcome == "not_applied":
                assert seqs == [], f"{value!r}: {result!r} is stored"
            else:
                assert len(seqs) <= 1, f"{value!r} is stored {len(seqs)} times"
        acked = {value for value, result in results.items() if isinstance(result, lognode.Ack)}
        for key in KEYS:
            values = [v for v in cluster.values(key) if v in acked]
            assert values == sorted(values, key=lambda v: order[v or b""]), key
    assert stored == {}, "stored, but never sent"


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(3))
def test_S4_S8_S9_S11_random_histories(batch: int) -> None:
    first = int.from_bytes(os.urandom(3), "big")
    seeds = range(first, first + HISTORIES // 3)
    print("seeds", seeds)

    async def main() -> None:
        results = await asyncio.gather(*map(history, seeds), return_exceptions=True)
        for seed, result in zip(seeds, results, strict=True):
            if isinstance(result, BaseException):
                raise AssertionError(f"seed {seed}") from result

    asyncio.run(main())
