"""Consumer groups on real nodes: leaders hand out keys, and are killed; operators decide."""

import asyncio
import json
import urllib.request
from collections import defaultdict
from collections.abc import Iterator

import pytest
from feature_level import raised

import lognode
from lognode import testing
from lognode.client.protocol.errors import NotFound
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster

KEYS = [b"a-%03d" % n for n in range(50)] + [b"z-%03d" % n for n in range(50)]
EACH = 20
LONG_MS = 30_000
"""A lease that outlasts the election, so that consumers keep their keys through it."""


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    logs = {name: [b"m"] for name in ("orders", "kills", "decided")}
    with raised(three, logs=logs) as found:
        yield found


def append(client: lognode.Client, log: str) -> None:
    for n in range(EACH):
        client.log(log).append_many([(key, b"%d" % n) for key in KEYS])


class Done:
    """What consumers have acknowledged: each entry at most once, in the order of its key."""

    def __init__(self) -> None:
        self.of: dict[bytes, list[int]] = defaultdict(list)
        self._unsure: dict[bytes, set[int]] = defaultdict(set)

    def add(self, batch: lognode.AsyncGroupBatch) -> None:
        numbers = _numbers(batch)
        self._add_unsure(batch.key, until=numbers[0])
        self.of[batch.key] += numbers

    def unsure(self, batch: lognode.AsyncGroupBatch) -> None:
        """An acknowledgement has no outcome: the entries are done unless they come again."""
        self._unsure[batch.key] |= set(_numbers(batch))

    def is_complete(self) -> bool:
        return all(
            self.of[key] + sorted(self._unsure[key] - set(self.of[key])) == list(range(EACH))
            for key in KEYS
        )

    def _add_unsure(self, key: bytes, until: int) -> None:
        done = self.of[key]
        while len(done) < until and len(done) in self._unsure[key]:
            done.append(len(done))


def _numbers(batch: lognode.AsyncGroupBatch) -> list[int]:
    return [int(value or b"") for value in batch.values]


async def consume(log: lognode.AsyncLog, done: Done, group: str, lease_ms: int = 2_000) -> None:
    async with log.consume(group, lease_ms=lease_ms) as consumer:
        async for batch in consumer:
            try:
                await batch.ack()
                done.add(batch)
            except lognode.Unavailable:
                done.unsure(batch)
            except lognode.Fenced:
                pass


async def until(done: Done, tasks: list[asyncio.Task[None]]) -> None:
    try:
        async with asyncio.timeout(90):
            while not done.is_complete():
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_G1_G2_G3_four_consumers_ack_each_entry_once_and_in_order(
    three: LocalCluster, client: lognode.Client
) -> None:
    append(client, "orders")
    done = Done()

    async def run() -> None:
        async with lognode.AsyncClient(three.servers, timeout=60) as own:
            log = own.log("orders")
            tasks = [asyncio.create_task(consume(log, done, "billing")) for _ in range(4)]
            await until(done, tasks)
            lag = await log.group("billing").lag()
            assert (lag.entries, lag.parked) == (0, 0)

    asyncio.run(run())
    assert done.is_complete()
    numbers = [number for key in KEYS for number in done.of[key]]
    assert len(numbers) == EACH * len(KEYS)


def test_G3_G4_the_next_leader_goes_on_where_a_killed_leader_stopped(
    three: LocalCluster, client: lognode.Client
) -> None:
    append(client, "kills")
    done = Done()
    leader = testing.leader_of(client, "kills")

    async def run() -> None:
        async with lognode.AsyncClient(three.servers, timeout=60) as own:
            log = own.log("kills")
            tasks = [asyncio.create_task(consume(log, done, "billing", LONG_MS)) for _ in range(2)]
            while sum(map(len, done.of.values())) < 100:  # noqa: ASYNC110  no event to wait for
                await asyncio.sleep(0.01)
            three.nodes[leader - 1].kill()
            await until(done, tasks)
            sure = sum(map(len, done.of.values()))
            assert sure > 0.9 * EACH * len(KEYS), "two acknowledgements may have no outcome"

    try:
        asyncio.run(run())
    finally:
        three.nodes[leader - 1].start()
        three.nodes[leader - 1].wait_ready()


def test_operators_retry_skip_and_reset_and_a_deleted_group_is_unknown(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.log("decided")
    log.append_many([(b"a", b"1"), (b"a", b"2"), (b"z", b"3")])

    async def run() -> None:
        async with lognode.AsyncClient(three.servers, timeout=60) as own:
            log = own.log("decided")
            async with log.consume("work", max_deliveries=1, lease_ms=30_000) as consumer:
                got = {}
                async for batch in consumer:
                    got[batch.key] = batch
                    if len(got) == 2:
                        break
                await got[b"a"].release(error="broken")
                await got[b"z"].ack()
                group = log.group("work")
                (parked,) = await group.parked()
                assert (parked.key, parked.error, parked.deliveries) == (b"a", "broken", 1)
                lag = await group.lag()
                assert (lag.entries, lag.parked) == (2, 1)
                await group.skip(b"a")
                async for batch in consumer:
                    assert (batch.key, batch.values) == (b"a", [b"2"])
                    await batch.ack()
                    break
                await group.reset("earliest")
                seen = set()
                async for batch in consumer:
                    seen.add((batch.key, *batch.values))
                    await batch.ack()
                    if sum(len(each) - 1 for each in seen) == 3:
                        break
                history = await group.history()
                assert {"parked", "skipped", "reset"} <= {each.what for each in history}
                await group.delete()
            with pytest.raises(NotFound):
                await group.lag()

    asyncio.run(run())


def test_status_and_metrics_show_what_leaders_hand_out(
    three: LocalCluster, client: lognode.Client
) -> None:
    client.create_log("shown", exist_ok=True)
    client.log("shown").append_many([(b"a", b"1"), (b"b", b"2")])

    def told(name: str) -> int:
        found = 0
        for node in three.nodes:
            with urllib.request.urlopen(f"http://{node.http}/status.json", timeout=10) as answer:
                found += json.load(answer)["consumer_groups"][name]
        return found

    async def run() -> None:
        async with lognode.AsyncClient(three.servers, timeout=60) as own:
            before = await asyncio.to_thread(told, "in_flight")
            async with own.log("shown").consume("seen") as consumer:
                async for batch in consumer:
                    assert batch.values
                    if consumer.held >= 1:
                        break
                assert await asyncio.to_thread(told, "in_flight") > before
                assert await asyncio.to_thread(told, "consumers") >= 1

    asyncio.run(run())
    pages = [
        urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10).read().decode()
        for node in three.nodes
    ]
    assert all('lognode_consumer_groups{what="in_flight"}' in page for page in pages)
