"""`lognode dev` on the data of an earlier run: it starts again, grows, and refuses in one line."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

NODES = 3


class Dev:
    """One directory and run of ports for `lognode dev`; processes are ended with the block."""

    def __init__(self, root: Path) -> None:
        self.root = root / "dev"
        self.base = testing.free_row(3 * (NODES + 1))
        self.process: subprocess.Popen[str] | None = None
        self.acks: list[int | None] = []

    def arguments(self, *more: str) -> list[str]:
        return [sys.executable, "-m", "lognode.node.main", "dev", "--data", str(self.root), *more]

    def start(self, *more: str) -> list[str]:
        """Start; the lines that it prints until it serves."""
        self.process = subprocess.Popen(self.arguments(*more), stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip())
            if line.startswith("export LOGNODE_SERVER="):
                return lines
        self.process.communicate(timeout=10)
        raise AssertionError(f"it ended with {self.process.returncode}: {lines}")

    def refused(self, *more: str) -> str:
        """What a start says that ends by itself with exit code 1."""
        done = subprocess.run(
            self.arguments(*more), capture_output=True, text=True, timeout=100, check=False
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("lognode: ")
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def kill(self) -> None:
        """kill -9 of `lognode dev` alone; its nodes go on."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=10)

    def pids(self) -> list[int]:
        """Of the nodes that run."""
        found = []
        for lock in self.root.glob("node*/lock"):
            pid = int(lock.read_text() or "0")
            with contextlib.suppress(OSError):
                if pid and str(self.root).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def kill_nodes(self) -> None:
        """kill -9 of all nodes."""
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        testing.eventually(lambda: not self.pids(), what="the nodes are gone")

    def client(self) -> lognode.Client:
        return lognode.Client(f"lognode://127.0.0.1:{self.base}", timeout=30)

    def append(self, count: int) -> None:
        with self.client() as client:
            log = client.create_log("orders", ranges=2, exist_ok=True)
            self.acks += [log.append(b"k", b"%d" % n).seq for n in range(count)]

    def check(self, nodes: int = NODES) -> None:
        """Everything that was acknowledged is there, and all nodes are ready."""
        with self.client() as client:
            assert [entry.seq for entry in client.log("orders").scan(b"k")] == self.acks
            healthy = testing.eventually(
                lambda: client.health(nodes=nodes)["ok"], what="healthy", timeout_s=60
            )
            assert healthy


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    found = Dev(tmp_path)
    try:
        yield found
    finally:
        if found.process is not None:
            found.kill()
        found.kill_nodes()


@pytest.mark.by_hand
def test_S2_a_dev_cluster_starts_again_on_its_data_after_a_stop_and_after_kill_9_of_all(
    dev: Dev,
) -> None:
    """It started one node and waited until that node served, which took a majority."""
    first = dev.start("--base-port", str(dev.base))
    assert [line.split("\t")[0] for line in first[:3]] == ["node 1", "node 2", "node 3"]
    console = f"http://127.0.0.1:{dev.base + 2}/"
    server = f"lognode://{','.join(f'127.0.0.1:{dev.base + 3 * n}' for n in range(NODES))}"
    assert first[3:] == [f"console\t{console}", f"export LOGNODE_SERVER={server}"]
    dev.append(50)
    with dev.client() as client:
        row = {node["address"]: node["id"] for node in client.status()["nodes"]}
    assert row == {f"127.0.0.1:{dev.base + 3 * n}": n + 1 for n in range(NODES)}
    dev.check()
    assert dev.stop() == 0

    again = dev.start()  # on the ports that the nodes know
    assert again == first
    dev.append(50)
    dev.check()
    dev.kill()
    assert len(dev.pids()) == NODES
    said = dev.refused()
    assert "uses data directory" in said
    assert "stop the node first" in said
    assert len(dev.pids()) == NODES, "nobody harmed them"
    dev.kill_nodes()

    assert dev.start("-n", str(NODES), "--base-port", str(dev.base)) == first
    dev.append(50)
    dev.check()
    assert dev.stop() == 0


@pytest.mark.by_hand
def test_more_nodes_join_fewer_are_refused_and_a_lost_directory_founds_nothing(dev: Dev) -> None:
    dev.start("--base-port", str(dev.base))
    dev.append(30)
    dev.check()
    assert dev.stop() == 0

    assert "contains the nodes 1, 2, 3 of a cluster" in dev.refused("-n", "2")
    assert "Give -n 3 or more" in dev.refused("-n", "1")
    assert "-n is 0; a cluster has at least 1 node" in dev.refused("-n", "0")
    said = dev.refused("--base-port", str(dev.base + 2))
    assert f"know the node at 127.0.0.1:{dev.base}. Each node keeps its address" in said
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", dev.base + 3))
        other.listen()
        said = dev.refused()
        assert f"port {dev.base + 3}: Address already in use; stop the program" in said
    assert not dev.pids()

    dev.start("-n", str(NODES + 1))
    dev.check(NODES + 1)
    dev.append(30)
    with dev.client() as client:
        cluster = client.status()["cluster"]["id"]
        assert [node["id"] for node in client.status()["nodes"]] == [1, 2, 3, 4]
    assert dev.stop() == 0

    shutil.rmtree(dev.root / "node1")
    dev.start("-n", str(NODES + 1))
    with dev.client() as client:
        status = client.status()
        assert status["cluster"]["id"] == cluster
        here = {node["address"]: node["id"] for node in status["nodes"]}
        assert here[f"127.0.0.1:{dev.base}"] == 5, "it joined anew"
        assert [entry.seq for entry in client.log("orders").scan(b"k")] == dev.acks
    assert dev.stop() == 0
