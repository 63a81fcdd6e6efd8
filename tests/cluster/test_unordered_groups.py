"""Groups without an order on real nodes: many consumers share the entries of one key."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from feature_level import raised

import lognode
from lognode import testing
from lognode.client.protocol.errors import Conflict, InvalidArgument
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with raised(three) as found:
        yield found


def test_G1_G5_consumers_share_a_key_and_a_failing_entry_stops_no_other(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("queue")
    log.append_many([("k", b"%d" % n) for n in range(6)])
    group = log.group("work")
    with log.consume("work", ordering="none", max_deliveries=2, keys_max=3) as one:
        assert one.group.ordering == "none"
        with log.consume("work", keys_max=3) as other:
            batches = [next(each) for each in (one, other) for _ in range(3)]
            assert {batch.key for batch in batches} == {b"k"}
            by_value = {batch.values[0]: batch for batch in batches}
            assert by_value.keys() == {b"%d" % n for n in range(6)}
            assert group.lag().in_flight == 6
            for value in (b"5", b"1", b"2", b"4"):
                by_value[value].ack()
            with pytest.raises(InvalidArgument, match="settled before"):
                by_value[b"1"].ack()
            by_value[b"0"].reject("broken")
            by_value[b"3"].extend()
        # Leaving gives back what is not settled, without a failure.
        batch = by_value[b"3"] if by_value[b"3"] in batches[:3] else next(one)
        assert (batch.values, batch.deliveries) == ([b"3"], 1)
        batch.release(error="later")
        batch = next(one)
        assert (batch.values, batch.deliveries) == ([b"3"], 2)
        batch.ack()
        log.append("k", b"6")
        batch = next(one)
        assert batch.values == [b"6"], "the parked entry stops no other"
        batch.ack()
    (row,) = group.parked()
    first = next(log.scan("k", limit=1)).seq
    assert (row.key, row.error, row.position) == (b"k", "broken", first)
    lag = group.lag()
    assert (lag.entries, lag.parked, lag.waiting) == (1, 1, 0)
    with pytest.raises(InvalidArgument, match="no position of a single key"):
        group.reset("earliest", key="k")
    with pytest.raises(Conflict, match="ordering 'none'"):
        log.consume("work", ordering="key").open()
    group.retry("k")
    with log.consume("work") as consumer:
        batch = next(consumer)
        assert (batch.values, batch.deliveries) == ([b"0"], 1)
        batch.reject("again")
    assert group.skip("k", why="known") == row.position
    assert group.lag().entries == 0
    assert [each.what for each in group.history()] == ["rejected", "retried", "rejected", "skipped"]
    group.reset("earliest")
    assert group.lag().entries == 7


def test_dead_letters_and_outputs_of_single_entries(
    three: LocalCluster, client: lognode.Client
) -> None:
    log, dead = client.create_log("entries"), client.create_log("entries-dead")
    log.append_many([("k", b"%d" % n) for n in range(4)])
    with log.consume("g", ordering="none", on_dead="dead_letter:entries-dead") as consumer:
        batches = {batch.values[0]: batch for batch in (next(consumer) for _ in range(4))}
        for value in (b"2", b"0"):
            batches[value].reject("broken")
        records = [("out", b"a"), ("out", b"b")]
        log.append_batch(records, acks=[batches[b"3"], batches[b"1"]])
    testing.eventually(
        lambda: {entry.value for entry in dead.scan("k")} == {b"0", b"2"}, what="the dead letters"
    )


def test_the_command_line_consumes_without_an_order(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("printed")
    log.append_many([("k", b"%d" % n) for n in range(5)])
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "consume", "printed", "g", "--ordering", "none",
         "--jobs", "3", "-n", "5", "--format", "jsonl", "--server", three.servers],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert sorted(json.loads(line)["value"] for line in done.stdout.splitlines()) == list("01234")
    assert log.group("g").lag().entries == 0


async def work(log: lognode.AsyncLog, done: Counter[bytes]) -> None:
    """Acknowledge until cancelled. An acknowledgement of unknown outcome may have counted."""
    async with log.consume("work", ordering="none", lease_ms=4_000, keys_max=16) as consumer:
        async for batch in consumer:
            with contextlib.suppress(lognode.Fenced, lognode.Unavailable, lognode.Timeout):
                await batch.ack()
                done.update(value or b"" for value in batch.values)


def test_G3_G4_each_entry_is_done_once_though_leaders_are_killed_and_ranges_split(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("kills")
    keys, each = [b"a", b"m", b"m\0x"], 400
    done: Counter[bytes] = Counter()

    async def run() -> None:
        async with asyncio.timeout(150), lognode.AsyncClient(three.servers, timeout=60) as own:
            mine = own.log("kills")
            tasks = [asyncio.create_task(work(mine, done)) for _ in range(3)]
            for n in range(each):
                await mine.append_many([(key, b"%s.%d" % (key, n)) for key in keys])
                if n == 100:
                    leader = await asyncio.to_thread(testing.leader_of, client, "kills")
                    node = three.nodes[leader - 1]
                    node.kill()
                    node.start()
                elif n == 250:
                    await own.admin.split("kills", at=b"m\0")
            while (await mine.group("work").lag()).entries:
                await asyncio.sleep(0.05)
                assert not any(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(run())
    assert not [value for value, count in done.items() if count > 1], "acknowledged twice"
    assert len(done) > 0.9 * len(keys) * each, "few outcomes are unknown"
    assert log.group("work").history() == []
