"""Removal on real processes: all nodes show the same, through kills, and their files go."""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from metrics_page import metric

import lognode
from lognode import testing
from lognode.testing import LocalNode

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
SMALL = ("--wal-file-bytes", "65536")
"""Segments are built after some hundred KiB: their memtables keep WAL files."""
_PATIENCE_S = 120.0

Shown = list[tuple[bytes, int, bytes | None]]


def shown(log: lognode.Log, keys: Iterable[bytes], node: int | None = None) -> Shown:
    """The entries of the keys; of that node's own replica."""
    return [
        (entry.key, entry.seq, entry.value)
        for key in keys
        for entry in log.scan(key, node=node, timeout=30)
    ]


def same_on_all(log: lognode.Log, keys: Iterable[bytes], nodes: Iterable[int] = NODES) -> Shown:
    """What all nodes show of the keys: by scan, count, latest and keys the same."""
    wanted = list(keys)
    expected = shown(log, wanted)
    for node in nodes:
        assert shown(log, wanted, node) == expected, f"node {node}"
        for key in wanted:
            own = [seq for of, seq, _ in expected if of == key]
            assert log.count(key, node=node) == len(own)
            latest = log.latest(key, node=node)
            assert (latest.seq if latest else None) == (own[-1] if own else None)
        present = {key for key, _, _ in expected}
        assert {key for key in log.keys(node=node) if key in wanted} == present
    return expected


def segments(node: LocalNode) -> dict[str, int]:
    """The files of segments on a node, and their sizes."""
    found = {}
    for path in (node.data / "files").glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return found


def fill(log: lognode.Log, batches: int, key: bytes = b"fill") -> int:
    """Appends of 64 KiB that do not compress; the last seq."""
    last = 0
    for _ in range(batches):
        acks = log.append_many([(key, os.urandom(8_000)) for _ in range(8)])
        last = acks[-1].seq or 0
    return last


def at_rest(log: lognode.Log, key: bytes) -> None:
    """Return once retention, which was just switched off, has removed nothing for two looks."""
    looks_s = 5.0
    first, since = None, time.monotonic()
    while time.monotonic() - since < looks_s:
        now = next(iter(log.scan(key, limit=1, timeout=30))).seq
        if now != first:
            first, since = now, time.monotonic()
        time.sleep(0.1)


def test_S6_S11_trim_and_delete_are_seen_by_all_and_survive_kills(tmp_path: Path) -> None:
    keys = [b"a", b"b", b"c", b"m", b"z"]
    with testing.cluster(tmp_path, 3) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("orders", split_at=["m"])
            testing.wait_healthy(cluster)
            log.append_many([(key, b"%d" % n) for n in range(10) for key in keys])
            before = {key: [e.seq for e in log.scan(key)] for key in keys}
            log.trim(b"a", before[b"a"][4])
            log.trim(b"m", before[b"m"][9] + 1)  # all of it, and yet not deleted
            log.delete_key(b"b")
            log.delete_key(b"z")
            revived = log.append(b"z", b"again", expect=lognode.ABSENT).seq or 0
            assert revived > before[b"z"][-1], "S6: no seq is used twice"
            expected = {b"a": before[b"a"][4:], b"c": before[b"c"], b"z": [revived]}

            def check() -> Shown:
                found = same_on_all(log, keys)
                assert {k: [s for of, s, _ in found if of == k] for k in keys} == {
                    key: expected.get(key, []) for key in keys
                }
                return found

            history = check()
            leader = cluster.nodes[testing.leader_of(client, "orders") - 1]
            leader.kill()
            rest = {*NODES} - {leader.number}
            assert same_on_all(log, keys, rest) == history
            # Removal goes on while a member is down, and that member catches up.
            log.trim(b"c", before[b"c"][7])
            log.delete_key(b"a")
            expected = {b"c": before[b"c"][7:], b"z": [revived]}
            leader.start()
            leader.wait_ready()
            testing.wait_healthy(cluster)
            history = check()
            for node in cluster.nodes:
                node.kill()
            for node in cluster.nodes:
                node.start()
            testing.wait_healthy(cluster)
            assert check() == history
            log.delete_key(b"b")  # nothing is there
            log.trim(b"nobody", 7)
            assert check() == history


@pytest.mark.by_hand
def test_S6_retention_by_bytes_and_by_time_frees_files_on_every_node(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 3, flags=SMALL) as cluster:
        testing.wait_healthy(cluster)

        def freed(node: LocalNode) -> float:
            return float(metric(node, "lognode_removed_bytes_total"))

        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("events")
            testing.wait_healthy(cluster)
            fill(log, 40)
            testing.eventually(
                lambda: all(map(segments, cluster.nodes)), what="segments", timeout_s=_PATIENCE_S
            )
            *others, away = cluster.nodes
            away.kill()
            client.alter_log("events", retention_bytes=1)
            # Members that froze by themselves have other segments than the leader, by which it
            # decides: what straddles its floor goes with the next ones.
            testing.eventually(
                lambda: fill(log, 4) and all(freed(node) > 0 for node in others),
                what="files go while a member is down", timeout_s=_PATIENCE_S,
            )  # fmt: skip
            last = fill(log, 1)
            # The nodes are compared page by page, and so between two decisions of retention.
            client.alter_log("events", retention_bytes=None)
            at_rest(log, b"fill")
            away.start()
            away.wait_ready()
            kept = same_on_all(log, [b"fill"])
            assert kept[-1][1] == last, "the newest segment stays, whatever its size"
            assert kept[0][1] > 1
            # Time takes all of it, on all of them.
            client.alter_log("events", retention_ms=1)
            # Who gave the absent one its files keeps these for a minute.
            testing.eventually(
                lambda: not any(map(held, cluster.nodes)) and not all(map(segments, cluster.nodes)),
                what="no segment is left on any node", timeout_s=_PATIENCE_S,
            )  # fmt: skip
            assert same_on_all(log, [b"fill"]) == []
            assert fill(log, 1) == last + 8


def held(node: LocalNode) -> int:
    """Bytes of segments that the replicas on a node hold."""
    return sum(row["segment_bytes"] for row in node.status()["replicas"])
