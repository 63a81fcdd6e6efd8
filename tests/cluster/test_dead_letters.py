"""Dead letters on real nodes: entries that failed too often go to another log, each once."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from feature_level import raised

import lognode
from lognode import testing
from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument, LogNotFound
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with raised(three) as found:
        yield found


def values(log: lognode.Log, key: bytes) -> list[bytes | None]:
    return [entry.value for entry in log.scan(key)]


def test_G2_an_entry_that_fails_too_often_is_copied_and_the_key_goes_on(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("dying", split_at=[b"m"])
    dead = client.create_log("dying-dead", split_at=[b"c"])
    for key in (b"bad", b"good"):
        for n in range(3):
            log.append(key, b"%d" % n, headers={b"own": b"h%d" % n})
    done: dict[bytes, list[bytes | None]] = {b"bad": [], b"good": []}
    with log.consume("g", max_deliveries=2, on_dead="dead_letter:dying-dead") as consumer:
        for batch in consumer:
            if batch.key == b"bad" and batch.entries[0].value == b"1":
                batch.release(error=f"failure {batch.deliveries}")
            elif batch.key == b"bad":
                first, is_last = batch.entries[0], len(batch.entries) == 1
                done[batch.key].append(first.value)
                batch.ack(through=first.seq)
                if not is_last:
                    batch.release()
            else:
                done[batch.key] += batch.values
                batch.ack()
            if sum(map(len, done.values())) == 5:
                break
    assert done == {b"bad": [b"0", b"2"], b"good": [b"0", b"1", b"2"]}
    (entry,) = dead.scan(b"bad")
    failed = list(log.scan(b"bad"))[1]
    assert entry.value == b"1"
    assert entry.headers == {
        b"own": b"h1", b"dead-letter-log": b"dying", b"dead-letter-key": b"bad",
        b"dead-letter-seq": b"%d" % failed.seq, b"dead-letter-group": b"g",
        b"dead-letter-timestamp-ms": b"%d" % failed.timestamp_ms,
        b"dead-letter-deliveries": b"2", b"dead-letter-error": b"failure 2",
    }  # fmt: skip
    group = log.group("g")
    assert [each.what for each in group.history()] == ["parked", "dead letter"]
    assert (group.lag().entries, group.parked()) == (0, [])


def test_a_missing_log_of_dead_letters_parks_the_key_until_the_log_is_back(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("lost")
    client.create_log("lost-dead")
    with pytest.raises(LogNotFound):
        log.consume("g", on_dead="dead_letter:nowhere").open()
    with pytest.raises(InvalidArgument, match="the same log"):
        log.consume("g", on_dead="dead_letter:lost").open()
    log.append(b"k", b"0")
    log.append(b"k", b"1")
    log.append(b"k2", b"0")
    group = log.group("g")
    with log.consume("g", on_dead="dead_letter:lost-dead") as consumer:
        client.delete_log("lost-dead")
        next(each for each in consumer if each.key == b"k").reject("broken")
        testing.eventually(
            lambda: [each.error for each in group.parked()]
            == ["no log lost-dead for dead letters; create the log"],
            what="the key is parked with the reason",
        )  # fmt: skip
        batch = next(consumer)
        assert batch.key == b"k2", "G5: others go on"
        batch.ack()
        dead = client.create_log("lost-dead")
        batch = next(consumer)
        assert (batch.key, batch.values) == (b"k", [b"1"])
        batch.ack()
    assert values(dead, b"k") == [b"0"]


def test_an_entry_with_no_room_for_more_headers_stays_parked(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("many")
    dead = client.create_log("many-dead")
    log.append(b"k", b"0", headers={b"%d" % n: b"" for n in range(limits.headers_max - 6)})
    log.append(b"k", b"1" * limits.value_bytes_max)
    log.append(b"k", b"2")
    group = log.group("g")
    with log.consume("g", on_dead="dead_letter:many-dead") as consumer:
        next(consumer).reject("broken")
        testing.eventually(
            lambda: [each.error for each in group.parked() if "headers" in each.error],
            what="the reason is shown",
        )
        group.skip(b"k")
        next(consumer).reject("large")
        began = time.monotonic()
        batch = next(consumer)
        assert batch.values == [b"2"]
        assert time.monotonic() - began < 20, "the entry waited for the one that was skipped"
        batch.ack()
    assert values(dead, b"k") == [b"1" * limits.value_bytes_max]


def test_a_command_that_fails_makes_dead_letters(
    three: LocalCluster, client: lognode.Client
) -> None:
    log, dead = client.create_log("commands"), client.create_log("commands-dead")
    log.append_many([(b"a", b"1"), (b"a", b"2"), (b"b", b"3")])
    arguments = ["--exec", "exit 3", "--max-deliveries", "1", "-n", "3", "--server", three.servers,
                 "--on-dead", "dead_letter:commands-dead"]  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "consume", "commands", "g", *arguments],
        check=True, timeout=60,
    )  # fmt: skip
    testing.eventually(lambda: log.group("g").lag().entries == 0, what="all entries are copied")
    assert (values(dead, b"a"), values(dead, b"b")) == ([b"1", b"2"], [b"3"])
    (copy,) = dead.scan(b"b")
    assert copy.headers is not None
    assert copy.headers[b"dead-letter-error"] == b"the command ended with 3"


def test_the_next_leader_copies_though_no_consumer_asks(
    three: LocalCluster, client: lognode.Client
) -> None:
    """The entry is rejected while the log of dead letters is gone. Then everybody is."""
    log = client.create_log("alone")
    client.create_log("alone-dead")
    log.append(b"k", b"0")
    with log.consume("g", on_dead="dead_letter:alone-dead") as consumer:
        batch = next(consumer)
        client.delete_log("alone-dead")
        batch.reject("broken")
    node = three.nodes[testing.leader_of(client, "alone") - 1]
    node.kill()
    node.start()
    node.wait_ready()
    dead = client.create_log("alone-dead")
    testing.eventually(lambda: values(dead, b"k") == [b"0"], timeout_s=60, what="the copy")
    testing.eventually(lambda: log.group("g").lag().entries == 0, what="the key goes on")
    assert values(dead, b"k") == [b"0"]


async def reject_all(log: lognode.AsyncLog) -> None:
    """Consume until cancelled. A call that was cut off may have rejected the entry."""
    async with log.consume("g", on_dead="dead_letter:kills-dead", lease_ms=3_000) as consumer:
        async for batch in consumer:
            with contextlib.suppress(lognode.Fenced, lognode.Unavailable, lognode.Timeout):
                await batch.reject("broken")


def test_S8_G2_each_letter_is_copied_once_though_leaders_are_killed(
    three: LocalCluster, client: lognode.Client
) -> None:
    """The leaders of the log and of the log of dead letters are killed, and ranges are split."""
    keys, each = [b"%c%d" % (first, n) for first in b"az" for n in range(20)], 6
    log = client.create_log("kills")
    dead = client.create_log("kills-dead")
    log.append_many([(key, b"%d" % n) for n in range(each) for key in keys])
    with log.consume("g", on_dead="dead_letter:kills-dead", lease_ms=3_000):
        pass  # the group exists from now on

    async def run() -> None:
        async with asyncio.timeout(150), lognode.AsyncClient(three.servers, timeout=60) as own:
            mine = own.log("kills")
            tasks = [asyncio.create_task(reject_all(mine)) for _ in range(2)]
            for name, left, at in (("kills", 200, b"m"), ("kills-dead", 130, b"a7"),
                                   ("kills", 60, b"z7")):  # fmt: skip
                while (await mine.group("g").lag()).entries > left:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                leader = await asyncio.to_thread(testing.leader_of, client, name)
                node = three.nodes[leader - 1]
                node.kill()
                node.start()
                await own.admin.split(name, at=at)
            while (await mine.group("g").lag()).entries:
                await asyncio.sleep(0.05)
                assert not any(task.done() for task in tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    asyncio.run(run())
    for key in keys:
        found = [entry.value for entry in dead.scan(key)]
        assert found == [b"%d" % n for n in range(each)], key
