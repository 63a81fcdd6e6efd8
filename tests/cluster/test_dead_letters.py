"""Dead letters on real nodes: entries that failed too often go to another log, each once."""

import contextlib
from collections.abc import Iterator

import pytest

import lognode
from lognode import testing
from lognode.client.protocol import limits
from lognode.client.protocol.errors import Conflict, InvalidArgument, LogNotFound
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(three.servers, timeout=30) as found:
        testing.wait_healthy(three)

        def done() -> bool:
            with contextlib.suppress(Conflict, lognode.Unavailable, lognode.Timeout):
                found.admin.finalize()
                return True
            return False

        testing.eventually(done, timeout_s=60, what="the level is raised")
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
                batch.ack(through=batch.entries[0].seq)
                done[batch.key].append(batch.entries[0].value)
                if len(batch.entries) > 1:
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
        batch = next(consumer)
        assert batch.values == [b"2"]
        batch.ack()
    assert values(dead, b"k") == [b"1" * limits.value_bytes_max]
