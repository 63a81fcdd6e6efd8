"""Appends that acknowledge batches of a consumer, on real nodes: both happen, or neither."""

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from feature_level import raised
from metrics_page import metric

import lognode
from lognode import testing
from lognode.client.protocol.errors import InvalidArgument
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster

KEYS = 40
EACH = 60


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with raised(three) as found:
        yield found


def outputs(log: lognode.Log) -> Counter[bytes]:
    found = Counter(
        entry.value or b""
        for columns in log.scan_columns(prefix="out/")
        for entry in columns.entries()
    )
    return found


def appends_timed(three: LocalCluster) -> float:
    """How many appends the nodes have timed."""
    return sum(metric(node, "lognode_append_seconds_count") for node in three.nodes)


def test_an_append_acknowledges_batches_in_the_same_step(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("steps", split_at=[b"x"])
    other = client.create_log("others")
    log.append_many([("in/a", b"1"), ("in/a", b"2"), ("in/b", b"3"), ("z/c", b"4")])
    with log.consume("work", prefix="in/") as consumer:
        taken = [next(consumer), next(consumer)]
        got = {batch.key: batch for batch in taken}
        first, second = got[b"in/a"], got[b"in/b"]
        before = appends_timed(three)
        ack = log.append_batch([("out/a", b"1"), ("out/a", b"2")], acks=[first])
        assert appends_timed(three) == before + 1
        entries = list(log.scan("out/a"))
        assert [(each.seq, each.value) for each in entries] == [
            (ack.seq, b"1"), (ack.seq + 1, b"2"),
        ]  # fmt: skip
        assert (consumer.held, log.group("work").lag().entries) == (1, 1)
        with pytest.raises(InvalidArgument, match="settled before"):
            log.append_batch([("out/a", b"again")], acks=[first])
        with pytest.raises(lognode.BatchSpansRanges, match="named producer"):
            log.append_batch([("z/out", b"3")], acks=[second])
        with pytest.raises(InvalidArgument, match="append to the log of the batches"):
            other.append_batch([("out/b", b"3")], acks=[second])
        with lognode.Client(three.servers, timeout=60) as stranger:
            foreign = stranger.log("steps")
            with pytest.raises(InvalidArgument, match="client of the consumer"):
                foreign.append_batch([("out/b", b"3")], acks=[second])
        with pytest.raises(InvalidArgument, match="twice"):
            log.append_batch([("out/b", b"3")], acks=[second, second])
        log.group("work").reset("earliest", key="in/b")
        with pytest.raises(lognode.Fenced) as caught:
            log.append_batch([("out/b", b"3")], acks=[second])
        assert (caught.value.outcome, caught.value.key) == ("not_applied", b"in/b")
        assert log.latest("out/b") is None, "nothing is appended without the acknowledgement"
        again = next(consumer)
        assert (again.key, again.values) == (b"in/b", [b"3"])
        log.append("out/b", b"3")  # the producer of the log goes on
        log.append_batch([("out/b", b"4")], acks=[again])
        assert log.group("work").lag().entries == 0
    with log.consume("work", prefix="in/") as consumer:
        log.append("in/a", b"5")
        assert next(consumer).values == [b"5"]


def another_leads(client: lognode.Client, log: str, node: int) -> None:
    """Wait until another node leads the log."""
    testing.eventually(
        lambda: testing.leader_of(client, log) != node, what=f"another leader than node {node}"
    )


async def transform(servers: str, done: asyncio.Event, log: str) -> tuple[int, int]:
    """Copy entries from `in/` to `out/`; return how many appends succeeded, and how many have an
    unknown outcome."""
    succeeded = unknown = 0
    async with lognode.AsyncClient(servers, timeout=20) as client:
        own = client.log(log)
        async with own.consume("work", prefix="in/", lease_ms=4_000, keys_max=8) as consumer:
            stop = asyncio.create_task(done.wait())
            while not done.is_set():
                take = asyncio.ensure_future(anext(consumer))
                await asyncio.wait((take, stop), return_when=asyncio.FIRST_COMPLETED)
                if not take.done():
                    take.cancel()
                    await asyncio.gather(take, return_exceptions=True)
                    break
                batch = take.result()
                out = b"out/" + batch.key.removeprefix(b"in/")
                records = [(out, value) for value in batch.values]
                try:
                    await own.append_batch(records, acks=[batch], timeout=3.0)
                    succeeded += 1
                except (lognode.Fenced, lognode.Unavailable, lognode.Timeout) as error:
                    unknown += error.outcome == "unknown"
    return succeeded, unknown


def test_each_input_has_one_output_though_leaders_are_killed(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("copies")
    inputs = [(b"in/%02d" % key, b"%d.%d" % (key, n)) for n in range(EACH) for key in range(KEYS)]

    async def run() -> list[tuple[int, int]]:
        done = asyncio.Event()
        tasks = [asyncio.create_task(transform(three.servers, done, "copies")) for _ in range(3)]
        try:
            async with lognode.AsyncClient(three.servers, timeout=60) as own:
                feed = own.log("copies")
                for at in range(0, len(inputs), KEYS):
                    await feed.append_many(inputs[at : at + KEYS])
                    if at in (10 * KEYS, 35 * KEYS):
                        number = testing.leader_of(client, "copies")
                        leader = three.nodes[number - 1]
                        leader.kill()
                        await asyncio.to_thread(another_leads, client, "copies", number)
                        leader.start()
                        await asyncio.to_thread(leader.wait_ready)
                async with asyncio.timeout(90):
                    while (await feed.group("work").lag()).entries:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
        finally:
            done.set()
            told = await asyncio.gather(*tasks, return_exceptions=True)
        for each in told:
            if isinstance(each, BaseException):
                raise each
        return [each for each in told if isinstance(each, tuple)]

    told = asyncio.run(run())
    print(f"appends that succeeded, and with unknown outcome: {told}")
    found = outputs(log)
    assert not {value for value, count in found.items() if count > 1}, "an output is there twice"
    assert found == Counter(value for _, value in inputs)
    for key in range(KEYS):
        values = [entry.value for entry in log.scan(b"out/%02d" % key)]
        assert values == [b"%d.%d" % (key, n) for n in range(EACH)], "the order of a key"
