"""Snapshots on real nodes: they read the same while everything else changes."""

import random
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from cluster_load import Load, Size

import lognode
from lognode import testing
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.statemachine import rules

pytestmark = pytest.mark.cluster

Shown = dict[tuple[bytes, int], bytes | None]
STILL = [b"still %03d" % n for n in range(200)]


def shown(snapshot: lognode.Snapshot, prefix: bytes | None = None) -> Shown:
    """Everything that it shows, each entry once, and each key in the order of seq."""
    found: Shown = {}
    last: dict[bytes, int] = {}
    for entry in snapshot.read(prefix=prefix):
        assert last.get(entry.key, 0) < entry.seq
        last[entry.key] = entry.seq
        found[entry.key, entry.seq] = entry.value
    return found


def in_columns(source: Iterable[lognode.EntryColumns]) -> Shown:
    """The same of columns."""
    found: Shown = {}
    last: dict[bytes, int] = {}
    for columns in source:
        assert len(columns)
        for key, seq, value in zip(columns.keys, columns.seqs, columns.values, strict=True):
            assert last.get(key, 0) < seq
            last[key] = seq
            found[key, seq] = value
    return found


def check_scan(log: lognode.Log, load: Load) -> None:
    """A scan of the log has what was acknowledged before it began (S7), unless it was removed."""
    acked = dict(load.told.acked_seq)
    found = in_columns(log.scan_columns())
    gone = {**load.told.gone, **load.told.maybe_gone}
    for key, seq in acked.items():
        assert (key, seq) in found or seq < gone.get(key, 0), (key, seq)


def test_S5_S6_x14_a_snapshot_reads_the_same_through_splits_merges_removal_and_a_kill(
    three: testing.LocalCluster,
) -> None:
    with (
        lognode.Client(three.servers, timeout=20) as client,
        Load(three.servers, "shots", random.randrange(1 << 32), size=Size(removers=1)) as load,
    ):
        log = client.create_log("shots", split_at=["own", "register", "shared"])
        log.append_many([(key, b"%d" % n) for n in range(10) for key in STILL])
        load.go_on(200)
        acked = dict(load.told.acked_seq)
        gone = {**load.told.gone, **load.told.maybe_gone}
        snapshot = log.snapshot()
        first = shown(snapshot)
        ends = {part.start: part for part in snapshot.vector.parts}
        assert list(ends) == [b"", b"own", b"register", b"shared"]
        for key, seq in acked.items():  # S7: all that was acknowledged before is in it
            assert (key, seq) in first or seq < gone.get(key, 0), (key, seq)
        for (key, seq), _ in first.items():
            part = max((p for p in ends.values() if p.start <= key), key=lambda p: p.start)
            assert seq <= part.through_seq
        assert in_columns(snapshot.read_columns()) == first
        check_scan(log, load)

        client.admin.split("shots", at=b"ox", timeout=60)
        client.admin.split("shots", at=b"still 100", timeout=60)
        three.nodes[1].kill()
        log.append_many([(key, b"later") for key in STILL])
        for key in STILL[:50]:
            log.delete_key(key)
            log.trim(key.replace(b"still 0", b"still 1"), before=1 << 40)
        assert shown(snapshot) == first
        three.nodes[1].start()
        three.nodes[1].wait_ready()
        testing.wait_healthy(three)
        client.admin.merge("shots", at=b"ox", timeout=60)
        load.go_on(200)
        check_scan(log, load)
        saved = snapshot.to_json()
        with lognode.Client(three.servers, timeout=20) as other:
            opened = other.log("shots").open_snapshot(saved)
            assert shown(opened) == first
            assert sum(batch.num_rows for batch in opened.read_arrow()) == len(first)
            of_still = {row: value for row, value in first.items() if row[0].startswith(b"still")}
            assert len(of_still) == 10 * len(STILL)
            assert shown(opened, prefix=b"still") == of_still
            assert [e.value for e in opened.read(STILL[0])] == [b"%d" % n for n in range(10)]
        assert [e.value for e in log.scan(STILL[0])] == []
        snapshot.release()
        with pytest.raises(lognode.NotFound, match="has ended"):
            shown(snapshot)
    assert not load.told.violations


@pytest.mark.by_hand
def test_x14_a_lease_outlives_all_nodes_and_ends_by_the_clock(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 1) as cluster,
        lognode.Client(cluster.servers, timeout=20) as client,
    ):
        log = client.create_log("log", replicas=1, ranges=2)
        log.append_many([(key, b"1") for key in STILL])
        short = log.snapshot(lease_s=1)
        snapshot = log.snapshot()
        log.delete_key(STILL[0])
        (node,) = cluster.nodes
        node.kill()
        node.start()
        node.wait_ready()
        again = log.open_snapshot(snapshot.to_json())
        assert set(shown(again)) == {(key, seq) for key, seq in shown(snapshot)}
        assert {key for key, _ in shown(again)} == set(STILL)
        with pytest.raises(lognode.InvalidArgument, match="the snapshot is of log 'log'"):
            client.create_log("other", replicas=1).open_snapshot(snapshot.vector)
        time.sleep(1.1)
        log.append_many([(key, b"2") for key in STILL])
        snapshot.renew(60)
        with pytest.raises(lognode.NotFound):
            short.renew(60)


def test_a_log_that_was_created_again_is_a_different_log(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 1) as cluster,
        lognode.Client(cluster.servers, timeout=20) as client,
    ):
        log = client.create_log("log", replicas=1)
        log.append("k", b"v")
        saved = log.snapshot().to_json()
        client.delete_log("log")
        again = client.create_log("log", replicas=1)
        again.append("k", b"w")
        with pytest.raises(lognode.InvalidArgument, match="was deleted"):
            list(again.open_snapshot(saved).read())


def test_a_range_without_room_for_a_lease_names_the_limit_at_once(
    three: testing.LocalCluster,
) -> None:
    with lognode.Client(three.servers, timeout=20) as client:
        log = client.create_log("full")
        log.append(b"k", b"v")
        held: list[lognode.Snapshot] = []

        def refused() -> lognode.LimitExceeded | None:
            try:
                held.append(log.snapshot())
            except lognode.LimitExceeded as error:
                return error
            return None

        # A new range begins at the first level, which allows fewer, and follows its cluster.
        most = rules.BY_LEVEL[LEVEL_MAX].leases_max
        found = (refused() for _ in range(10_000))
        error = next(each for each in found if each is not None and each.fields["allowed"] == most)
        assert "leases; at most" in error.message
        assert (error.fields["limit"], len(held)) == ("leases_max", most)
        began_s = time.monotonic()
        assert refused() is not None
        assert time.monotonic() - began_s < 10.0, "before the time limit of the call"
        held.pop().release()
        assert shown(log.snapshot())
