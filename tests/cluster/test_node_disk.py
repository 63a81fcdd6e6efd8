"""S1, S2: a disk that fails ends the node with one line; what it acknowledged is there later."""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "lognode-test", str(place)],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path, leave: int) -> Path:
    """Take all the room but `leave` bytes."""
    filler = place / "filler"
    free = os.statvfs(place)
    with open(filler, "wb") as file:
        left = free.f_bavail * free.f_frsize - leave
        while left > 0:
            left -= file.write(bytes(min(MIB, left)))
    return filler


def ended(node: testing.LocalNode) -> str:
    """Its last words."""
    testing.eventually(lambda: not node.running, what="the node ends")
    assert node.wait_end(1) == 1
    assert "Traceback" not in node.log_path.read_text()
    return node.log_tail(1)


@pytest.mark.parametrize("what", ["wal", "meta"])
def test_S1_S2_a_full_disk_ends_the_node_with_one_line(
    small_disk: Path, tmp_path: Path, what: str
) -> None:
    flags = ("--wal-file-bytes", str(4 * MIB))
    with testing.cluster(tmp_path, 1, flags=flags, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = small_disk / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        acknowledged = []
        with lognode.Client(cluster.servers, timeout=5) as client:
            log = client.create_log("orders")
            acknowledged.append(log.append(b"k", b"first"))
            filler = fill(small_disk, leave=MIB if what == "wal" else 64 << 10)
            for n in itertools.takewhile(lambda _: node.running, itertools.count()):
                with contextlib.suppress(lognode.LognodeError):
                    if what == "wal":
                        acknowledged.append(log.append(b"k", os.urandom(256 << 10)))
                    else:
                        client.create_log(f"log-{n}", ranges=30, timeout=2)
            line = ended(node)
            assert '"level": "critical"' in line
            assert "node stops at once" in line
            # LMDB tells a short write of its pages as an input/output error.
            assert ("No space left on device" if what == "wal" else "error") in line
            assert ("wal" if what == "wal" else "meta.mdb") in line
            assert f"free space in {node.data} or replace the disk" in line
        filler.unlink()
        node.start()
        node.wait_ready()
        with lognode.Client(cluster.servers) as client:
            held = {entry.seq for entry in client.log("orders").scan(b"k")}
            assert {ack.seq for ack in acknowledged} <= held
            assert len(acknowledged) > (3 if what == "wal" else 0)
            client.log("orders").append(b"k", b"goes on")


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    """What a failed fsync left is unknown: the node ends before it answers anything."""
    script = tmp_path / "node.py"
    script.write_text(
        "import errno, os, sys\n"
        "from pathlib import Path\n"
        "from lognode.node import main\n"
        "from lognode.raft.os_disk import OsDisk\n"
        "trigger, calls = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))\n"
        "sync = OsDisk.sync\n"
        "def failing(self, name):\n"
        "    if trigger.exists():\n"
        "        with open(calls, 'a') as file: file.write('sync\\n')\n"
        "        raise OSError(errno.EIO, os.strerror(errno.EIO), name)\n"
        "    sync(self, name)\n"
        "OsDisk.sync = failing\n"
        "sys.exit(main.main())\n"
    )
    trigger, calls = tmp_path / "trigger", tmp_path / "calls"
    with testing.cluster(tmp_path / "c", 1, start=False) as cluster:
        (node,) = cluster.nodes
        node.program = (str(script), str(trigger), str(calls))
        node.start()
        node.wait_ready()
        with lognode.Client(cluster.servers, timeout=3) as client:
            log = client.create_log("orders")
            log.append(b"k", b"acknowledged")
            trigger.touch()
            with pytest.raises(lognode.LognodeError) as caught:
                log.append(b"k", b"never", timeout=2)
            assert caught.value.outcome in ("unknown", "not_applied")
            line = ended(node)
            assert "Input/output error" in line
            assert calls.read_text() == "sync\n"
