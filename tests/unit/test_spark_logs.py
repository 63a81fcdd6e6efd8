"""Several logs in one frame: each log has its own snapshot, tasks and lease. Scripted nodes."""

import json
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from fake_cluster import FakeCluster, Stored
from fake_thread import fake_cluster_thread
from pyspark.sql.streaming.datasource import ReadAllAvailable

from lognode.client.protocol.errors import Fenced, InvalidArgument, LogNotFound, NotFound
from lognode.client.spark import logs
from lognode.client.spark.several import SeveralReader
from lognode.client.spark.source import LognodeSource

Row = tuple[str, bytes, int]
NAMES = ("eu/orders", "eu/returns", "us/orders")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster_thread() as made:
        for at, name in enumerate(NAMES):
            made.create(name, (b"m",))
            fill(made, name, at + 1)
        yield made


def fill(cluster: FakeCluster, name: str, count: int) -> None:
    for known in cluster.ranges:
        if known.log_id == cluster.logs[name]:
            for _ in range(count):
                key = known.start or b"a"
                known.entries.append(Stored(key, known.next_seq, 1_000, None, b"v"))
                known.next_seq += 1


def source(cluster: FakeCluster, **options: str) -> LognodeSource:
    base = {"servers": cluster.address, "timeout": "5s", "columns": "log,key,seq"}
    return LognodeSource({**base, **options})


def rows(reader: Any, partitions: Iterable[Any]) -> list[Row]:
    found: list[Row] = []
    for each in partitions:
        for batch in reader.read(each):
            columns = (batch[name].to_pylist() for name in ("log", "key", "seq"))
            found += zip(*columns, strict=True)
    return sorted(found)


def read(cluster: FakeCluster, **options: str) -> list[Row]:
    made = source(cluster, **options)
    reader = made.reader(made.schema())
    return rows(reader, reader.partitions())


def expected(*counts: tuple[str, int]) -> list[Row]:
    return [
        (name, key, seq) for name, count in counts for key in (b"a", b"m")
        for seq in range(1, count + 1)
    ]  # fmt: skip


def test_a_batch_reads_the_named_logs_or_those_of_a_prefix(cluster: FakeCluster) -> None:
    two = expected(("eu/orders", 1), ("eu/returns", 2))
    assert read(cluster, logPrefix="eu/") == two
    assert read(cluster, logs='["eu/returns", "eu/orders"]') == two
    assert read(cluster, logs='["us/orders"]', startingSeq="3") == [
        ("us/orders", b"a", 3), ("us/orders", b"m", 3),
    ]  # fmt: skip
    assert read(cluster, logPrefix="as/") == []
    with pytest.raises(LogNotFound):
        read(cluster, logs='["eu/orders", "nope"]')


def test_each_log_has_its_part_of_the_partitions(cluster: FakeCluster) -> None:
    fill(cluster, "eu/orders", 50)
    made = source(cluster, logPrefix="eu/", minPartitions="3")
    assert len(made.reader(made.schema()).partitions()) >= 3


def test_a_query_that_fails_at_one_log_leaves_no_lease_on_the_others(cluster: FakeCluster) -> None:
    cluster.ranges[-1].earliest = 3
    with pytest.raises(NotFound, match=r"of log 'us/orders'.*below seq 3 are gone"):
        read(cluster, logs='["eu/orders", "us/orders"]', startingSeq="1")
    assert not any(known.leases for known in cluster.ranges)


def test_too_many_logs_of_a_prefix_are_refused(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "logs_max", 1)
    with pytest.raises(InvalidArgument, match="2 logs begin with 'eu/'; a query reads at most 1"):
        read(cluster, logPrefix="eu/")


# Streams.


def test_the_logs_of_a_stream_share_the_partitions(cluster: FakeCluster) -> None:
    reader = stream(cluster, logPrefix="eu/", minPartitions="4")
    start = json.loads(json.dumps(reader.initialOffset()))
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    tasks = reader.partitions(start, end)
    assert len(tasks) >= 4
    assert sorted(rows(reader, tasks)) == expected(("eu/orders", 1), ("eu/returns", 2))


