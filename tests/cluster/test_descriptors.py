"""X: connections end no node and lock nobody out, whatever the number of descriptors.

Nodes of these tests may open few files, so that a test process of ordinary means can take all of
them. Only progress is asserted here; `tests/attacks` has the figures.
"""

import asyncio
import contextlib
import random
import re
import resource
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_nodes import live, until

import lognode
from lognode import testing
from lognode.client.protocol import frames, wire
from lognode.client.protocol.frame import HEADER, Decoder, Frame, encode
from lognode.client.protocol.wire import Hello
from lognode.node.joining import membership
from lognode.node.runtime.descriptors import LEAST
from lognode.node.serving import cluster_service

pytestmark = pytest.mark.cluster

NOFILE = 1_024
IDLE = 1_100
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
    "from lognode.node.main import main; sys.exit(main())"
)
FLAGS = ("--wal-file-bytes", str(1 << 20), "--disk-reserve-bytes", "0")
VALUE = random.Random(1).randbytes(64 << 10)


@pytest.fixture(autouse=True)
def many_sockets() -> Iterator[None]:
    """This process may open what an attacker needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * IDLE
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"an attacker needs {needed} descriptors, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def limited(cluster: testing.LocalCluster, nofile: int = NOFILE) -> testing.LocalCluster:
    """The nodes may open so many files."""
    for node in cluster.nodes:
        node.program = ("-c", LIMITED.format(nofile))
    return cluster


class Attacker:
    """Holds connections."""

    def __init__(self) -> None:
        self.held: list[socket.socket] = []

    def connect(self, address: str, source: str = "127.0.0.1") -> socket.socket | None:
        """A connection that says nothing; None when the node takes none now."""
        host, port = address.rsplit(":", 1)
        with contextlib.suppress(OSError):
            opened = socket.create_connection(
                (host, int(port)), timeout=0.2, source_address=(source, 0)
            )
            opened.settimeout(30.0)
            self.held.append(opened)
            return opened
        return None

    def greet(self, address: str, source: str = "127.0.0.1") -> socket.socket | None:
        """A client's connection after its handshake."""
        opened = self.connect(address, source)
        hello = Hello(role="client", nonce=random.randbytes(wire.nonce_bytes))
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.sendall(encode(0, frames.HELLO, hello.to_body()))
                if opened.recv(65_536):
                    return opened
        return None

    def close(self) -> None:
        for opened in self.held:
            opened.close()


@pytest.fixture
def attacker() -> Iterator[Attacker]:
    made = Attacker()
    yield made
    made.close()


