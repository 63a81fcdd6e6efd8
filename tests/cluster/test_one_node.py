"""One node alone is a complete lognode: every call of the SDK, bad input, kill -9 and restart."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_history import read_all
from cluster_wal import SMALL_WAL, fill_until_cut, wal_files

import lognode
from lognode import testing
from lognode.client.protocol.types import Entry

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def served(module_path: Path) -> Iterator[testing.LocalCluster]:
    """One node for all tests that leave it running."""
    with testing.cluster(module_path, 1) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def client(served: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(served.servers, timeout=20) as client:
        yield client


_names = itertools.count()


@pytest.fixture
def log(client: lognode.Client) -> lognode.Log:
    """An empty log of four ranges."""
    return client.create_log(f"log-{next(_names)}", ranges=4)


def values(entries: list[Entry]) -> list[bytes | None]:
    return [entry.value for entry in entries]


def take(feed: lognode.Feed, count: int) -> list[Entry]:
    """The next `count` entries of a follow."""
    return list(itertools.islice(feed.entries(), count))


def test_S4_append_then_read_back_in_order(log: lognode.Log) -> None:
    acks = [log.append(b"N1", b"v%d" % n, headers={b"n": b"%d" % n}) for n in range(20)]
    entries = list(log.scan(b"N1"))
    assert values(entries) == [b"v%d" % n for n in range(20)]
    assert [entry.headers for entry in entries] == [{b"n": b"%d" % n} for n in range(20)]
    assert [(e.seq, e.timestamp_ms) for e in entries] == [(a.seq, a.timestamp_ms) for a in acks]
    assert entries[0].seq >= 1
    assert sorted({entry.seq for entry in entries}) == [entry.seq for entry in entries]
    assert log.latest("N1") == entries[-1]
    assert log.latest("N2") is None
    assert (log.count("N1"), log.count("N2")) == (20, 0)
    assert list(log.keys()) == [b"N1"]
    assert list(log.scan("N2")) == []


def test_S4_S6_append_many_keeps_the_order_per_key_over_all_ranges(log: lognode.Log) -> None:
    records = [(bytes([n % 251]) + b"k", b"%d" % n) for n in range(5_000)]
    acks = log.append_many(records)
    for (key, value), ack in list(zip(records, acks, strict=True))[::97]:
        assert ack.seq is not None
        (entry,) = log.scan(key, start=ack.seq, end=ack.seq + 1)
        assert (entry.value, entry.timestamp_ms) == (value, ack.timestamp_ms)
    for key in sorted({key for key, _ in records})[::17]:
        assert values(list(log.scan(key))) == [value for at, value in records if at == key]
    assert list(log.keys()) == sorted({key for key, _ in records})


def test_scan_spans_limits_and_directions(log: lognode.Log) -> None:
    log.append_many([(b"k", b"%d" % n) if n % 3 else (b"other", b"") for n in range(90)])
    every = list(log.scan(b"k"))
    assert len(every) == 60
    low, high = every[10].seq, every[40].seq
    assert list(log.scan(b"k", start=low, end=high)) == every[10:40]
    assert list(log.scan(b"k", start=low, limit=7)) == every[10:17]
    assert list(log.scan(b"k", reverse=True)) == every[::-1]
    assert list(log.scan(b"k", start=low, end=high, reverse=True, limit=5)) == every[39:34:-1]
    assert list(log.scan(b"k", start=every[-1].seq + 1)) == []
    assert list(log.scan(b"k", start="latest")) == []
    assert list(log.scan(b"k", start=lognode.Tail(4))) == every[-4:]
    assert list(log.scan(b"k", start=lognode.Timestamp(every[0].timestamp_ms))) == every
    assert list(log.scan(b"k", start=lognode.Timestamp(every[-1].timestamp_ms + 1))) == []
    assert log.count(b"k", start=low, end=high) == 30
    assert log.count(b"k", start=lognode.Tail(9)) == 9


def test_keys_by_prefix_and_page(log: lognode.Log) -> None:
    names = sorted({b"a%d" % n for n in range(40)} | {b"b", b"ba", b"b\xff\xff", b"c"})
    log.append_many([(name, b"") for name in names])
    assert list(log.keys(prefix=b"a")) == [name for name in names if name.startswith(b"a")]
    assert list(log.keys(prefix="b")) == [b"b", b"ba", b"b\xff\xff"]
    assert list(log.keys(start_after=b"a7")) == [name for name in names if name > b"a7"]
    assert list(log.keys(prefix=b"a", start_after=b"a3", limit=3)) == [b"a30", b"a31", b"a32"]
    assert list(log.keys(prefix=b"zz")) == []


def test_S9_expect_is_checked_with_the_append(log: lognode.Log) -> None:
    first = log.append(b"k", b"1", expect=lognode.ABSENT)
    with pytest.raises(lognode.SequenceMismatch) as caught:
        log.append(b"k", b"2", expect=lognode.ABSENT)
    assert (caught.value.actual, caught.value.outcome) == (first.seq, "not_applied")
    assert first.seq is not None
    second = log.append(b"k", b"2", expect=first.seq)
    with pytest.raises(lognode.SequenceMismatch):
        log.append(b"k", b"3", expect=first.seq)
    log.append(b"k", b"3", expect=lognode.ANY)
    assert second.seq is not None
    assert values(list(log.scan(b"k"))) == [b"1", b"2", b"3"]


def test_S10_batch_is_applied_whole_or_not_at_all(client: lognode.Client) -> None:
    log = client.create_log("batches", split_at=[b"m"])
    first = log.append_batch([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    assert first.seq is not None
    assert [entry.seq for entry in log.scan(b"a")] == [first.seq, first.seq + 2]
    with pytest.raises(lognode.BatchSpansRanges):
        log.append_batch([(b"a", b"3"), (b"z", b"4")])
    assert (log.count(b"a"), log.count(b"z")) == (2, 0)


def test_S8_anonymous_producer_appends_each_record_once(log: lognode.Log) -> None:
    with log.producer(linger_ms=1) as producer:
        tickets = [producer.submit(b"k%d" % (n % 7), b"%d" % n) for n in range(3_000)]
        producer.flush()
    acks = [ticket.result() for ticket in tickets]
    assert not any(ack.duplicate for ack in acks)
    for k in range(7):
        assert values(list(log.scan(b"k%d" % k))) == [b"%d" % n for n in range(k, 3_000, 7)]


def test_S8_same_numbers_under_one_name_add_nothing(log: lognode.Log) -> None:
    for _ in range(2):
        with log.producer(name="import-1") as producer:
            tickets = [
                producer.submit(b"k%d" % (n % 7), b"%d" % n, number=3 * n + 1) for n in range(500)
            ]
            producer.flush()
            acks = [ticket.result() for ticket in tickets]
    assert all(ack.duplicate for ack in acks)
    assert sum(map(log.count, log.keys())) == 500


def test_S9_opening_a_named_producer_fences_the_older_one(log: lognode.Log) -> None:
    old = log.producer(name="p")
    old.open()
    old.submit(b"k", b"1", number=1).result()
    with log.producer(name="p") as new:
        with pytest.raises(lognode.Fenced):
            old.submit(b"other", b"zombie", number=2).result()
        new.submit(b"k", b"2", number=2)
    assert values(list(log.scan(b"k"))) == [b"1", b"2"]
    assert log.count(b"other") == 0
    assert old.close().not_applied == 1


def test_follow_by_key_by_prefix_and_the_whole_log(log: lognode.Log) -> None:
    log.append_many([(b"%c%d" % (97 + n % 3, n % 2), b"old%d" % n) for n in range(30)])
    with (
        log.follow(keys=[b"a0", b"b1"], start="earliest") as keyed,
        log.follow(prefix=b"b", start="earliest") as prefixed,
        log.follow(start="earliest") as whole,
        log.follow() as tail,
    ):
        log.append_many([(b"%c%d" % (97 + n % 3, n % 2), b"new%d" % n) for n in range(30)])
        history = {key: list(log.scan(key)) for key in list(log.keys())}
        for feed, keys in (
            (keyed, [b"a0", b"b1"]), (prefixed, [b"b0", b"b1"]), (whole, list(history)),
        ):  # fmt: skip
            got = take(feed, 10 * len(keys))
            for key in keys:
                assert [entry for entry in got if entry.key == key] == history[key]
        got = take(tail, 30)
        for key, entries in history.items():
            assert [entry for entry in got if entry.key == key] == entries[5:]


def test_follow_goes_on_at_a_cursor(log: lognode.Log) -> None:
    log.append_many([(b"k%d" % (n % 5), b"%d" % n) for n in range(50)])
    with log.follow(start="earliest") as feed:
        seen = {entry.key: entry for batch in itertools.islice(feed, 1) for entry in batch}
        cursor = feed.cursor
    every = [entry for key in list(log.keys()) for entry in log.scan(key)]
    wanted = [e for e in every if e.key not in seen or e.seq > seen[e.key].seq]
    log.append(b"k0", b"last")
    with log.follow(start=cursor) as feed:
        got = take(feed, len(wanted) + 1)
    assert sorted(value or b"" for value in values(got)) == sorted(
        [*(entry.value or b"" for entry in wanted), b"last"]
    )


def test_S7_reads_of_the_node_itself_and_through_a_seq(log: lognode.Log) -> None:
    ack = log.append(b"k", b"v")
    assert values(list(log.scan(b"k", node=1, through=ack.seq))) == [b"v"]
    assert log.count(b"k", node=1) == 1
    latest = log.latest(b"k", consistency="prefix")
    assert latest is not None
    assert ack.seq is not None
    with pytest.raises(lognode.Timeout):
        log.latest(b"k", node=1, through=ack.seq + 1, timeout=0.2)
    with pytest.raises(lognode.LognodeError, match="9"):
        log.latest(b"k", node=9, timeout=2)


def test_status_shows_the_log_and_its_ranges(client: lognode.Client) -> None:
    client.create_log("shown", split_at=[b"f", b"q"])
    status = client.status()
    spans = [(r["start"], r["end"]) for r in status["ranges"] if r["log"] == "shown"]
    assert sorted(spans) == [(b"", b"f"), (b"f", b"q"), (b"q", None)]
    assert [node["state"] for node in status["nodes"]] == ["ACTIVE"]
    with pytest.raises(lognode.LogExists):
        client.create_log("shown")
    assert client.create_log("shown", exist_ok=True).name == "shown"


BAD = [
    (b"", b"", lognode.InvalidArgument, "480"),
    (b"k" * 481, b"", lognode.LimitExceeded, "481"),
    (b"k", b"v" * ((1 << 20) + 1), lognode.LimitExceeded, "1048577"),
]


@pytest.mark.parametrize(("key", "value", "kind", "text"), BAD)
def test_S11_an_oversized_append_is_refused_and_appends_nothing(
    log: lognode.Log, key: bytes, value: bytes, kind: type[lognode.LognodeError], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        log.append_many([(b"good", b""), (key, value)])
    assert caught.value.outcome == "not_applied"
    assert "\n" not in str(caught.value)
    assert list(log.keys()) == []
    log.append(b"k" * 480, b"v" * ((1 << 20) - 480))
    assert log.count(b"k" * 480) == 1


def test_an_unknown_log_is_named(client: lognode.Client) -> None:
    with pytest.raises(lognode.LogNotFound, match="no-such-log"):
        client.log("no-such-log").append(b"k", b"v")


def test_S2_S6_kill_9_of_the_only_node_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """From the WAL alone, then from segments with the WAL behind them gone, then from both."""
    with (
        testing.cluster(tmp_path, 1, flags=SMALL_WAL) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        (node,) = cluster.nodes
        log = client.create_log("kills", ranges=2)
        held = {}
        for round_ in range(4):
            log.append_many([(b"k%d" % (n % 9), b"%d.%d" % (round_, n)) for n in range(900)])
            if round_ == 1:
                before = wal_files(node)
                fill_until_cut([node], log, [b"filler", b"\xfffiller"])
                assert not set(before) & set(wal_files(node))
            held = read_all(cluster.servers, "kills")
            node.kill()
            node.start()
            testing.wait_healthy(cluster)
            assert read_all(cluster.servers, "kills") == held
        for k in range(9):
            wanted = [b"%d.%d" % (r, n) for r in range(4) for n in range(k, 900, 9)]
            assert values(held[b"k%d" % k]) == wanted


def test_second_process_on_the_directory_is_refused(
    served: testing.LocalCluster, tmp_path: Path
) -> None:
    other = testing.LocalCluster(tmp_path, 1)
    node = other.nodes[0]
    node.data = served.nodes[0].data
    node.start()
    testing.eventually(lambda: not node.running, what="the second process's end")
    assert node.stop() == 1
    assert str(served.nodes[0].pid) in node.log_tail()
    assert "uses data directory" in node.log_tail()