def stream(cluster: FakeCluster, **options: str) -> SeveralReader:
    made = source(cluster, **options)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, SeveralReader)
    return reader


def batches(reader: SeveralReader, start: Any, count: int) -> tuple[list[list[Row]], Any]:
    """The rows of at most so many micro-batches, and the last offset. Offsets go through JSON."""
    found: list[list[Row]] = []
    for _ in range(count):
        begin = json.loads(json.dumps(start))
        start = json.loads(json.dumps(reader.latestOffset(begin, reader.getDefaultReadLimit())))
        if json.dumps(start) == json.dumps(begin):
            break
        copy = pickle.loads(pickle.dumps(reader))
        found.append(rows(copy, reader.partitions(begin, start)))
    return found, start


def test_a_stream_reads_each_log_once_and_goes_on_after_a_restart(cluster: FakeCluster) -> None:
    reader = stream(cluster, logPrefix="eu/")
    start = reader.initialOffset()
    found, end = batches(reader, start, 5)
    assert found == [expected(("eu/orders", 1), ("eu/returns", 2))]
    fill(cluster, "eu/orders", 1)
    fill(cluster, "us/orders", 1)
    again, end = batches(stream(cluster, logPrefix="eu/"), end, 5)
    assert again == [[("eu/orders", b"a", 2), ("eu/orders", b"m", 2)]]
    assert batches(stream(cluster, logPrefix="eu/"), end, 5) == ([], end)


def test_a_log_that_is_created_later_joins_with_its_start_in_the_checkpoint(
    cluster: FakeCluster,
) -> None:
    reader = stream(cluster, logPrefix="eu/")
    _, before = batches(reader, reader.initialOffset(), 5)
    cluster.create("eu/visits", (b"m",))
    fill(cluster, "eu/visits", 3)
    (joined, first), end = batches(reader, before, 2)
    assert (joined, first) == ([], expected(("eu/visits", 3)))
    _, start = batches(reader, before, 1)
    fill(cluster, "eu/visits", 1)
    assert rows(reader, reader.partitions(start, end)) == first, "the same when it runs again"


def test_the_logs_of_a_stream_share_the_limit(cluster: FakeCluster) -> None:
    fill(cluster, "eu/orders", 10)
    reader = stream(cluster, logPrefix="eu/", maxEntriesPerTrigger="8")
    found, _ = batches(reader, reader.initialOffset(), 20)
    assert [len(each) for each in found[:3]] == [8, 8, 8]
    assert {name for name, _, _ in found[0]} == {"eu/orders", "eu/returns"}
    whole = [row for each in found for row in each]
    assert sorted(whole) == expected(("eu/orders", 11), ("eu/returns", 2))
    small = stream(cluster, logPrefix="eu/", maxBytesPerTrigger="4")
    found, _ = batches(small, small.initialOffset(), 20)
    assert max(map(len, found)) <= 5
    lazy = stream(cluster, logPrefix="eu/", minEntriesPerTrigger="1000")
    first, end = batches(lazy, lazy.initialOffset(), 5)
    assert [len(each) for each in first] == [26], "the first micro-batch of a run waits for nothing"
    fill(cluster, "eu/orders", 1)
    assert batches(lazy, end, 5) == ([], end)


def test_a_run_of_what_is_available_now_ends_there(cluster: FakeCluster) -> None:
    reader = stream(cluster, logPrefix="eu/")
    reader.prepareForTriggerAvailableNow()
    fill(cluster, "eu/orders", 5)
    cluster.create("eu/visits")
    found, _ = batches(reader, reader.initialOffset(), 5)
    whole = [row for each in found for row in each]
    assert whole == expected(("eu/orders", 1), ("eu/returns", 2))


