"""S1, S2: a disk that fails ends the node with one line; what it acknowledged is there later."""

import contextlib
import errno
import itertools
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_disk import fill

import lognode
from lognode import testing
from lognode.node.runtime import wal_writer

pytestmark = pytest.mark.cluster

MIB = 1 << 20
FLAGS = ("--wal-file-bytes", str(4 * MIB), "--disk-reserve-bytes", "0")


def forbid_growth(node: testing.LocalNode, size: int) -> None:
    """From now on the kernel refuses every write of the node behind that offset of a file."""
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, size))


def ended(node: testing.LocalNode) -> str:
    """Its last words."""
    testing.eventually(lambda: not node.running, what="the node ends")
    assert node.wait_end(1) == 1
    assert "Traceback" not in node.log_path.read_text()
    return node.log_tail(1)


@pytest.mark.parametrize("what", ["wal", pytest.param("meta", marks=pytest.mark.by_hand)])
def test_S1_S2_a_write_that_fails_ends_the_node_with_one_line(tmp_path: Path, what: str) -> None:
    with testing.cluster(tmp_path, 1, flags=FLAGS) as cluster:
        (node,) = cluster.nodes
        testing.wait_healthy(cluster)
        acknowledged = []
        with lognode.Client(cluster.servers, timeout=5) as client:
            log = client.create_log("orders")
            acknowledged.append(log.append(b"k", b"first"))
            meta = node.data / "meta.mdb"
            forbid_growth(node, 2 * MIB if what == "wal" else meta.stat().st_size)
            for n in itertools.takewhile(lambda _: node.running, itertools.count()):
                with contextlib.suppress(lognode.LognodeError):
                    if what == "wal":
                        acknowledged.append(log.append(b"k", os.urandom(256 << 10)))
                    else:
                        keys = [b"%d" % key + b"x" * 400 for key in range(1_000)]
                        client.create_log(f"log-{n}", split_at=keys, timeout=2)
            line = ended(node)
            assert '"level": "critical"' in line
            assert "node stops at once" in line
            # LMDB tells a short write of its pages as an input/output error.
            large = "File too large"
            said = [f"{large} (EFBIG)"] if what == "wal" else [large, "Input/output error"]
            assert any(words in line for words in said)
            assert str(node.data / ("wal" if what == "wal" else "meta.mdb")) in line
            assert "the node tries nothing again" in line
            assert f"Free space in {node.data} or replace the disk" in line
        node.start()
        node.wait_ready()
        with lognode.Client(cluster.servers) as client:
            held = {entry.seq for entry in client.log("orders").scan(b"k")}
            assert {ack.seq for ack in acknowledged} <= held
            assert len(acknowledged) > (3 if what == "wal" else 0)
            client.log("orders").append(b"k", b"goes on")


