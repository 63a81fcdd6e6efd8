"""Nodes of two builds in one cluster: upgraded, one rolled back, and finalized under load."""

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
from lognode.client.protocol import limits
from lognode.client.protocol.errors import Conflict, LognodeError, Unsupported
from lognode.client.protocol.levels import LEVEL_MAX
from lognode.testing import LocalCluster, LocalNode

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


def not_finalized(client: lognode.Client) -> None:
    """A node of this build names a node of the earlier one; the earlier build knows no levels."""
    with pytest.raises(LognodeError) as caught:
        client.admin.finalize()
    error = caught.value
    assert isinstance(error, Conflict | Unsupported), error
    assert error.code == "UNSUPPORTED" or "runs version before feature levels" in error.message


def finalize(client: lognode.Client, cluster: LocalCluster) -> None:
    """Raise the level; return when every replica applies its rules."""
    assert client.admin.finalize() == {"level": LEVEL_MAX}
    testing.eventually(
        lambda: all(
            replica["level"] == LEVEL_MAX
            for node in cluster.nodes for replica in node.status()["replicas"]
        ),
        what="all ranges are at the level",
    )  # fmt: skip
    log = client.log("orders")
    taken = [log.snapshot(lease_s=60) for _ in range(limits.leases_max + 1)]
    assert len({each.to_json() for each in taken}) == len(taken), "one more than at the first level"


def refused(node: LocalNode, earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier build does not start any more, and this one goes on."""
    assert node.stop() == 0
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", str(earlier))
        node.start()
    assert node.wait_end() == 1
    told = node.log_tail(1)
    assert f"at feature level {LEVEL_MAX}, which this earlier version of lognode does" in told
    assert "start the version that ran here last, and nothing is lost" in told
    start(node, None, monkeypatch)


def not_taken_in(cluster: LocalCluster, earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory of the earlier build does not join."""
    joining = cluster.add()
    cluster.nodes.remove(joining)
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", str(earlier))
        joining.start()
    assert joining.wait_end() == 1
    told = joining.log_tail(1)
    assert f"at feature level {LEVEL_MAX}, and this version of lognode knows level 1" in told


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
                if number < len(steps) - 1:
                    not_finalized(client)
            split(client, b"x")  # now all compare what their entries did
            load.goes_on()
            finalize(client, cluster)
            load.goes_on()
            split(client, b"y")
            load.goes_on()
            refused(cluster.nodes[2], earlier, monkeypatch)
            not_taken_in(cluster, earlier, monkeypatch)
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
