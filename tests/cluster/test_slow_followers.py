"""A follower that stands still costs its leader nothing, and catches up; closing always returns."""

import asyncio
import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size
from cluster_wal import wal_files

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
MIB = 1 << 20
BATCH = [(b"bulk%d" % (n % 8), random.Random(n).randbytes(10_000)) for n in range(100)]
BATCH_BYTES = 1_000_000
KEPT_BYTES = 160 * MIB
"""What a leader may hold: 32 MiB of log cache, 32 of window for the peer, 8 of its group, two
memtables between the small WAL's cuts, and what the allocator keeps."""


@contextlib.contextmanager
def paused(*nodes: testing.LocalNode) -> Iterator[None]:
    """The nodes stand still inside, as seen from outside: their sockets stay open."""
    for node in nodes:
        node.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            node.signal(signal.SIGCONT)


def resident_bytes(node: testing.LocalNode) -> int:
    """The process's resident memory."""
    for line in Path(f"/proc/{node.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("a process without memory")


def led_by(cluster: testing.LocalCluster, log: str) -> tuple[testing.LocalNode, testing.LocalNode]:
    """The log's leader, and a node that leads neither it nor the controller."""
    with lognode.Client(cluster.servers, timeout=20) as client:
        leader = testing.leader_of(client, log)
        others = {leader, client.status()["cluster"]["controller_leader"]}
    follower = next(node for node in cluster.nodes if node.number not in others)
    return cluster.nodes[leader - 1], follower


def test_L2_L3_a_paused_follower_catches_up_from_the_log(three: testing.LocalCluster) -> None:
    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log("short", split_at=["zzz"])
    _, follower = led_by(three, "short")
    with Load(three.servers, "short", random.randrange(1 << 32)) as load:
        load.go_on(100)
        with paused(follower):
            load.go_on(1_000)
        load.go_on(100)
    assert load.slowest_s() < 3.0
    check(same_on(three.servers, "short", NODES), load.told)
    assert "base installed" not in follower.log_path.read_text("utf-8")


@pytest.mark.by_hand
def test_L2_L3_a_paused_follower_costs_no_memory_and_gets_a_base(tmp_path: Path) -> None:
    """It misses more than any window holds, and the WAL it would need is gone."""
    flags = ("--wal-file-bytes", str(2 * MIB))
    with testing.cluster(tmp_path, 3, flags=flags) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("bulk")
            append(log, 20)
            leader, follower = led_by(cluster, "bulk")
            before = resident_bytes(leader)
            first = set(wal_files(leader))
            with paused(follower):
                slowest = append(log, 200)
                assert resident_bytes(leader) < before + KEPT_BYTES
                assert not first & set(wal_files(leader))
            assert slowest < 3.0
            testing.wait_healthy(cluster)
            entries = same_on(cluster.servers, "bulk", NODES)
            assert sum(map(len, entries.values())) == 220 * len(BATCH)
            assert "base installed" in follower.log_path.read_text("utf-8")
            leader.kill()
            assert log.append(b"after", b"", timeout=10).seq is not None


def append(log: lognode.Log, batches: int) -> float:
    """Append that many MB; the seconds that the slowest one took."""
    slowest = 0.0
    for _ in range(batches):
        began = time.monotonic()
        log.append_many(BATCH)
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def test_L4_S11_close_returns_while_every_node_stands_still(three: testing.LocalCluster) -> None:
    with lognode.Client(three.servers, timeout=20) as client:
        log = client.create_log("still", ranges=2)
        log.append(b"k", b"0")
        producer = log.producer()
        producer.open()
        feed = log.follow(start="earliest")
        feed.open()
        with paused(*three.nodes):
            with pytest.raises(lognode.Timeout) as caught:
                log.append(b"k", b"1", timeout=0.5)
            assert caught.value.outcome == "unknown"
            tickets = [producer.submit(b"k%d" % n, b"v") for n in range(100)]
            began = time.monotonic()
            delivery = producer.close(timeout=0.5)
            assert delivery.acknowledged + delivery.undelivered == len(tickets)
            assert delivery.acknowledged == 0
            for ticket in tickets:
                with pytest.raises(lognode.LognodeError):
                    ticket.result()
            feed.close()
            client.close(timeout=0.5)
            assert time.monotonic() - began < 5.0
    with lognode.Client(three.servers, timeout=20) as client:
        assert [e.value for e in client.log("still").scan(b"k")][:1] == [b"0"]


def test_L4_close_of_a_client_returns_with_callers_still_waiting(
    three: testing.LocalCluster,
) -> None:
    """Calls of other threads and tasks end too, with an error that says what they know."""
    ended: list[object] = []

    async def callers() -> None:
        client = lognode.AsyncClient(three.servers, timeout=60)
        log = client.log("waiting")
        appends = [asyncio.create_task(log.append(b"k%d" % n, b"v")) for n in range(20)]
        reads = [asyncio.create_task(log.latest(b"k%d" % n)) for n in range(20)]
        await asyncio.sleep(0)
        await client.close(0.5)
        ended.extend(await asyncio.gather(*appends, *reads, return_exceptions=True))

    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log("waiting", ranges=2)
    with paused(*three.nodes):
        thread = threading.Thread(target=lambda: asyncio.run(callers()), daemon=True)
        thread.start()
        thread.join(10.0)
        assert not thread.is_alive()
    assert len(ended) == 40
    strange = [error for error in ended if not isinstance(error, lognode.LognodeError)]
    assert not strange


def test_L4_stop_of_a_node_returns_while_the_others_stand_still(
    three: testing.LocalCluster,
) -> None:
    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log("stop", ranges=2).append(b"k", b"v")
    first, *others = three.nodes
    with paused(*others):
        began = time.monotonic()
        assert first.stop(timeout_s=15.0) == 0
        assert time.monotonic() - began < 10.0
    first.start()
    testing.wait_healthy(three)
    entries = same_on(three.servers, "stop", NODES)
    assert [entry.value for entry in entries[b"k"]] == [b"v"]


def test_L3_a_slow_link_to_one_follower_under_load(three: testing.LocalCluster) -> None:
    """Paused for moments again and again: never long enough to be dead, always behind."""
    with lognode.Client(three.servers, timeout=20) as client:
        client.create_log("jerky", split_at=["zzz"])
    _, follower = led_by(three, "jerky")
    size = Size(value_bytes=2_000)
    with Load(three.servers, "jerky", random.randrange(1 << 32), size) as load:
        for _ in range(6):
            with paused(follower):
                load.go_on(150)
            load.go_on(20)
    assert load.slowest_s() < 3.0
    check(same_on(three.servers, "jerky", NODES), load.told)
