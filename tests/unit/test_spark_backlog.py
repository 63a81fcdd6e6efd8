"""The backlog that a stream reports for the progress of its query. Scripted nodes, no JVM."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_cluster import FakeCluster, Stored
from fake_thread import fake_cluster_thread

from lognode.client.protocol.errors import Unauthorized
from lognode.client.protocol.reads import LAYOUT, READ_SPAN
from lognode.client.spark.source import LognodeSource

AGE_S = 500


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster_thread() as made:
        made.create("one", (b"m",))
        made.create("two")
        for known in made.ranges:
            for at in range(10):
                ms = int(time.time() - AGE_S + 10 * at) * 1_000
                key = known.start or b"a"
                known.entries.append(Stored(key, known.next_seq, ms, None, b"v" * 20))
                known.next_seq += 1
        yield made


def stream(cluster: FakeCluster, **options: str) -> Any:
    made = LognodeSource({"servers": cluster.address, "timeout": "5s", **options})
    return made.streamReader(made.schema())


def backlog(reader: Any, start: Any) -> tuple[Any, dict[str, Any]]:
    """The end of the next micro-batch, and the backlog behind it."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reported = json.loads(json.dumps(reader.reportLatestOffset()))
    return end, reported["backlog"]


def test_a_stream_reports_entries_bytes_and_the_age_of_the_oldest(cluster: FakeCluster) -> None:
    reader = stream(cluster, log="one", maxEntriesPerTrigger="6")
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    end, found = backlog(reader, start)
    assert (found["entries"], found["bytes"]) == (14, 14 * 20)
    assert AGE_S - 40 <= found["seconds"] <= AGE_S, "three of each range come first"
    reported = reader.reportLatestOffset()
    assert [part["through_seq"] for part in reported["parts"]] == [10]
    before = cluster.count(LAYOUT)
    end, found = backlog(reader, end)
    assert found["entries"] == 8
    assert cluster.count(LAYOUT) == before, "the size of an entry is asked for once a minute"


def test_a_stream_without_a_backlog_asks_for_nothing(cluster: FakeCluster) -> None:
    reader = stream(cluster, log="one")
    end, found = backlog(reader, reader.initialOffset())
    nothing = {"entries": 0, "bytes": 0, "seconds": 0}
    assert found == nothing
    reader.latestOffset(end, reader.getDefaultReadLimit())
    before = len(cluster.requests)
    assert reader.reportLatestOffset()["backlog"] == nothing
    assert len(cluster.requests) == before


def test_only_the_keys_of_the_query_count(cluster: FakeCluster) -> None:
    reader = stream(cluster, log="one", keyPrefix="m", maxEntriesPerTrigger="4")
    _, found = backlog(reader, reader.initialOffset())
    assert found["entries"] == 6


def test_the_backlog_of_several_logs_is_one(cluster: FakeCluster) -> None:
    reader = stream(cluster, logs='["one", "two"]', maxEntriesPerTrigger="6")
    assert reader.reportLatestOffset() is None
    end, found = backlog(reader, reader.initialOffset())
    assert (found["entries"], found["bytes"]) == (24, 24 * 20)
    assert list(reader.reportLatestOffset()["logs"]) == ["one", "two"]
    _, found = backlog(reader, end)
    assert found["entries"] == 18


def test_a_stream_that_waits_has_all_that_is_unread_as_its_backlog(cluster: FakeCluster) -> None:
    reader = stream(cluster, log="one", minEntriesPerTrigger="50")
    end, _ = backlog(reader, reader.initialOffset())
    known = cluster.ranges[0]
    known.entries.append(Stored(b"a", known.next_seq, 1_000, None, b"v"))
    known.next_seq += 1
    again, found = backlog(reader, end)
    assert again == end
    assert found["entries"] == 1


def test_a_query_goes_on_where_its_backlog_cannot_be_measured(cluster: FakeCluster) -> None:
    for node in cluster.nodes.values():
        read = node.read

        def refuses(op: Any, *asked: Any, read: Any = read) -> Any:
            if op == READ_SPAN:
                raise Unauthorized("patterns only")
            return read(op, *asked)

        node.read = refuses
    reader = stream(cluster, log="one", maxEntriesPerTrigger="6")
    _, found = backlog(reader, reader.initialOffset())
    assert found == {"entries": 14}