def metric(node: testing.LocalNode, name: str) -> float:
    """The sum of a metric's samples."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(found) for found in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M))


def wal_number(node: testing.LocalNode) -> int:
    """Of the newest file of the write-ahead log."""
    names = [path.name for path in (node.data / "wal").iterdir()]
    return max(int(found[1]) for name in names if (found := re.fullmatch(r"wal-(\d+)", name)))


def first_error(opened: socket.socket) -> str:
    """What the node says before it closes the connection."""
    decoder = Decoder()
    while data := opened.recv(65_536):
        for frame in decoder.feed(data):
            assert isinstance(frame, Frame)
            if frame.kind == frames.ERROR:
                return str(frame.body["message"])
    return ""


def idle_clients(attacker: Attacker, node: testing.LocalNode) -> None:
    for _ in range(IDLE):
        attacker.greet(node.address)


def silent_clients(attacker: Attacker, node: testing.LocalNode) -> None:
    for _ in range(IDLE):
        attacker.connect(node.address)


def silent_http(attacker: Attacker, node: testing.LocalNode) -> None:
    for _ in range(IDLE):
        attacker.connect(node.http)


def silent_peers(attacker: Attacker, node: testing.LocalNode) -> None:
    for _ in range(IDLE):
        attacker.connect(node.peer)


@pytest.mark.parametrize(
    "attack",
    [
        idle_clients,
        pytest.param(silent_clients, marks=pytest.mark.by_hand),
        pytest.param(silent_http, marks=pytest.mark.by_hand),
        silent_peers,
    ],
)
def test_S1_L1_no_number_of_connections_ends_a_node(
    tmp_path: Path, attacker: Attacker, attack: Callable[[Attacker, testing.LocalNode], None]
) -> None:
    """It began no WAL file and took over no segment then, and ended."""
    cluster = limited(testing.LocalCluster(tmp_path, 1, flags=FLAGS))
    (node,) = cluster.nodes
    with cluster, lognode.Client(cluster.servers, timeout=30) as client:
        log = client.create_log("orders")
        log.append(b"k", b"before")
        pid = node.pid
        attack(attacker, node)
        assert len(attacker.held) > NOFILE // 2
        file, built = wal_number(node), metric(node, "lognode_segments_built_total")
        appended = 1

        def goes_on() -> bool:
            nonlocal appended
            log.append(b"k", VALUE)
            appended += 1
            status = node.status()["descriptors"]
            assert status["open"] < NOFILE == status["max"]
            return (
                wal_number(node) > file + 3
                and metric(node, "lognode_segments_built_total") > built + 1
            )

        testing.eventually(goes_on, timeout_s=120, what="WAL files begin and segments are built")
        assert node.running
        assert node.pid == pid
        assert log.count(b"k") == appended
        with lognode.Client(cluster.servers, timeout=30) as another:
            assert another.log("orders").count(b"k") == appended
        assert "Too many open files" not in node.log_path.read_text()
        assert metric(node, "lognode_connections_ended_total") > 0


def test_L2_idle_clients_at_every_node_do_not_keep_a_node_from_its_peers(
    tmp_path: Path, attacker: Attacker
) -> None:
    cluster = limited(testing.LocalCluster(tmp_path, 3, flags=FLAGS))
    with cluster:
        testing.wait_healthy(cluster)
        last = cluster.nodes[-1]
        last.stop()
        for node in cluster.nodes[:2]:
            idle_clients(attacker, node)
            told = node.status()["descriptors"]
            assert told["clients"] >= 7 * told["clients_max"] // 8
        last.start()
        last.wait_ready()
        testing.wait_healthy(cluster)
        assert all(node.running for node in cluster.nodes)


@pytest.mark.by_hand
def test_slow_senders_and_half_open_connections_are_closed(
    tmp_path: Path, attacker: Attacker
) -> None:
    """The slow frames come from another address than the client's: their room is not its room.
    Some of them wait for room until those before them are closed."""
    cluster = limited(testing.LocalCluster(tmp_path, 1, flags=FLAGS))
    (node,) = cluster.nodes
    with cluster, lognode.Client(cluster.servers, timeout=30) as client:
        log = client.create_log("orders")
        slow = [attacker.greet(node.address, "127.0.0.2") for _ in range(50)]
        half = [attacker.connect(node.address) for _ in range(50)]
        for opened in slow:
            assert opened is not None
            opened.sendall(HEADER.pack(9 << 20, 0))
        for opened in half:
            assert opened is not None
            opened.sendall(encode(0, frames.HELLO, {})[:9])

        def closed() -> bool:
            log.append(b"k", VALUE)
            for opened in slow:
                with contextlib.suppress(OSError):
                    assert opened is not None
                    opened.sendall(b"x")
            return metric(node, "lognode_connections_ended_total") >= 100

        testing.eventually(closed, timeout_s=120, what="all of them are closed")
        for opened in half:
            assert opened is not None
            assert "the handshake took over 5 s" in first_error(opened)
        text = node.log_path.read_text()
        assert "a frame arrived too slowly" in text
        assert "the handshake took too long" in text
        assert text.count("the node closed connections") < 10  # a line for many


@pytest.mark.parametrize("nofile", [LEAST - 1, LEAST])
def test_a_start_with_too_few_descriptors_is_refused_with_the_number(
    tmp_path: Path, nofile: int
) -> None:
    cluster = limited(testing.LocalCluster(tmp_path, 1, flags=FLAGS), nofile)
    (node,) = cluster.nodes
    node.start()
    try:
        if nofile >= LEAST:
            node.wait_ready()
            with lognode.Client(cluster.servers, timeout=30) as client:
                client.create_log("orders").append(b"k", b"v")
            assert node.stop() == 0
            return
        assert node.wait_end(30) == 1
        assert (
            f"this process may open {nofile} files; a node needs at least {LEAST}"
            in node.log_tail(1)
        )
        assert not (node.data / "meta.mdb").exists()
    finally:
        node.kill()


def test_a_cluster_of_before_the_port_for_peers_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records name only the ports for clients; nodes are told there where peers are taken."""
    register = cluster_service.register_command

    def as_before(body: dict[str, object]) -> dict[str, object]:
        return {name: value for name, value in register(body).items() if name != "peer"}

    async def run() -> None:
        async with live(tmp_path, 3) as cluster:
            await cluster.healthy(3)
            first = cluster.nodes[0]
            records = first.node._view.metadata.nodes
            assert [record.peer for record in records.values()] == ["", "", ""]
            monkeypatch.setattr(membership, "register_command", register)
            # All are stopped, and start with the newer one; the last some time after the others.
            for each in cluster.nodes:
                await each.stop_now()
            for each in cluster.nodes[:2]:
                each.begin()
            for each in cluster.nodes[:2]:
                await until(lambda each=each: each.registered, "it is registered")
            await cluster.nodes[2].start()
            await cluster.healthy(3)
            records = cluster.nodes[0].node._view.metadata.nodes
            assert {record.peer for record in records.values()} == {
                each.config.peer_listened for each in cluster.nodes
            }

    monkeypatch.setattr(cluster_service, "register_command", as_before)
    monkeypatch.setattr(membership, "register_command", as_before)
    asyncio.run(run())