def test_a_log_that_was_deleted_fails_a_stream_unless_loss_may_be(cluster: FakeCluster) -> None:
    reader = stream(cluster, logPrefix="eu/")
    _, end = batches(reader, reader.initialOffset(), 5)
    del cluster.logs["eu/returns"]
    with pytest.raises(NotFound, match="log 'eu/returns', which this stream has read, was deleted"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    lax = stream(cluster, logPrefix="eu/", failOnDataLoss="false")
    fill(cluster, "eu/orders", 1)
    found, end = batches(lax, end, 5)
    assert found == [[("eu/orders", b"a", 2), ("eu/orders", b"m", 2)]]
    assert list(end["logs"]) == ["eu/orders"]


def test_a_log_with_the_name_of_a_deleted_log_joins_anew(cluster: FakeCluster) -> None:
    lax = stream(cluster, logPrefix="eu/", failOnDataLoss="false")
    _, end = batches(lax, lax.initialOffset(), 5)
    cluster.ranges = [each for each in cluster.ranges if each.log_id != cluster.logs["eu/returns"]]
    del cluster.logs["eu/returns"]
    cluster.logs["gone"] = 99
    cluster.create("eu/returns", (b"m",))
    fill(cluster, "eu/returns", 1)
    found, _ = batches(lax, end, 5)
    assert found == [[], expected(("eu/returns", 1))]


def test_a_checkpoint_of_one_log_is_not_one_of_several(cluster: FakeCluster) -> None:
    one = source(cluster, log="eu/orders")
    start = one.streamReader(one.schema()).initialOffset()
    with pytest.raises(InvalidArgument, match="Give each query a checkpoint of its own"):
        stream(cluster, logPrefix="eu/").latestOffset(start, None)


# Cursors.


def position(cluster: FakeCluster, name: str, key: bytes) -> int:
    (known,) = (
        each for each in cluster.ranges
        if each.log_id == cluster.logs[name] and each.start <= key
        and (each.end is None or key < each.end)
    )  # fmt: skip
    return known.cursors.found["tail"].position(key)


def test_G3_a_stream_keeps_a_cursor_in_each_log(cluster: FakeCluster) -> None:
    options = {"logPrefix": "eu/", "cursor": "tail", "startingSeq": "latest"}
    reader = stream(cluster, **options)
    start = json.loads(json.dumps(reader.initialOffset()))
    assert batches(reader, start, 5) == ([], start)
    fill(cluster, "eu/orders", 2)
    fill(cluster, "eu/returns", 1)
    due = [("eu/orders", b"a", 2), ("eu/orders", b"a", 3), ("eu/orders", b"m", 2),
           ("eu/orders", b"m", 3), ("eu/returns", b"a", 3), ("eu/returns", b"m", 3)]  # fmt: skip
    found, end = batches(reader, start, 5)
    assert found == [due]
    # The first micro-batch fails, and the query starts again: it begins where it did.
    again = stream(cluster, **options)
    assert json.loads(json.dumps(again.initialOffset())) == start
    again.commit(end)
    assert (position(cluster, "eu/orders", b"a"), position(cluster, "eu/returns", b"m")) == (4, 4)
    with pytest.raises(Fenced):
        reader.commit(end)
    fresh = stream(cluster, logPrefix="eu/", cursor="tail")
    assert batches(fresh, fresh.initialOffset(), 5)[0] == [], "a new checkpoint begins there"
    fill(cluster, "eu/orders", 1)
    last = json.loads(json.dumps(fresh.latestOffset(fresh.initialOffset(), None)))
    fresh.commit(last)
    fresh.commit(last)
    assert position(cluster, "eu/orders", b"m") == 5


def test_a_deleted_log_does_not_hinder_the_cursors_of_the_others(cluster: FakeCluster) -> None:
    reader = stream(cluster, logPrefix="eu/", cursor="tail", failOnDataLoss="false")
    _, end = batches(reader, reader.initialOffset(), 5)
    del cluster.logs["eu/returns"]
    reader.commit(end)
    assert position(cluster, "eu/orders", b"a") == 2
