"""kill -9 of a node in the middle of a merge: the same answers afterwards, and no file too many."""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.testing import LocalNode

pytestmark = [pytest.mark.cluster, pytest.mark.by_hand]

FLAGS = ("--wal-file-bytes", str(256 << 10))
"""Memtables keep WAL files: a segment is built after some of them."""
KEYS = [b"k%02d" % at for at in range(20)]
Written = dict[bytes, list[tuple[int, bytes]]]


def merger_of(node: LocalNode) -> int | None:
    """The process that merges for the node, stopped; None when there is none."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if b"merge_process" not in (place / "cmdline").read_bytes():
                continue
            pid = int(place.name)
            if parent_of(pid) == node.pid:
                os.kill(pid, signal.SIGSTOP)
                return pid
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def parent_of(pid: int) -> int:
    """0 once it has ended, though nobody has asked for its status."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if state == "Z" else int(parent)


def files_of_merges(node: LocalNode) -> list[Path]:
    return list((node.data / "tmp").glob("merge-*"))


def append(log: lognode.Log, written: Written) -> None:
    records = [(key, os.urandom(3_000)) for key in KEYS]
    for (key, value), ack in zip(records, log.append_many(records), strict=True):
        assert ack.seq is not None
        written[key].append((ack.seq, value))


def stop_in_a_merge(node: LocalNode, log: lognode.Log, written: Written, moment: str) -> int:
    """Append until a merge is stopped at that moment; its process."""
    for _ in range(4_000):
        append(log, written)
        pid = merger_of(node)
        while pid is not None:
            if moment == "begun" or files_of_merges(node):
                if parent_of(pid) == node.pid:
                    return pid
                break
            os.kill(pid, signal.SIGCONT)
            pid = merger_of(node)
    raise AssertionError("no merge was seen")


def check(log: lognode.Log, written: Written) -> None:
    assert list(log.keys()) == KEYS
    for key in KEYS:
        assert [(entry.seq, entry.value) for entry in log.scan(key)] == written[key]
        assert log.count(key) == len(written[key])


@pytest.mark.parametrize("moment", ["begun", "writing"])
def test_S2_S6_x13_a_node_killed_in_the_middle_of_a_merge_answers_as_before_and_keeps_no_orphan(
    tmp_path: Path, moment: str
) -> None:
    written: Written = defaultdict(list)
    with testing.cluster(tmp_path, 1, flags=FLAGS) as cluster:
        (node,) = cluster.nodes
        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("orders")
            merger = stop_in_a_merge(node, log, written, moment)
            left = files_of_merges(node)
            assert left or moment == "begun"
            append(log, written)
            node.kill()
            before = {path.name for path in (node.data / "files").iterdir()}
            node.start()  # while the merge of the one before is still there
            node.wait_ready()
            check(log, written)
            os.kill(merger, signal.SIGCONT)
            testing.eventually(lambda: not parent_of(merger), what="nobody waits for that merge")
            append(log, written)

            def merged() -> bool:
                now = {path.name for path in (node.data / "files").iterdir()}
                return len(before - now) >= 8 and not files_of_merges(node)

            testing.eventually(merged, timeout_s=60, what="it is done once more")
            check(log, written)
            assert node.stop() == 0
        done = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", "verify", str(node.data),
             "--format", "json"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        rows = {row["check"]: row for row in json.loads(done.stdout)}
        assert done.returncode == 0, rows
        assert "that no replica uses and the next start removes" not in rows["segments"]["found"]
        assert not files_of_merges(node)
