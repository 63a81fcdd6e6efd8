"""Leases of Spark's snapshots: short, renewed while the driver lives, released when it ends.

The renewer is a real process; the nodes are scripted.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fake_cluster import FakeCluster, FakeNode, FakeRange, Stored
from fake_thread import fake_cluster_thread

from lognode.client.accepting.request import Request
from lognode.client.protocol.appends import LEASE_RELEASE, LEASE_TAKE
from lognode.client.protocol.errors import LimitExceeded, NotFound, Unsupported
from lognode.client.spark import driver, leases
from lognode.client.spark.jobs import cli
from lognode.client.spark.options import read_options
from lognode.client.spark.reader import BatchReader
from lognode.client.spark.renewals import Renewals, age_s_max, kept_max
from lognode.client.spark.session import Session
from lognode.client.spark.source import LognodeSource
from lognode.client.vector import Vector
from lognode.testing import eventually


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster_thread() as made:
        made.create("log", (b"m",))
        fill(made)
        yield made


def fill(cluster: FakeCluster) -> None:
    for key in (b"a", b"z"):
        known = cluster.range_of(key)
        known.entries.append(Stored(key, known.next_seq, 1_000, None, b"v"))
        known.next_seq += 1


def reader(cluster: FakeCluster, *, renewed_s: float = 300.0, **more: str) -> BatchReader:
    options = {"servers": cluster.address, "log": "log", "timeout": "5s", **more}
    found = replace(read_options(options, streaming=False), renewed_s=renewed_s)
    return BatchReader(found, LognodeSource(options).schema())


def names(cluster: FakeCluster) -> set[str]:
    """The leases that both ranges have."""
    first, second = (set(known.leases) for known in cluster.ranges)
    return first & second


def rows(made: BatchReader, partitions: Any) -> int:
    return sum(batch.num_rows for each in partitions for batch in made.read(each))


def vector(name: str) -> Vector:
    return Vector("c", "log", 1, name, 0, ())


def keep(
    made: Renewals, name: str, now_s: float, *, is_own: bool = True, mark: str | None = None
) -> list[str]:
    found = made.keep(vector(name), 300.0, is_own=is_own, mark=mark, now_s=now_s)
    return [each.vector.lease for each in found]


# Which leases are renewed.


def test_a_lease_is_renewed_after_a_third_of_its_time_and_tried_again_soon() -> None:
    made = Renewals()
    assert made.wait_s(0.0) is None
    keep(made, "a", 0.0)
    assert (made.wait_s(0.0), made.due(99.0)) == (100.0, [])
    (lease,) = made.due(100.0)
    made.failed(lease, 100.0)
    assert (made.wait_s(100.0), made.due(119.0)) == (20.0, [])
    made.renewed(lease, 120.0)
    assert made.wait_s(120.0) == 100.0
    made.failed(lease, 419.0)
    assert made.wait_s(419.0) == 20.0
    made.failed(lease, 420.0)
    assert made.wait_s(420.0) is None, "without a renewal the lease has ended"


def test_the_oldest_leases_give_way_and_a_new_query_makes_a_lease_new() -> None:
    made = Renewals()
    for at in range(kept_max):
        assert keep(made, f"l{at}", float(at)) == []
    assert keep(made, "l0", 50.0) == []
    assert keep(made, "more", 51.0) == ["l1"]
    oldest = made.give_way()
    assert oldest is not None
    assert oldest.vector.lease == "l2"
    assert len(made.all()) == kept_max - 1
    assert made.give_way() is None


def test_a_lease_of_somebody_else_gives_no_way() -> None:
    made = Renewals()
    keep(made, "given", 0.0, is_own=False)
    assert made.give_way() is None
    keep(made, "own", 1.0)
    oldest = made.give_way()
    assert oldest is not None
    assert oldest.vector.lease == "own"


def test_a_lease_that_is_shared_is_new_again() -> None:
    made = Renewals()
    keep(made, "a", 0.0, mark="one")
    keep(made, "b", 1.0)
    assert made.shared("two", 2.0) is None
    assert made.shared("one", age_s_max) == vector("a")
    assert [each.vector.lease for each in made.over(age_s_max + 1)] == ["b"]
    assert made.give_way() is not None


def test_a_driver_that_lives_on_lets_an_old_lease_go() -> None:
    made = Renewals()
    keep(made, "a", 0.0)
    for now in range(0, int(age_s_max), 200):
        assert made.over(float(now)) == []
        for lease in made.due(float(now)):
            made.renewed(lease, float(now))
    assert [each.vector.lease for each in made.over(age_s_max)] == ["a"]


# Whose life they follow.


def test_the_driver_is_an_ancestor_that_runs_java_or_this_process() -> None:
    found = driver.driver()
    assert found.name == "java" or found.pid == os.getpid()
    assert driver.lives(found.pid, found.started)
    assert not driver.lives(found.pid, "another start")


def test_a_process_that_ended_lives_no_more_though_nobody_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = driver.from_ps(child.pid)
        assert found is not None
        assert found.parent == os.getpid()
        assert found.name.startswith("python")
        child.kill()
        eventually(lambda: driver.from_ps(child.pid) is None, what="ps shows the end")
        assert not driver.lives(child.pid, found.started)


# The renewer.


def test_a_job_that_outlives_its_first_lease_goes_on(cluster: FakeCluster) -> None:
    made = reader(cluster, renewed_s=1.5)
    partitions = made.partitions()
    before = cluster.count(LEASE_TAKE)
    eventually(lambda: cluster.count(LEASE_TAKE) >= before + 6, what="renewed three times")
    assert len(names(cluster)) == 1
    assert rows(made, partitions) == 2


@pytest.mark.by_hand
def test_300_loads_do_not_run_out_of_leases(cluster: FakeCluster) -> None:
    def full(node: FakeNode, request: Request, when: str) -> None:
        if when == "lease" and not request.body["renew"]:
            held = [known.leases for known in cluster.ranges]
            if any(request.body["lease"] not in each and len(each) >= 20 for each in held):
                raise LimitExceeded("20 leases", limit="leases_max", value=21, allowed=20)

    cluster.faults.append(full)
    for _ in range(300):
        fill(cluster)
        made = reader(cluster)
        partitions = made.partitions()
        assert len(names(cluster)) <= 20
    assert rows(made, partitions) == 2 * 301


def test_a_load_without_room_for_a_lease_names_the_limit(cluster: FakeCluster) -> None:
    def full(node: FakeNode, request: Request, when: str) -> None:
        if when == "lease":
            raise LimitExceeded("20 leases", limit="leases_max", value=21, allowed=20)

    cluster.faults.append(full)
    with pytest.raises(LimitExceeded, match="20 leases"):
        reader(cluster).partitions()


def test_a_driver_keeps_the_newest_snapshots(cluster: FakeCluster) -> None:
    for _ in range(kept_max + 5):
        fill(cluster)
        reader(cluster).partitions()
    eventually(lambda: len(names(cluster)) == kept_max, what="the oldest are released")


def with_indexes(cluster: FakeCluster) -> dict[int, int]:
    """Have the nodes tell what they applied, with these further entries of each range."""
    more = {known.range_id: 0 for known in cluster.ranges}

    def applied(known: FakeRange) -> int:
        changes: int = sum(
            op in (LEASE_TAKE, LEASE_RELEASE) and body["range"] == known.range_id
            for _, op, body in cluster.requests
        )  # fmt: skip
        found: int = known.next_seq
        return 10 + found + changes + more[known.range_id]

    for node in cluster.nodes.values():
        read = node.read
        node.read = lambda op, body, known, read=read: (
            {**read(op, body, known), "applied": applied(known)}
        )
    return more


def test_queries_of_a_log_that_did_not_change_share_a_lease(cluster: FakeCluster) -> None:
    more = with_indexes(cluster)
    first = reader(cluster)
    partitions = first.partitions()
    assert reader(cluster, columns="key").partitions()
    assert len(names(cluster)) == 1
    fill(cluster)
    assert rows(reader(cluster), reader(cluster).partitions()) == 4
    assert len(names(cluster)) == 2, "the log has an entry more"
    more[cluster.ranges[0].range_id] += 1
    assert reader(cluster).partitions()
    assert len(names(cluster)) == 3, "a removal changes no seq, but what a query shows"
    cluster.ranges[0].earliest = 3
    with pytest.raises(NotFound, match="below seq"):
        reader(cluster, startingSeq="1").partitions()
    assert len(names(cluster)) == 3, "a query that fails leaves the lease of the others"
    assert rows(first, partitions) == 2


def test_a_lease_is_not_shared_where_something_else_came_in_between(cluster: FakeCluster) -> None:
    more = with_indexes(cluster)

    def also(node: FakeNode, request: Request, when: str) -> None:
        if when == "lease":
            more[request.body["range"]] += 1

    cluster.faults.append(also)
    for count in range(1, 4):
        assert reader(cluster).partitions()
        assert len(names(cluster)) == count


_DRIVER = """
import sys
from lognode.client.spark.source import LognodeSource
servers, given = sys.argv[1:]
for more in {}, {"asOf": given}, {"snapshotLease": "1h"}:
    made = LognodeSource({"servers": servers, "log": "log", **more})
    assert made.reader(made.schema()).partitions()