@pytest.mark.parametrize("writer", ["python", "compiled"])
def test_a_failed_sync_is_never_tried_again(
    tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed fsync left is unknown: the node ends before it answers anything."""
    if writer == "python":
        monkeypatch.setenv("LOGNODE_PURE", "1")
    elif wal_writer.compiled is None:
        pytest.skip("no compiled module is installed")
    script = tmp_path / "node.py"
    script.write_text(
        "import errno, os, sys, types\n"
        "from pathlib import Path\n"
        "from lognode.node import main\n"
        "from lognode.node.runtime import wal_writer\n"
        "from lognode.raft.os_disk import OsDisk\n"
        "trigger, calls = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))\n"
        "sync = OsDisk.sync\n"
        "def failing(self, name):\n"
        "    if trigger.exists():\n"
        "        with open(calls, 'a') as file: file.write('sync\\n')\n"
        "        raise OSError(errno.EIO, os.strerror(errno.EIO), name)\n"
        "    sync(self, name)\n"
        "OsDisk.sync = failing\n"
        "class Failing:\n"
        "    def __init__(self):\n"
        "        self.writer = wal_writer._writer()\n"
        "        self.fileno, self.take = self.writer.fileno, self.writer.take\n"
        "        self.close = self.writer.close\n"
        "    def submit(self, fd, offset, buffers, sync):\n"
        "        if trigger.exists():\n"
        "            with open(calls, 'a') as file: file.write('sync\\n')\n"
        "            fd = os.open('/dev/null', os.O_RDWR)  # cannot be synced\n"
        "        self.writer.submit(fd, offset, buffers, sync)\n"
        "if wal_writer.compiled is not None:\n"
        "    wal_writer._writer = wal_writer.compiled.Writer\n"
        "    wal_writer.compiled = types.SimpleNamespace(Writer=Failing)\n"
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
            told = "Input/output error" if writer == "python" else "Invalid argument"
            assert f"fdatasync of {'' if writer == 'python' else node.data / 'wal'}" in line
            assert told in line
            assert calls.read_text() == "sync\n"


# A cluster goes on without the node whose disk failed, and takes it back.


def append_until(client: lognode.Client, key: bytes, done: Callable[[], bool], size: int) -> int:
    """Append until it is done; how many were acknowledged. All must be."""
    log = client.log("orders")
    count = 0
    while not done():
        log.append(key, os.urandom(size))
        count += 1
    return count


def rejoined(
    cluster: testing.LocalCluster, node: testing.LocalNode, keys: dict[bytes, int]
) -> None:
    """The node is started again; its own replica has all that was acknowledged."""
    node.start()
    node.wait_ready()
    testing.wait_healthy(cluster)
    with lognode.Client(cluster.servers) as client:
        log = client.log("orders")
        for key, count in keys.items():
            last = log.append(key, b"after")
            assert log.count(key, node=node.number, through=last.seq) == count + 1


def test_S1_S2_L1_a_write_that_fails_on_one_of_three_stops_that_node_alone(
    tmp_path: Path,
) -> None:
    with testing.cluster(tmp_path, 3, flags=FLAGS) as cluster:
        victim = cluster.nodes[2]
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=10) as client:
            client.create_log("orders")
            testing.wait_healthy(cluster)
            before = append_until(client, b"a", iter([False] * 5 + [True]).__next__, 100)
            forbid_growth(victim, MIB)
            meanwhile = append_until(client, b"b", lambda: not victim.running, 256 << 10)
            line = ended(victim)
            assert "File too large (EFBIG)" in line
            assert f"Free space in {victim.data} or replace the disk" in line
            after = append_until(client, b"c", iter([False] * 20 + [True]).__next__, 1000)
        rejoined(cluster, victim, {b"a": before, b"b": meanwhile, b"c": after})


@pytest.fixture
def injected(tmp_path: Path) -> tuple[str, ...]:
    """What Python runs instead of a node: the same, with faults that libfiu injects when told."""
    if shutil.which("fiu-run") is None or shutil.which("fiu-ctrl") is None:
        pytest.skip("injecting errors into system calls needs libfiu (Debian: fiu-utils)")
    program = (
        "import os, sys; os.execvp('fiu-run', ['fiu-run', '-x', '-f', sys.argv[1], "
        "sys.executable, '-m', 'lognode.node.main', *sys.argv[2:]])"
    )
    return ("-c", program, str(tmp_path / "control"))


def inject(tmp_path: Path, node: testing.LocalNode, call: str, number: int) -> None:
    """From now on the call fails in the process of the node."""
    command = f"enable name=posix/io/{call},failinfo={number}"
    subprocess.run(
        ["fiu-ctrl", "-f", str(tmp_path / "control"), "-c", command, str(node.pid)],
        check=True, timeout=30, capture_output=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(errno.EIO, id="EIO"),
        pytest.param(errno.ENOSPC, id="ENOSPC", marks=pytest.mark.by_hand),
    ],
)
def test_S1_S2_L1_a_failing_fsync_of_one_of_three_stops_that_node_alone(
    tmp_path: Path, injected: tuple[str, ...], number: int
) -> None:
    """By libfiu, between the process and its C library: every fdatasync fails from then on."""
    with testing.cluster(tmp_path, 3, start=False) as cluster:
        victim = cluster.nodes[1]
        plain, victim.program = victim.program, injected
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=10) as client:
            client.create_log("orders")
            testing.wait_healthy(cluster)
            before = append_until(client, b"a", iter([False] * 5 + [True]).__next__, 100)
            inject(tmp_path, victim, "sync/fdatasync", number)
            meanwhile = append_until(client, b"b", lambda: not victim.running, 100)
            line = ended(victim)
            assert os.strerror(number) in line
            assert f"{victim.data}/" in line
            assert "the node tries nothing again" in line
            after = append_until(client, b"c", iter([False] * 20 + [True]).__next__, 100)
        victim.program = plain
        rejoined(cluster, victim, {b"a": before, b"b": meanwhile, b"c": after})


# Starting on a full disk.


@pytest.mark.parametrize("stopped", ["in order", "killed"])
def test_S2_a_start_on_a_full_disk_says_so_or_needs_no_room(
    small_disk: Path, tmp_path: Path, stopped: str
) -> None:
    flags = FLAGS
    with testing.cluster(tmp_path, 1, flags=flags, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = small_disk / "data"
        cluster.start()
        with lognode.Client(cluster.servers) as client:
            log = client.create_log("orders")
            acks = [log.append(b"k", b"%d" % n) for n in range(50)]
        node.stop() if stopped == "in order" else node.kill()
        filler = fill(small_disk, leave=0)
        node.start()
        testing.eventually(
            lambda: not node.running or _serves(node), what="it serves, or says why not"
        )
        if node.running:
            # It may still end at the first write that needs room; it does not answer wrongly.
            answer = contextlib.suppress(lognode.Unavailable, lognode.Timeout)
            with lognode.Client(cluster.servers, timeout=5) as client, answer:
                assert client.log("orders").count(b"k") == len(acks)
        if node.running:
            node.kill()
        else:
            line = ended(node)
            assert "Free space" in line
            assert str(node.data) in line
        filler.unlink()
        node.start()
        node.wait_ready()
        with lognode.Client(cluster.servers) as client:
            held = {entry.seq: entry.value for entry in client.log("orders").scan(b"k")}
            assert {ack.seq for ack in acks} <= held.keys()


def _serves(node: testing.LocalNode) -> bool:
    with contextlib.suppress(lognode.LognodeError):
        node.wait_ready(0.3)
        return True
    return False


def test_a_first_start_on_a_full_disk_says_so_in_one_line(small_disk: Path, tmp_path: Path) -> None:
    flags = FLAGS
    with testing.cluster(tmp_path, 1, flags=flags, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = small_disk / "data"
        for leave in (0, 16 << 10, MIB):
            filler = fill(small_disk, leave=leave)
            node.start()
            line = ended(node)
            assert "No space left on device" in line or "error" in line
            assert "Free space" in line
            assert str(node.data) in line
            filler.unlink()
        node.start()
        node.wait_ready()
