"""Nodes of two builds in one cluster: upgraded one by one under load, and one rolled back."""

import os
import subprocess
import sys
import threading
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError
from lognode.testing import LocalNode

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
EARLIER = "b730686bee45ef08f270a43606a6758d94934a94"
"""The commit before replicas compared what entries did, and stopped at unknown commands."""


@pytest.fixture(scope="module")
def earlier(module_path: Path) -> Path:
    """A folder with the package of the earlier commit, from a wheel."""
    tree = module_path
    told = subprocess.run(
        ["git", "-C", str(ROOT), "archive", EARLIER], capture_output=True, check=False
    )
    if told.returncode:
        pytest.skip(f"the clone has no commit {EARLIER}: {told.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=told.stdout, check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
           "--disable-pip-version-check", "--wheel-dir", "wheels", "."]  # fmt: skip
    subprocess.run(pip, cwd=tree, check=True)
    (wheel,) = (tree / "wheels").glob("lognode-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree / "package")
    found = subprocess.run(
        [sys.executable, "-c", "import lognode; print(lognode.__file__)"], capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tree / "package")}, cwd=tree / "wheels", check=True,
    )  # fmt: skip
    assert found.stdout.decode().startswith(str(tree / "package")), "nodes run the earlier build"
    return tree / "package"


class Load:
    """Appends one record after another to each of three keys, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._stop = threading.Event()
        self.acked: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(key,)) for key in (b"a", b"k", b"t")
        ]

    def _run(self, key: bytes) -> None:
        try:
            with lognode.Client(self._servers, timeout=60) as client:
                log, number = client.log("orders"), 0
                while not self._stop.wait(0.005):
                    number += 1
                    value = b"%d" % number
                    self.acked[key].append((log.append(key, value).seq, value))
        except BaseException as error:
            self.failures.append(error)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> None:
        """Return when each key has got some more."""
        before = {key: len(found) for key, found in self.acked.items()}
        testing.eventually(
            lambda: (
                self.failures
                or all(len(self.acked[key]) > before.get(key, 0) + 5 for key in (b"a", b"k", b"t"))
            ),
            what="appends go on",
        )
        assert not self.failures


def start(node: LocalNode, package: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the node, of this build or of that one."""
    with monkeypatch.context() as environment:
        if package is not None:
            environment.setenv("PYTHONPATH", str(package))
        else:
            environment.delenv("PYTHONPATH", raising=False)
        node.start()
    node.wait_ready()
    running = Path(f"/proc/{node.pid}/environ").read_bytes()
    assert (os.fsencode(str(package)) in running) == (package is not None)


def split(client: lognode.Client, at: bytes) -> None:
    """A new generation, in which members of both builds have to agree on how the last one ended."""

    def done() -> bool:
        try:
            client.admin.split("orders", at=at)
        except LognodeError as error:
            return "begins" in error.message  # an earlier try has done it
        return True

    testing.eventually(done, what=f"a split at {at!r}")


def test_S1_S8_a_cluster_is_upgraded_node_by_node_under_load_and_one_is_rolled_back(
    tmp_path: Path, earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with testing.cluster(tmp_path, nodes=3, start=False) as cluster:
        for node in cluster.nodes:
            start(node, earlier, monkeypatch)
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=60) as client:
            client.create_log("orders")
        with lognode.Client(cluster.servers, timeout=60) as client, Load(cluster.servers) as load:
            load.goes_on()
            steps = [(0, None), (1, None), (1, earlier), (2, None), (1, None)]
            for number, (at, package) in enumerate(steps):
                node = cluster.nodes[at]
                assert node.stop() == 0
                start(node, package, monkeypatch)
                testing.wait_healthy(cluster)
                load.goes_on()
                split(client, b"c%d" % number)
                split(client, b"m%d" % number)
                testing.wait_healthy(cluster)
                load.goes_on()
            split(client, b"x")  # now all compare what their entries did
            load.goes_on()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=60) as client:
            log = client.log("orders")
            for key, acked in load.acked.items():
                found = [(entry.seq, entry.value) for entry in log.scan(key)]
                assert found == acked, "each acknowledged record once, in its order"
                for node in client.status()["nodes"]:
                    count = log.count(key, node=node["id"], through=acked[-1][0])
                    assert count == len(acked)
        for node in cluster.nodes:
            told = node.log_path.read_text()
            assert "damaged" not in told
            assert "newer program" not in told
            assert "Traceback" not in told
