"""Consumers of groups on real nodes: poison keys, paused consumers, bad input, the command line."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feature_level import raised

import lognode
from lognode import testing
from lognode.client.protocol.errors import (
    Conflict,
    Fenced,
    InvalidArgument,
    LogNotFound,
    NotFound,
)
from lognode.client.protocol.groups import GROUP_SETTLE
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with raised(three) as found:
        yield found


def fresh(client: lognode.Client, name: str) -> lognode.Log:
    """A new log of two ranges."""
    return client.create_log(name, split_at=[b"m"])


def lognode_(three: LocalCluster, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lognode.node.main", *arguments, "--server", three.servers]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **(pipes | more))


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    return out


def test_G5_G6_a_poison_key_is_parked_and_stops_no_other_key(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = fresh(client, "poison")
    log.append_many([(key, b"%d" % n) for n in range(3) for key in ("bad", "good", "zest")])
    group = log.group("billing")
    done: list[tuple[bytes, bytes | None]] = []
    with log.consume("billing", max_deliveries=3) as consumer:
        for batch in consumer:
            if batch.key == b"bad":
                batch.release(error=f"failure {batch.deliveries}")
            else:
                done += [(batch.key, value) for value in batch.values]
                batch.ack()
            if len(done) == 6 and group.parked():
                break
    assert sorted(done) == sorted((key, b"%d" % n) for n in range(3) for key in (b"good", b"zest"))
    (row,) = group.parked()
    assert (row.key, row.deliveries, row.error) == (b"bad", 3, "failure 3")
    lag = group.lag()
    assert (lag.entries, lag.waiting, lag.parked, lag.begun) == (3, 0, 1, True)
    with pytest.raises(Conflict, match="not parked"):
        group.retry("good")
    group.retry("bad")
    with log.consume("billing") as consumer:
        batch = next(consumer)
        assert (batch.key, batch.deliveries, batch.values[0]) == (b"bad", 1, b"0")
        batch.reject("still bad")
    first = log.latest("bad")
    assert first is not None
    assert group.skip("bad", why="known to be bad") == row.position
    with log.consume("billing") as consumer:
        batch = next(consumer)
        assert (batch.key, batch.values) == (b"bad", [b"1", b"2"])
        batch.ack()
    assert group.lag().entries == 0
    told = [(each.what, each.why) for each in group.history()]
    assert told == [
        ("parked", "failure 3"), ("retried", "failure 3"), ("rejected", "still bad"),
        ("skipped", "known to be bad"),
    ]  # fmt: skip
    group.reset("earliest", key="bad")
    with log.consume("billing") as consumer:
        batch = next(consumer)
        assert (batch.key, len(batch.values)) == (b"bad", 3)
        group.reset("earliest")
        with pytest.raises(Fenced):
            batch.ack()
        got: dict[bytes, int] = {}
        for batch in consumer:
            got[batch.key] = len(batch.values)
            batch.ack()
            if len(got) == 3:
                break
    assert got == {b"bad": 3, b"good": 3, b"zest": 3}
    group.reset("latest")
    assert group.lag().entries == 0


def test_a_group_begins_where_it_says_and_ends_when_it_is_deleted(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = fresh(client, "begins")
    log.append("a", b"before")
    with log.consume("late", start="latest") as consumer:
        log.append("a", b"1")
        log.append("z", b"2")
        values = sorted(value for _ in range(2) for value in next(consumer).values if value)
        assert values == [b"1", b"2"]
    assert [info.name for info in log.groups()] == ["late"]
    with log.consume("early", prefix="a") as consumer:
        assert next(consumer).values == [b"before", b"1"]
        log.group("early").delete()
        with pytest.raises(NotFound, match="deleted"):
            for _ in consumer:
                pass
    with pytest.raises(NotFound, match="has no consumer group"):
        log.group("early").lag()
    with log.consume("early") as consumer:
        keys = {next(consumer).key for _ in range(2)}
        assert keys == {b"a", b"z"}, "it is another group"


def test_G1_G3_G4_a_paused_consumer_loses_its_keys(
    three: LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    """`LOGNODE_PAUSE_S=60` pauses the consumer for a minute."""
    log = fresh(client, "paused")
    log.append("k", b"1")
    go, told = tmp_path / "go", tmp_path / "told"
    command = f"echo begun; until [ -e {go} ]; do sleep 0.05; done"
    arguments = ["consume", "paused", "billing", "--exec", command, "--lease", "1s"]
    with told.open("w") as err:
        slow = lognode_(three, *arguments, stderr=err)
    assert slow.stdout is not None
    assert slow.stdout.readline() == "begun\n"
    os.kill(slow.pid, signal.SIGSTOP)
    try:
        with log.consume("billing") as consumer:
            begin = time.monotonic()
            batch = next(consumer)
            assert batch.deliveries == 2, "the end of the lease was a failure, and the only one"
            assert time.monotonic() - begin < 30
            time.sleep(float(os.environ.get("LOGNODE_PAUSE_S", "0")))
            os.kill(slow.pid, signal.SIGCONT)
            go.touch()  # the command of the paused consumer succeeds, and its batch is refused
            testing.eventually(
                lambda: "no longer has key" in told.read_text(), what="the refusal of the batch"
            )
            batch.ack()
            slow.send_signal(signal.SIGINT)
            slow.communicate(timeout=30)
            log.append("k", b"2")
            assert next(consumer).values == [b"2"], "nothing that was acknowledged comes again"
    finally:
        if slow.poll() is None:
            slow.kill()


def test_a_command_for_each_batch(
    three: LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = fresh(client, "jobs")
    log.append_many([("a", b"1"), ("b", b"\xff"), ("a", b"2")])
    out = tmp_path / "out"
    command = f'cat >> {out}; [ "$LOGNODE_KEY" = a ] || [ "$LOGNODE_DELIVERIES" = 2 ]'
    arguments = ["--exec", command, "-n", "3", "--retry-after", "10ms", "--jobs", "2"]
    ended(lognode_(three, "consume", "jobs", "work", *arguments))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["value"] for line in lines if line["key"] == "a"] == ["1", "2"]
    assert [line["value"] for line in lines if line["key"] == "b"] == [{"b64": "/w=="}] * 2
    assert log.group("work").lag().entries == 0
    log.append("a", b"3")
    out_ = ended(lognode_(three, "consume", "jobs", "work", "-n", "1", "--format", "jsonl"))
    assert json.loads(out_)["value"] == "3"


def test_the_verbs_of_groups(three: LocalCluster, client: lognode.Client) -> None:
    log = fresh(client, "verbs")
    log.append_many([("a", b"1"), ("a", b"2"), ("b", b"1")])
    arguments = ["--exec", "exit 3", "--max-deliveries", "1", "-n", "2"]
    ended(lognode_(three, "consume", "verbs", "billing", *arguments))

    def run(*words: str, code: int = 0) -> Any:
        out = ended(lognode_(three, "group", *words, "--format", "json"), code)
        return json.loads(out) if out else None

    assert [row["name"] for row in run("list", "verbs")] == ["billing"]
    assert run("describe", "verbs", "billing")["max_deliveries"] == 1
    assert run("lag", "verbs", "billing")["parked"] == 2
    parked = run("parked", "verbs", "billing")
    assert [(row["key"], row["error"]) for row in parked] == [
        ("a", "the command ended with 3"), ("b", "the command ended with 3"),
    ]  # fmt: skip
    assert run("parked", "verbs", "billing", "--in-flight") == []
    run("retry", "verbs", "billing", "a")
    skipped = run("skip", "verbs", "billing", "b", "--why", "bad", "--yes")
    assert skipped["key"] == "b"
    history = run("history", "verbs", "billing")
    assert [row["what"] for row in history] == ["parked", "parked", "retried", "skipped"]
    assert run("lag", "verbs", "billing")["entries"] == 2
    run("reset", "verbs", "billing", "--to", "latest", "--yes")
    assert run("lag", "verbs", "billing")["entries"] == 0
    run("retry", "verbs", "billing", "a", code=5)
    run("delete", "verbs", "billing", "--yes")
    run("lag", "verbs", "billing", code=4)


def test_bad_input_is_refused_by_name(three: LocalCluster, client: lognode.Client) -> None:
    log = fresh(client, "bad-input")
    log.append("k", b"1")
    with pytest.raises(NotFound, match="has no consumer group 'missing'"):
        log.group("missing").describe()
    with pytest.raises(LogNotFound):
        client.log("no-such-log").consume("g").open()
    with pytest.raises(InvalidArgument, match="pattern"):
        log.consume("g", pattern="a**").open()
    with pytest.raises(InvalidArgument, match="on_dead"):
        log.consume("g", on_dead="drop").open()
    with pytest.raises(InvalidArgument, match="blank"):
        log.consume("a b").open()
    with pytest.raises(InvalidArgument, match="lease_ms"):
        log.consume("g", lease_ms=1).open()
    assert log.groups() == []
    with log.consume("g", lease_ms=5_000) as consumer:
        batch = next(consumer)
        batch.ack()
        with pytest.raises(InvalidArgument, match="settled before"):
            batch.ack()
        with pytest.raises(Conflict, match="lease_ms 5000, and this consumer asks for 6000"):
            log.consume("g", lease_ms=6_000).open()
        client.delete_log("bad-input")
        with pytest.raises((LogNotFound, NotFound)):
            for _ in consumer:
                pass
    with pytest.raises(LogNotFound):
        log.groups()


def test_G3_keys_that_a_consumer_has_survive_transfers_splits_and_merges(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = fresh(client, "moving")
    keys = [b"a", b"c", b"n", b"z"]
    ranges = log.describe()["ranges"]
    with log.consume("g", lease_ms=60_000) as consumer:

        def taken() -> dict[bytes, lognode.GroupBatch]:
            found = [next(consumer) for _ in keys]
            assert all(batch.deliveries == 1 for batch in found), "no lease has ended"
            return {batch.key: batch for batch in found}

        def appended(value: bytes) -> dict[bytes, lognode.GroupBatch]:
            log.append_many([(key, value) for key in keys])
            return taken()

        batches = appended(b"transfer")
        for row in ranges:
            (other, *_) = set(row["members"]) - {row["leader"]}
            client.admin.transfer(row["id"], to_node=other)
        for batch in batches.values():
            batch.ack()
        batches = appended(b"split")
        client.admin.split("moving", at=b"b")
        client.admin.split("moving", at=b"x")
        for batch in batches.values():
            batch.ack()
        batches = appended(b"merge")
        for at in (b"b", b"x"):
            client.admin.merge("moving", at=at)
        for batch in batches.values():
            batch.ack()
        assert log.group("g").lag().entries == 0
        assert log.group("g").history() == []


def test_G3_keys_that_a_consumer_has_survive_one_transfer_after_the_other(
    three: LocalCluster, client: lognode.Client
) -> None:
    """The second leader let the consumer keep the keys by the tokens of the first. The third leader
    had refused these tokens, so that the leases ended."""
    log = fresh(client, "twice")
    keys = [b"a", b"n"]
    log.append_many([(key, b"1") for key in keys])
    with log.consume("g", lease_ms=60_000) as consumer:
        batches = [next(consumer) for _ in keys]
        for _ in range(3):
            for row in log.describe()["ranges"]:
                (other, *_) = set(row["members"]) - {row["leader"]}
                client.admin.transfer(row["id"], to_node=other)
            for batch in batches:
                batch.extend()
        for batch in batches:
            assert batch.deliveries == 1
            batch.ack()
        assert log.group("g").lag().entries == 0


def test_g1_a_made_up_token_settles_nothing(three: LocalCluster, client: lognode.Client) -> None:
    log = fresh(client, "forged")
    log.append("k", b"1")
    body: dict[str, Any] = {"consumer": 99}

    async def settle(**rows: Any) -> list[Any]:
        async with lognode.AsyncClient(three.servers, timeout=30) as own:
            cluster = own.log("forged")._cluster
            answer, _ = await cluster.call(
                cluster.log("forged"), b"k", GROUP_SETTLE, {**body, **rows},
                deadline=cluster.now() + 20,
            )  # fmt: skip
            found: list[Any] = answer["refused"]
            return found

    with log.consume("g") as consumer:
        body["group"] = consumer.group.id
        batch = next(consumer)
        held = batch._twin._held
        for rows in (
            {"acks": [[b"k", held.token + 1, 2]]},
            {"acks": [[b"k", held.token, 2]]},
            {"acks": [[b"k", 0, 1 << 40]]},
            {"releases": [[b"k", held.token, 0, ""]]},
            {"rejects": [[b"k", held.token, "no"]]},
            {"extends": [[b"k", held.token]]},
        ):
            assert asyncio.run(settle(**rows)) == [[b"k", "lease", 1]], rows
        body["consumer"] = consumer._twin._number
        assert asyncio.run(settle(acks=[[b"k", held.token, 99]])) == [[b"k", "position", 1]]
        body["group"] = 1 << 40
        with pytest.raises(NotFound, match="deleted"):
            asyncio.run(settle(leave=True))
        batch.ack()
    assert log.group("g").lag().entries == 0


def test_an_error_of_the_caller_counts_as_a_failed_delivery(
    three: LocalCluster, client: lognode.Client
) -> None:
    log = fresh(client, "raising")
    log.append_many([("a", b"1"), ("b", b"1")])

    def handle(consumer: lognode.Consumer) -> None:
        with consumer:
            for batch in consumer:
                raise ValueError(f"cannot read {batch.key!r}")

    for _ in range(2):
        with pytest.raises(ValueError, match="cannot read"):
            handle(log.consume("g", max_deliveries=2, prefix="a"))
    (row,) = log.group("g").parked()
    assert (row.key, row.error) == (b"a", "ValueError: cannot read b'a'")


def test_G1_G2_G3_four_processes_survive_the_kill_of_a_leader(
    three: LocalCluster, client: lognode.Client, tmp_path: Path
) -> None:
    """A consumer sees a key in order. Entries whose acks die with the leader come again, in order,
    and maybe to the consumer that printed them before."""
    log = fresh(client, "processes")
    keys = [b"%c%02d" % (first, n) for first in b"az" for n in range(20)]
    each = 10
    for n in range(each):
        log.append_many([(key, b"%d" % n) for key in keys])
    arguments = ["consume", "processes", "work", "--format", "jsonl", "--lease", "2s"]
    outs = [tmp_path / f"out-{n}" for n in range(4)]
    files = [path.open("w") for path in outs]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "lognode.node.main", *arguments, "--server", three.servers],
            stdout=file, stderr=subprocess.DEVNULL, text=True,
        )
        for file in files
    ]  # fmt: skip

    def printed() -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in outs
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    victim = three.nodes[testing.leader_of(client, "processes") - 1]
    try:
        testing.eventually(lambda: len(printed()) > 20, timeout_s=30, what="consumers begin")
        victim.kill()
        for n in range(each, 2 * each):
            log.append_many([(key, b"%d" % n) for key in keys])
        group = log.group("work")

        def is_done() -> bool:
            lag = group.lag()  # no consumer may have reached the killed leader's range before
            return lag.begun and not lag.entries

        testing.eventually(is_done, timeout_s=90, what="all is done")
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(30)
        for file in files:
            file.close()
        victim.start()
        victim.wait_ready()
    rows = printed()
    assert {row["key"].encode() for row in rows} == set(keys)
    for key in keys:
        values = {int(row["value"]) for row in rows if row["key"].encode() == key}
        assert values == set(range(2 * each)), "no entry is passed by"
    for path in outs:
        run: dict[str, list[int]] = {}
        for line in path.read_text().splitlines():
            row = json.loads(line)
            seqs = run.setdefault(row["key"], [])
            if seqs and row["seq"] <= seqs[-1]:
                assert row["seq"] in seqs, "only what was not acked comes again"
                seqs.clear()
            seqs.append(row["seq"])
    assert len(rows) < 3 * each * len(keys), "few entries come twice"
