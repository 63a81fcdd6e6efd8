"""S6, S11: below the reserve of a disk appends are refused, and all that makes room goes on."""

import os
from pathlib import Path

import pytest
from metrics_page import metric
from small_disk import fill

import lognode
from lognode import testing

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

MIB = 1 << 20
RESERVE = 16 * MIB
FLAGS = ("--wal-file-bytes", "65536", "--disk-reserve-bytes", str(RESERVE))
"""Segments are built after some hundred KiB: their memtables keep WAL files."""
KEPT = [b"a", b"b", b"c"]


def refused(client: lognode.Client) -> bool:
    """Whether an append is; then it surely was not applied (S11)."""
    log = client.log("orders")
    before, found = log.latest(b"one more"), None
    try:
        log.append(b"one more", b"", timeout=0.5)
    except (lognode.Overloaded, lognode.Timeout) as error:
        found = error
    if found is not None:
        assert found.outcome == "not_applied"
        assert "the disk of node 1 is almost full" in found.message
        assert log.latest(b"one more") == before
    return found is not None


def held(node: testing.LocalNode) -> int:
    """Bytes of segments."""
    return sum(row.get("segment_bytes", 0) for row in node.status()["replicas"])


def unbuilt(node: testing.LocalNode) -> int:
    """Bytes of entries that are in no segment yet."""
    return sum(row.get("memtable_bytes", 0) for row in node.status()["replicas"])


def removed_bytes(node: testing.LocalNode) -> float:
    return float(metric(node, "lognode_removed_bytes_total"))


@pytest.mark.parametrize("leave", [12 * MIB, RESERVE // 4 - MIB // 2], ids=["low", "last"])
def test_S6_S11_trim_delete_and_retention_go_on_below_the_reserve_and_make_room_for_appends(
    small_disk: Path, tmp_path: Path, leave: int
) -> None:
    with testing.cluster(tmp_path, 1, flags=FLAGS, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = small_disk / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=30) as client:
            log, other = client.create_log("orders"), client.create_log("others")
            seqs = {key: [log.append(key, b"%d" % n).seq or 0 for n in range(9)] for key in KEPT}
            for _ in range(200):
                other.append_many([(b"fill", os.urandom(8_000)) for _ in range(8)])

            def mostly_built() -> bool:
                """Retention waits for a segment of what is in memory now. The segment is built if
                2.5 times its bytes are free (`DiskRoom.may_build`), and 3.5 MiB will be."""
                if held(node) > 11 * MIB and unbuilt(node) < MIB:
                    return True
                other.append_many([(b"fill", os.urandom(8_000)) for _ in range(8)])
                return False

            testing.eventually(mostly_built, what="most is in segments")
            assert node.stop() == 0  # so that nothing is just being built or merged
            filler = fill(small_disk, leave=leave)
            node.start()
            node.wait_ready()
            testing.eventually(lambda: refused(client), what="appends are refused")

            log.trim(b"a", seqs[b"a"][4])
            log.delete_key(b"b")
            assert [entry.seq for entry in log.scan(b"a")] == seqs[b"a"][4:]
            assert log.count(b"a") == 5
            assert log.latest(b"b") is None
            assert set(log.keys()) - {b"one more"} == {b"a", b"c"}
            assert refused(client)

            gone = removed_bytes(node)
            client.alter_log("others", retention_ms=1)
            testing.eventually(
                lambda: removed_bytes(node) - gone > 8 * MIB, what="files go", timeout_s=60
            )
            if leave < RESERVE // 4:
                assert refused(client), "there is more room, and not enough"
                filler.unlink()
            testing.eventually(lambda: not refused(client), what="appends go on by themselves")
            ack = log.append(b"b", b"again", expect=lognode.ABSENT)
            assert (ack.seq or 0) > max(seqs[b"c"])
            node.kill()
            node.start()
            node.wait_ready()
            assert [entry.seq for entry in log.scan(b"a")] == seqs[b"a"][4:]
            assert [entry.value for entry in log.scan(b"b")] == [b"again"]
            assert [entry.seq for entry in log.scan(b"c")] == seqs[b"c"]