print("planned", flush=True)
sys.stdin.read()
"""


def test_own_leases_end_with_the_driver_and_given_or_fixed_leases_do_not(
    cluster: FakeCluster,
) -> None:
    if driver.driver().name == "java":
        pytest.skip("these tests run below a Java, which counts as the driver")
    with Session(cluster.address, "log", timeout=5.0) as session:
        given = session.snapshot(60.0)
    asked = [sys.executable, "-c", _DRIVER, cluster.address, given.to_json()]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(asked, text=True, **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "planned\n"
        held = names(cluster)
        assert len(held) == 3
        places = list(leases.folder().glob(f"{child.pid}-*"))
        assert places
        child.kill()
    eventually(lambda: len(names(cluster)) == 2, what="the driver's own lease is released")
    assert given.lease in names(cluster)
    eventually(lambda: not any(map(Path.exists, places)), what="the renewer ends too")


def test_the_renewer_listens_where_nobody_else_may(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = leases.folder()
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    with pytest.raises(Unsupported, match="not a folder of this user alone; remove") as raised:
        reader(cluster).partitions()
    assert "Give the option snapshotLease" in str(raised.value)
    assert names(cluster) == set(), "what is not read is not held"
    assert reader(cluster, snapshotLease="1m").partitions()


def test_the_lease_of_a_jobs_snapshot_is_renewed_whatever_its_first_time_is() -> None:
    """A job that took longer than `--lease` lost its snapshot in the middle."""
    spark = Mock()
    words = ["flights", "--server", "h:1", "--lease", "10m"]
    cli.load(spark, cli.parser("export", "Exports.", ()).parse_args(words), {"keyPrefix": "N"})
    given = spark.read.format.return_value.options.call_args.kwargs
    found = read_options(given, streaming=False)
    assert found.renews
    assert found.prefix == b"N"
