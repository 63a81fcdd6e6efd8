"""S1, L1: a disk of any size refuses appends before it ends the node, whatever the operator set."""

import contextlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from small_disk import fill

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

MIB = 1 << 20
WAL_FILE = 16 * MIB
FLAGS = ("--wal-file-bytes", str(WAL_FILE), "--disk-reserve-bytes", "0", "--balance", "off")
"""No reserve of the operator's: two WAL files are kept all the same."""
RECORDS = [(b"key-%d" % n, os.urandom(16 << 10)) for n in range(32)]


def load(log: lognode.Log, until: Callable[[], bool], limit_s: float = 120.0) -> int:
    """Append until that holds, whatever is refused; the records that were acknowledged."""
    count, deadline = 0, time.monotonic() + limit_s
    while not until():
        assert time.monotonic() < deadline, f"{count} records, and it goes on"
        with contextlib.suppress(lognode.Overloaded, lognode.Timeout, lognode.PartialFailure):
            log.append_many(RECORDS, timeout=2)
            count += len(RECORDS)
    return count


def refuses(log: lognode.Log) -> bool:
    """Whether an append is refused for lack of room, as not applied (S11)."""
    found: lognode.LognodeError | None = None
    try:
        log.append(b"one more", b"value", timeout=0.5)
    except (lognode.Overloaded, lognode.Timeout) as error:
        found = error
    if found is not None:
        assert found.outcome == "not_applied"
        assert "the node refuses appends until the disk has space" in found.message
    return found is not None


def free(place: Path) -> int:
    room = os.statvfs(place)
    return room.f_bavail * room.f_frsize


@pytest.mark.by_hand
def test_S1_S11_a_disk_of_200_MB_under_load_refuses_and_goes_on_when_there_is_room(
    disk_of_200_mb: Path, tmp_path: Path
) -> None:
    """The node ended when less than a WAL file was left of the disk."""
    with testing.cluster(tmp_path, 1, flags=FLAGS, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = disk_of_200_mb / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            log = client.create_log("orders")
            acknowledged = load(log, lambda: refuses(log))
            assert node.running
            assert acknowledged > 1_000, "a part of the disk was used"
            held = sum(log.count(key) for key, _ in RECORDS)
            assert held >= acknowledged
            until = time.monotonic() + 5
            load(log, lambda: time.monotonic() > until)
            assert node.running, "it ended although it was asked for nothing new"
            # Whatever else takes the rest of the disk.
            filler = fill(disk_of_200_mb, leave=0)
            assert free(disk_of_200_mb) < MIB
            until = time.monotonic() + 5
            load(log, lambda: time.monotonic() > until)
            assert node.running
            assert refuses(log)
            testing.eventually(
                lambda: client.status()["disk"]["level"] == "LAST", what="the status says so"
            )
            with pytest.raises(lognode.LognodeError, match="disk of node 1 is full"):
                client.create_log("another", split_at=[b"%d" % n for n in range(100)], timeout=1)
            assert sum(log.count(key) for key, _ in RECORDS) >= held
            filler.unlink()
            client.alter_log("orders", retention_bytes=MIB)
            testing.eventually(lambda: not refuses(log), what="it goes on", timeout_s=60)
            assert load(log, lambda: refuses(log)) > 0, "and has used what was freed"
            testing.eventually(lambda: not refuses(log), what="retention alone makes room")
            acks = [log.append(b"after", b"%d" % n) for n in range(10)]
            node.kill()
            node.start()
            node.wait_ready()
            assert [entry.seq for entry in log.scan(b"after")] == [ack.seq for ack in acks]


@pytest.mark.by_hand
def test_L1_a_follower_whose_disk_is_full_takes_no_entries_and_the_others_go_on(
    disk_of_200_mb: Path, tmp_path: Path
) -> None:
    """It took the entries of other leaders until its disk was full, and ended."""
    with testing.cluster(tmp_path, 3, flags=FLAGS, start=False) as cluster:
        victim = cluster.nodes[2]
        victim.data = disk_of_200_mb / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("orders")
            testing.wait_healthy(cluster)

            def says(what: str) -> bool:
                return what in victim.log_path.read_text()

            load(log, lambda: says("the node refuses entries of other leaders"))
            fill(disk_of_200_mb, leave=0)
            others_go_on(log)
            assert victim.running, victim.log_tail(2_000)


def others_go_on(log: lognode.Log) -> None:
    """200 appends, of 13 MB together, each of which is acknowledged: two of three have room."""
    for _ in range(200):
        log.append_many(RECORDS[:4])


@pytest.mark.by_hand
def test_L1_a_follower_whose_disk_another_program_filled_catches_up_when_there_is_room(
    disk_of_200_mb: Path, tmp_path: Path
) -> None:
    with testing.cluster(tmp_path, 3, flags=FLAGS, start=False) as cluster:
        victim = cluster.nodes[2]
        victim.data = disk_of_200_mb / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("orders", retention_bytes=8 * MIB)
            testing.wait_healthy(cluster)
            log.append_many(RECORDS)

            def says(what: str) -> bool:
                return what in victim.log_path.read_text()

            filler = fill(disk_of_200_mb, leave=0)
            testing.eventually(
                lambda: says("the node refuses entries of other leaders"), what="it has no room"
            )
            others_go_on(log)
            assert victim.running, victim.log_tail(2_000)
            filler.unlink()
            testing.eventually(
                lambda: says("the node accepts entries of other leaders again"), what="it has room"
            )
            last = log.append(b"after", b"value")
            testing.wait_healthy(cluster)
            testing.eventually(
                lambda: has(log, victim.number, last.seq), what="it has caught up", timeout_s=60
            )
            assert victim.running


def has(log: lognode.Log, node: int, seq: int | None) -> bool:
    with contextlib.suppress(lognode.Timeout, lognode.Unavailable):
        return log.count(b"after", node=node, through=seq, timeout=2) == 1
    return False


def test_a_disk_that_is_too_small_is_said_at_the_start(small_disk: Path, tmp_path: Path) -> None:
    """48 MiB, with the reserve of 512 MiB and WAL files of 4 MiB."""
    flags = ("--wal-file-bytes", str(4 * MIB))
    with testing.cluster(tmp_path, 1, flags=flags, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = small_disk / "data"
        node.start()
        testing.eventually(lambda: "is ready and serves" in node.log_path.read_text())
        (line,) = [each for each in node.log_path.read_text().splitlines() if "too small" in each]
        assert str(48 * MIB) in line
        assert "give smaller --disk-reserve-bytes and --wal-file-bytes" in line
        with lognode.Client(cluster.servers) as client:
            testing.eventually(
                lambda: [row["state"] for row in client.status()["nodes"]] == ["ACTIVE"],
                what="the node is registered",
            )
            assert refuses(client.create_log("orders"))
        with pytest.raises(urllib.error.HTTPError) as unready:
            urllib.request.urlopen(f"http://{node.http}/readyz", timeout=10.0)
        assert "give a smaller --disk-reserve-bytes" in unready.value.read().decode()
