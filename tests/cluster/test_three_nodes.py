"""Three nodes on real processes, any of them killed with -9."""

import threading
import time
from collections.abc import Iterator

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(three.servers, timeout=30) as client:
        yield client


class Writer:
    """Appends numbered values to keys in a thread and keeps what was acknowledged."""

    def __init__(self, servers: str, log: str, keys: int = 20) -> None:
        self.acked: dict[bytes, list[bytes]] = {}
        self.failed: list[BaseException] = []
        self.longest_pause_s = 0.0
        self._servers = servers
        self._log = log
        self._keys = keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with lognode.Client(self._servers, timeout=30) as client:
            log = client.log(self._log)
            last = time.monotonic()
            number = 0
            while not self._stop.is_set():
                number += 1
                key = b"key-%d" % (number % self._keys)
                value = b"%d" % number
                try:
                    log.append(key, value)
                except lognode.LognodeError as error:
                    self.failed.append(error)
                    continue
                now = time.monotonic()
                self.longest_pause_s = max(self.longest_pause_s, now - last)
                last = now
                self.acked.setdefault(key, []).append(value)

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def go_on(self, more: int) -> None:
        """Return when that many more appends were acknowledged."""
        wanted = self.count + more
        testing.eventually(lambda: self.count >= wanted, what=f"{more} more appends")

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def check_all(client: lognode.Client, log_name: str, writer: Writer, nodes: int) -> None:
    """S2, S3, S4: all that was acknowledged is there, in order, the same on every node."""
    log = client.log(log_name)
    for key, values in writer.acked.items():
        entries = list(log.scan(key))
        assert [e.value for e in entries] == values
        for node in range(1, nodes + 1):
            own = list(log.scan(key, node=node, through=entries[-1].seq))
            assert own == entries, f"node {node} differs"


def test_S1_S2_kill_each_node_in_turn_under_load(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("turns", ranges=2)
    with Writer(three.servers, "turns") as writer:
        for node in three.nodes:
            writer.go_on(50)
            node.kill()
            writer.go_on(50)
            node.start()
            node.wait_ready()
    assert not writer.failed
    check_all(client, "turns", writer, 3)


def test_L1_kill_of_the_leader_pauses_less_than_three_seconds(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("pause")
    with Writer(three.servers, "pause") as writer:
        testing.eventually(lambda: writer.count > 100, what="appends")
        leader = three.nodes[testing.leader_of(client, "pause") - 1]
        leader.kill()
        before = writer.count
        testing.eventually(lambda: writer.count > before + 100, what="appends with two")
        leader.start()
        leader.wait_ready()
    assert not writer.failed
    assert writer.longest_pause_s < 3.0
    check_all(client, "pause", writer, 3)


def test_S2_kill_of_all_three_at_once(three: testing.LocalCluster, client: lognode.Client) -> None:
    client.create_log("all", ranges=3)
    with Writer(three.servers, "all") as writer:
        testing.eventually(lambda: writer.count > 200, what="appends")
        for node in three.nodes:
            node.kill()
        for node in three.nodes:
            node.start()
        for node in three.nodes:
            node.wait_ready()
        before = writer.count
        testing.eventually(lambda: writer.count > before + 50, what="appends after restart")
    assert not writer.failed
    check_all(client, "all", writer, 3)


def test_S7_reads_see_what_was_acknowledged_before(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    log = client.create_log("fresh")
    with lognode.Client(three.servers, timeout=30) as other:
        for i in range(50):
            ack = log.append(b"k", b"%d" % i)
            latest = other.log("fresh").latest(b"k")
            assert latest is not None
            assert ack.seq is not None
            assert latest.seq >= ack.seq


def test_L4_stop_returns_and_the_others_go_on(
    three: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("stops")
    with Writer(three.servers, "stops") as writer:
        testing.eventually(lambda: writer.count > 50, what="appends")
        assert three.nodes[testing.leader_of(client, "stops") - 1].stop() == 0
        before = writer.count
        testing.eventually(lambda: writer.count > before + 50, what="appends with two")
    assert not writer.failed
