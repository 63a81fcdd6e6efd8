"""A real node that is killed at each step of an upload, of a manifest and of a sweep.

The node asks moto's S3 server through a proxy, which holds the request of a step until the node is
dead. The segments are large enough for several parts.
"""

import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from metrics_page import metric
from s3_servers import KEYS, Asked, Fault, Faults, s3_server, spoiling_proxy

import lognode
from lognode import testing
from lognode.client.objects import places
from lognode.client.protocol.errors import LognodeError
from lognode.node.lifecycle import base_pieces
from lognode.node.main import main as run_program
from lognode.node.tier import coverage, names
from lognode.node.tier.tier_store import TierStore
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
LOG: Final = "orders"
VALUE: Final = random.Random(5).randbytes(256 * 1024)
"""Not to be compressed: segments are to have several parts of 8 MiB."""
FLAGS: Final = ("--wal-file-bytes", str(4 << 20), "--tier-grace", "0")


class Point(NamedTuple):
    """Where the node dies. `fault`: whether the request takes effect ("lost") or not ("500")."""

    name: str
    method: str
    path: str
    occurrence: int
    fault: Fault


POINTS: Final = (
    Point("before the first part", "PUT", r"/files/.*/000000$", 1, "500"),
    Point("between two parts", "PUT", r"/files/.*/000001$", 1, "500"),
    Point("after a part and before its answer", "PUT", r"/files/.*/000001$", 1, "lost"),
    Point("before a manifest", "PUT", "/manifests/", 1, "500"),
    Point("after a manifest and before its answer", "PUT", "/manifests/", 1, "lost"),
    Point("between two removals of a sweep", "DELETE", "/(files|manifests)/", 2, "500"),
    Point("after a removal and before its answer", "DELETE", "/(files|manifests)/", 1, "lost"),
)


class Gate:
    """Holds the request of a point until it is let go."""

    def __init__(self, point: Point) -> None:
        self.held, self.free = threading.Event(), threading.Event()
        self._point = point
        self._seen = 0

    def choose(self, asked: Asked) -> Fault | None:
        point = self._point
        if asked.method == point.method and re.search(point.path, asked.path):
            self._seen += 1
            if self._seen == point.occurrence:
                self.held.set()
                self.free.wait(60)
                return point.fault
        return None


def fill(cluster: LocalCluster, rounds: int = 1) -> None:
    with lognode.Client(cluster.servers, timeout=60) as client:
        for at in range(rounds):
            client.log(LOG).append_many([(f"k{n % 4}", VALUE[at + n :]) for n in range(20)])


def entries(cluster: LocalCluster) -> list[lognode.Entry]:
    with lognode.Client(cluster.servers, timeout=60) as client:
        return sorted(client.log(LOG).snapshot().read())


def die(source: LocalCluster, faults: Faults, point: Point) -> None:
    """Fill until the node is at the point; kill the node there, and start it again."""
    gate = Gate(point)
    faults.choose = gate.choose

    def reached() -> bool:
        if not gate.held.is_set():
            fill(source)
        return gate.held.wait(0.2)

    (node,) = source.nodes
    try:
        testing.eventually(reached, what=point.name, timeout_s=60)
        node.kill()
    finally:
        gate.free.set()
        faults.choose = lambda asked: None
    node.start()
    node.wait_ready()
    testing.wait_healthy(source)


def is_settled(tier: TierStore, entries: list[lognode.Entry]) -> Callable[[], bool]:
    """Return what tells whether the tier has all but the entries of the last memtable, and nothing
    that a restore does not need."""

    def look() -> bool:
        try:
            (log,) = [each for each in coverage.logs(tier.snapshot().heads.values())
                      if each.newest.log.name == LOG]  # fmt: skip
            ((_, head),) = log.pieces
            manifest = tier.manifest(head.chain, head.number)
            numbers = tier.snapshot().numbers
        except (LognodeError, ValueError):
            return False
        assert manifest is not None
        assert manifest.base is not None
        through = base_pieces.unpack(manifest.base).tables["next_seq"]
        parts = [names.part_of(each.name) for each in tier.objects.objects(names.FILES)]
        stored = {part[0].path for part in parts if part and part[0].chain == head.chain}
        needed = {held.path for held in head.held.values()}
        return (
            stored == needed
            and len(numbers[head.chain]) == 1
            and through > 0.5 * max(each.seq for each in entries)
        )

    return look


@pytest.mark.by_hand
def test_a_node_killed_at_each_step_of_upload_manifest_and_sweep_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "server").mkdir()
    with s3_server(tmp_path / "server") as server, spoiling_proxy(server) as faults:
        place = f"s3://{server.bucket('deaths')}/tier"
        flags = ("--tier", place, "--tier-endpoint", faults.endpoint, *FLAGS)
        with testing.cluster(tmp_path / "source", 1, flags=flags) as source:
            with lognode.Client(source.servers, timeout=60) as client:
                client.create_log(LOG, split_bytes=None, split_rate=None)
            for point in POINTS:
                die(source, faults, point)
            before = entries(source)
            tier = TierStore(places.opened(place, endpoint=server.endpoint))
            testing.eventually(
                is_settled(tier, before), what="all is in the tier, once", timeout_s=90
            )
            assert metric(source.nodes[0], "lognode_tier_waiting_files") == 0
        assert run_program(["tier", "verify", place, "--endpoint", server.endpoint]) == 0
        with testing.cluster(tmp_path / "target", 1) as target:
            command = ["tier", "restore", place, "--endpoint", server.endpoint,
                       "--server", target.servers, "--log", LOG]  # fmt: skip
            assert run_program(command) == 0
            after = entries(target)
    for key in {entry.key for entry in before}:
        has = [entry for entry in before if entry.key == key]
        given = [entry for entry in after if entry.key == key]
        assert given, "entries of each key were sealed"
        assert given == has[: len(given)]
