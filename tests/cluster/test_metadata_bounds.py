"""What one client can make of the metadata is bounded, and leaves the nodes and others in peace."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

import lognode
from lognode import testing
from lognode.client.connection import dial
from lognode.client.protocol import limits
from lognode.client.protocol.cluster import PRODUCER_OPEN
from lognode.client.protocol.errors import LimitExceeded

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.by_hand]

NAMES = 38_000
AT_ONCE = 256
_OPEN_S = 60.0


def rss_mib(node: testing.LocalNode) -> float:
    """The node's resident memory."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the node has no memory")


async def open_names(node: testing.LocalNode) -> tuple[int, set[str]]:
    """Open that many named producers; how many were opened, and the limits that refused others."""
    host, port = node.address.rsplit(":", 1)
    connection = await dial(host, int(port))
    opened, refused = 0, set()
    room = asyncio.Semaphore(AT_ONCE)

    async def open_one(number: int) -> None:
        nonlocal opened
        async with room:
            deadline = asyncio.get_running_loop().time() + _OPEN_S
            name = f"{number:0256d}"
            try:
                await connection.request(PRODUCER_OPEN, {"name": name}, deadline=deadline)
                opened += 1
            except LimitExceeded as error:
                refused.add(str(error.fields["limit"]))

    try:
        await asyncio.gather(*map(open_one, range(NAMES)))
    finally:
        connection.close()
    return opened, refused


def test_38000_named_producers_of_256_bytes_are_refused_beyond_the_bounds(tmp_path: Path) -> None:
    """Before, each opening sent an image of all names, 9 MiB in the end, to every node."""
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=60) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("neighbour")
        log.append("k", b"first")
        before = max(map(rss_mib, cluster.nodes))
        slowest_s, done = 0.0, threading.Event()

        def neighbour() -> None:
            nonlocal slowest_s
            while not done.is_set():
                began = time.monotonic()
                log.append("k", b"value")
                slowest_s = max(slowest_s, time.monotonic() - began)

        beside = threading.Thread(target=neighbour)
        beside.start()
        began = time.monotonic()
        try:
            opened, refused = asyncio.run(open_names(cluster.nodes[0]))
        finally:
            done.set()
            beside.join()
        took_s = time.monotonic() - began
        more = max(map(rss_mib, cluster.nodes)) - before
        print(f"{opened} opened in {took_s:.1f} s, {more:.0f} MiB more, slowest {slowest_s:.2f} s")
        assert opened == limits.producer_names_bytes_per_principal_max // 256
        assert refused == {"producer_names_bytes_per_principal_max"}
        assert more < 200
        assert slowest_s < 5
        assert len(client.admin.producers()) == opened
        client.admin.delete_producer(f"{7:0256d}")
        producer = client.log("neighbour").producer(name="one that has room now")
        producer.close()


def test_the_second_of_three_logs_of_4096_ranges_is_refused(tmp_path: Path) -> None:
    """Three such logs held 36,864 replicas, and the nodes elected leaders for ever."""
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=60) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("first", ranges=4_096)
        for name in ("second", "third"):
            with pytest.raises(lognode.LimitExceeded) as caught:
                client.create_log(name, ranges=4_096)
            assert caught.value.fields["limit"] == "replicas_per_node_max"
        testing.wait_healthy(cluster, timeout_s=240)
        assert len(client.admin.ranges("first")) == 4_096
        client.log("first").append("k", b"value")
        print([round(rss_mib(node)) for node in cluster.nodes])
        assert max(map(rss_mib, cluster.nodes)) < 1_024
