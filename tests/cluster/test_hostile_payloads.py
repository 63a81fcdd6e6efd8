"""A client sends payloads that are small on the wire and large in memory to a real cluster.

The memory of no node grows by much, and other clients hardly notice.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_payloads as payloads
import pytest
from strangers import Stranger, hello, peak_bytes

import lognode
from lognode import testing
from lognode.client.protocol import frames
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.frame import encode

pytestmark = pytest.mark.cluster

MIB = 1 << 20
UNKNOWN = 60_000
"""The number of no operation."""
GROWTH_BYTES = 160 * MIB
"""By how much the largest memory that a node ever had may grow in a test."""
LATENCY_S = 1.0
"""Of the slowest append of another client during an attack; an election takes longer."""


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 3) as cluster:
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers) as client:
            client.create_log("log")
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def append(cluster: testing.LocalCluster) -> Callable[..., bytes]:
    """Makes an append to the log's range, and `append.node` is its leader."""
    with lognode.Client(cluster.servers) as client:
        known = next(r for r in client.status()["ranges"] if r["log"] == "log")

    def make(*batches: bytes, number: int = 1) -> bytes:
        body = {"range": known["id"], "generation": known["generation"], "batches": list(batches)}
        return encode(number, APPEND.number, {**body, "timeout_ms": 5_000})

    make.node = cluster.nodes[known["leader"] - 1]  # type: ignore[attr-defined]
    return make


@pytest.fixture
def others(cluster: testing.LocalCluster) -> Iterator[None]:
    """Check at the end of the test what the attack has cost the nodes."""
    pids = [node.pid for node in cluster.nodes]
    before = list(map(peak_bytes, cluster.nodes))
    with lognode.Client(cluster.servers) as client:
        yield
        client.log("log").append("after", b"all")
        assert {node["state"] for node in client.metadata()["nodes"]} == {"ACTIVE"}
    assert [node.pid for node in cluster.nodes] == pids
    grown = [now - then for now, then in zip(map(peak_bytes, cluster.nodes), before, strict=True)]
    print("grown by", [each // MIB for each in grown], "MiB")
    assert max(grown) < GROWTH_BYTES


def slowest_append(cluster: testing.LocalCluster, attack: Callable[[], Any]) -> float:
    """Seconds of the slowest append of another client while the attack goes on."""
    slowest, done = 0.0, threading.Event()

    def run() -> None:
        nonlocal slowest
        with lognode.Client(cluster.servers) as client:
            log = client.log("log")
            while not done.is_set():
                began = time.monotonic()
                log.append(b"other", b"value")
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(0.002)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        attack()
    finally:
        done.set()
        thread.join()
    print(f"slowest append of another client: {slowest * 1000:.0f} ms")
    return slowest


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("name", payloads.BATCHES)
def test_batches_that_unpack_to_much_are_refused_before(
    cluster: testing.LocalCluster, append: Any, name: str
) -> None:
    batch = payloads.BATCHES[name]()
    fitting = 1 if len(batch) > MIB else 12

    def attack() -> None:
        with Stranger(append.node) as stranger:
            stranger.greet(hello())
            for number in range(1, 6):
                stranger.send(append(*[batch] * fitting, number=number))
                frame = stranger.frame()
                assert frame is not None
                if frame.kind == frames.OK:
                    errors = [reply["error"] for reply in frame.body["results"]]
                else:
                    errors = [frame.body]
                assert {error["outcome"] for error in errors} == {"not_applied"}
                assert {error["code"] for error in errors} <= {"CORRUPT_DATA", "LIMIT_EXCEEDED"}

    assert slowest_append(cluster, attack) < LATENCY_S


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("name", payloads.FRAMES)
def test_frames_that_unpack_to_much_end_their_connection_alone(
    cluster: testing.LocalCluster, append: Any, name: str
) -> None:
    frame = payloads.FRAMES[name]()

    def attack() -> None:
        for _ in range(4):
            with Stranger(append.node) as stranger:
                stranger.greet(hello())
                stranger.send(frame)
                stranger.refused()

    assert slowest_append(cluster, attack) < LATENCY_S


@pytest.mark.usefixtures("others")
def test_a_flood_of_small_frames_and_long_ones_leaves_room_for_others(
    cluster: testing.LocalCluster, append: Any
) -> None:
    flood = b"".join(encode(n + 1, UNKNOWN, {}) for n in range(5_000))
    legal = [make() for make in payloads.LEGAL_FRAMES.values()]

    def attack() -> None:
        strangers = [Stranger(append.node) for _ in range(3)]
        for stranger in strangers:
            stranger.greet(hello())
        for _ in range(4):
            for stranger in strangers:
                stranger.send(flood)
                for _ in range(5_000):
                    assert stranger.frame() is not None
        for stranger in strangers:
            for data in legal[:-1]:
                stranger.send(data)
                assert stranger.frame() is not None
            stranger.__exit__()

    assert slowest_append(cluster, attack) < LATENCY_S


@pytest.mark.parametrize(
    "change",
    [
        {"compressions": 5}, {"compressions": {"zstd": 1}}, {"compressions": [1]},
        {"versions": 1}, {"versions": [1]}, {"versions": ["a", "b"]}, {"role": []},
        {"role": "root"},
        {"node": -1}, {"node": (1 << 64) - 1}, {"incarnation": "x"}, {"cluster": b"c"},
        {"cluster": "c" * 10_000}, {"nonce": b""}, {"nonce": None}, {"magic": ["lognode"]},
    ],
)  # fmt: skip
def test_a_malformed_hello_is_refused_with_a_reason(
    cluster: testing.LocalCluster, change: dict[str, Any]
) -> None:
    node = random.choice(cluster.nodes)
    with Stranger(node) as stranger:
        stranger.send(encode(0, frames.HELLO, {**hello().to_body(), **change}))
        assert stranger.refused()
    assert "call failed" not in node.log_path.read_text("utf-8")
