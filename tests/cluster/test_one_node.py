"""One node alone is a complete lognode."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(one: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(one.servers, timeout=20) as client:
        yield client


def test_S4_append_then_read_back_in_order(client: lognode.Client) -> None:
    log = client.create_log("flights", ranges=4)
    acks = [log.append(b"N1", f"v{i}".encode()) for i in range(20)]
    seqs = [ack.seq for ack in acks if ack.seq is not None]
    assert len(seqs) == len(acks)
    assert seqs == sorted(set(seqs))
    entries = list(log.scan(b"N1"))
    assert [e.value for e in entries] == [f"v{i}".encode() for i in range(20)]
    assert [e.seq for e in entries] == seqs
    latest = log.latest(b"N1")
    assert latest is not None
    assert latest.value == b"v19"
    assert log.count(b"N1") == 20
    assert log.count(b"N2") == 0
    assert list(log.keys()) == [b"N1"]


def test_S9_expect_is_checked_with_the_append(client: lognode.Client) -> None:
    log = client.create_log("registers")
    first = log.append(b"k", b"1", expect=lognode.ABSENT)
    with pytest.raises(lognode.SequenceMismatch) as caught:
        log.append(b"k", b"2", expect=lognode.ABSENT)
    assert caught.value.actual == first.seq
    assert caught.value.outcome == "not_applied"
    assert first.seq is not None
    second = log.append(b"k", b"2", expect=first.seq)
    assert second.seq is not None
    assert second.seq > first.seq
    assert [e.value for e in log.scan(b"k")] == [b"1", b"2"]


def test_S10_batch_is_applied_whole_or_not_at_all(client: lognode.Client) -> None:
    log = client.create_log("batches", split_at=[b"m"])
    log.append_batch([(b"a", b"1"), (b"b", b"2")])
    with pytest.raises(lognode.BatchSpansRanges):
        log.append_batch([(b"a", b"3"), (b"z", b"4")])
    assert log.count(b"a") == 1
    assert log.count(b"z") == 0


def test_S8_same_numbers_under_one_name_add_nothing(client: lognode.Client) -> None:
    log = client.create_log("imports", ranges=3)
    for _ in range(2):
        with log.producer(name="import-1") as producer:
            tickets = [
                producer.submit(f"k{i % 7}".encode(), str(i).encode(), number=i + 1)
                for i in range(500)
            ]
            producer.flush()
            acks = [ticket.result() for ticket in tickets]
    assert all(ack.duplicate for ack in acks)
    assert sum(map(log.count, log.keys())) == 500


def test_keys_of_nuls_and_prefixes_through_segments(
    client: lognode.Client, one: testing.LocalCluster
) -> None:
    log = client.create_log("nuls", ranges=2)
    keys = [b"\0" * n for n in range(1, 481)] + [b"ab"[: 1 + i % 2] * n for i in range(2) for n in
            range(1, 200)]  # fmt: skip
    keys = sorted(set(keys))
    log.append_many([(key, key) for key in keys])
    log.append_many([(key, b"second") for key in keys])
    one.nodes[0].stop()
    one.nodes[0].start()
    one.nodes[0].wait_ready()
    assert list(log.keys()) == keys
    for key in keys[::13]:
        assert [e.value for e in log.scan(key)] == [key, b"second"]


def test_S2_kill_9_of_the_only_node_loses_nothing_acknowledged(
    client: lognode.Client, one: testing.LocalCluster
) -> None:
    log = client.create_log("kills")
    acked: list[int] = []
    for round_ in range(3):
        for i in range(100):
            log.append(b"k", f"{round_}.{i}".encode())
            acked.append(round_ * 100 + i)
        one.nodes[0].kill()
        one.nodes[0].start()
        one.nodes[0].wait_ready()
    assert log.count(b"k") == len(acked)
    assert [e.value for e in log.scan(b"k")] == [
        f"{r}.{i}".encode() for r in range(3) for i in range(100)
    ]


def test_second_process_on_the_directory_is_refused(
    one: testing.LocalCluster, tmp_path: Path
) -> None:
    other = testing.LocalCluster(tmp_path / "other", 1)
    other.root.mkdir()
    node = other.nodes[0]
    node.data = one.nodes[0].data
    node.start()
    testing.eventually(lambda: not node.running, what="the second process's end")
    assert node.stop() == 1
    assert str(one.nodes[0].pid) in node.log_tail()
    assert "in use" in node.log_tail()
