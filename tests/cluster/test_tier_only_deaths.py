"""A real node that is killed with -9 at each step by which a file leaves its disk or is read again.

Steps at the store are held at the proxy of an S3 server until the node is dead. At a step on its
disk the node kills itself (`support/dying_node.py`). Afterwards every acknowledged entry is read
once, and neither the disk nor the store keeps what nothing needs.
"""

import contextlib
import random
import re
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import dying_node
import pytest
from cluster_wal import SMALL_WAL
from s3_servers import KEYS, Asked, Fault, Faults, s3_server, spoiling_proxy
from tier_contents import Tier

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError
from lognode.node.main import main as run_program
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
LOG: Final = "orders"
BOUND: Final = 300_000
_VALUE: Final = 2_000
_KEYS: Final = 8


class Point(NamedTuple):
    """A request at which the node dies. `fault`: whether the request takes effect ("lost")."""

    name: str
    method: str
    path: str
    occurrence: int
    fault: Fault


FAR_READ: Final = "at a far read"
POINTS: Final = (
    Point("before a manifest that may claim", "PUT", "/manifests/", 1, "500"),
    Point("before the next manifest", "PUT", "/manifests/", 2, "500"),
    Point("after a manifest and before its answer", "PUT", "/manifests/", 1, "lost"),
    Point("after the next manifest and before its answer", "PUT", "/manifests/", 2, "lost"),
    Point("at a listing of a chain", "GET", r"prefix=[^&]*manifests(%2F|/)\d", 2, "500"),
    Point("at a later listing of a chain", "GET", r"prefix=[^&]*manifests(%2F|/)\d", 5, "500"),
    Point("at a listing of the parts of a file", "GET", r"prefix=[^&]*files(%2F|/)\d", 1, "500"),
    Point("at a later listing of parts", "GET", r"prefix=[^&]*files(%2F|/)\d", 3, "500"),
    Point(FAR_READ, "GET", r"/files/.*/\d{6}$", 1, "500"),
    Point("before a removal", "DELETE", "/(files|manifests)/", 1, "500"),
    Point("after a removal and before its answer", "DELETE", "/(files|manifests)/", 2, "lost"),
)
STEPS: Final = [(step, when) for step in dying_node.STEPS for when in ("before", "after")]
QUICK: Final = [("store place", "after"), ("delete file", "before")]
"""The steps that CI tries: the place is stored and the file is there; both at the deletion."""
_OF_DAMAGE: Final = ("forget pages", "fetch file", "bring back")
_DYING: Final = str(Path(dying_node.__file__))


class Acked:
    """The entries of a log that were acknowledged: every value is another one."""

    def __init__(self) -> None:
        self.values: dict[str, list[bytes]] = {f"k{number}": [] for number in range(_KEYS)}
        self._rng = random.Random(8)

    def fill(self, cluster: LocalCluster) -> None:
        """Append until the node dies, or enough to make segments."""
        with contextlib.suppress(LognodeError), lognode.Client(cluster.servers, timeout=3) as found:
            log = found.log(LOG)
            for at in range(100):
                key, value = f"k{at % _KEYS}", self._rng.randbytes(_VALUE)
                log.append(key, value)
                self.values[key].append(value)

    def check(self, cluster: LocalCluster) -> None:
        """Each acknowledged entry is there once and in order. Others may be there, each once."""
        with lognode.Client(cluster.servers, timeout=60) as client:
            for key, acked in self.values.items():
                found = [entry.value for entry in client.log(LOG).scan(key)]
                assert len(set(found)) == len(found), f"{key} has an entry twice"
                known = set(acked)
                assert [value for value in found if value in known] == acked, f"{key} lacks entries"


def read_old(cluster: LocalCluster) -> None:
    """Read what has left the disk, unless the node dies."""
    with contextlib.suppress(LognodeError), lognode.Client(cluster.servers, timeout=9) as client:
        for number in range(_KEYS):
            list(client.log(LOG).scan(f"k{number}"))


def local(cluster: LocalCluster) -> int:
    """The bytes of segments on the disk."""
    size = 0
    for path in (cluster.nodes[0].data / "files").glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def create(cluster: LocalCluster) -> None:
    with lognode.Client(cluster.servers, timeout=60) as client:
        client.create_log(LOG, split_bytes=None, split_rate=None, local_retention_bytes=BOUND)


def settle(cluster: LocalCluster, acked: Acked, tier: Tier) -> None:
    """The disk gets within its bound; the store has what the range needs, and nothing else.

    The log rests while the disk gets there. The bound is smaller than a segment, and appends make
    several segments between two looks of the node.
    """
    (node,) = cluster.nodes
    before = node.status()["tier"]["only_files"]

    def has_left() -> bool:
        acked.fill(cluster)
        return bool(node.status()["tier"]["only_files"] > before)

    def is_settled() -> bool:
        if local(cluster) > BOUND:
            return False
        with contextlib.suppress(LognodeError):
            heads = tier.store.snapshot().heads.values()
            held = {each.path for head in heads for each in head.held.values()}
            return {file.path for file in tier.files()} == held
        return False

    testing.eventually(has_left, what="more files are in the tier only", timeout_s=60)
    testing.eventually(is_settled, what="the disk is within its bound", timeout_s=60)
    pages = {path.stem for path in (node.data / "files").glob("*.kept")}
    assert pages <= {file.content_id for file in tier.files()}
    names = ("pages-*", "tier-" + "[0-9a-f]" * 64)
    testing.eventually(
        lambda: not [path for name in names for path in (node.data / "tmp").glob(name)],
        what="no part of a file of a process that died is left",
    )
    status = node.status()
    assert not status["damaged"]
    assert not status["segments_in_doubt"]


def again(cluster: LocalCluster) -> None:
    (node,) = cluster.nodes
    node.start()
    node.wait_ready()
    testing.wait_healthy(cluster)


def damage(cluster: LocalCluster) -> None:
    """Spoil the pages of the files that are in the tier only, with the node down."""
    (node,) = cluster.nodes
    node.kill()
    for path in (node.data / "files").glob("*.kept"):
        data = path.read_bytes()
        size, _, _ = struct.unpack(">QII", data[-16:])  # the list of pages stays: see `kept_pages`
        path.write_bytes(bytes(size) + data[size:])


def die_on_disk(cluster: LocalCluster, acked: Acked, step: str, when: str) -> None:
    """Let the node die at a step on its disk; start it again as it was."""
    (node,) = cluster.nodes
    if step in _OF_DAMAGE:
        damage(cluster)
    node.stop()
    plain, node.program = node.program, (_DYING, step, when, "1")
    node.start()

    def is_dead() -> bool:
        if node.running:
            read_old(cluster)
        if node.running:
            acked.fill(cluster)
        return not node.running

    try:
        testing.eventually(is_dead, what=f"the node dies {when} {step!r}", timeout_s=60)
        assert node.exit_code == -signal.SIGKILL
    finally:
        node.program = plain
    again(cluster)


def die_at_request(cluster: LocalCluster, acked: Acked, faults: Faults, point: Point) -> None:
    """Kill the node while a request is held; start it again."""
    held, free, (node,) = threading.Event(), threading.Event(), cluster.nodes
    seen = 0
    if point.name == FAR_READ:  # what the node has read before is in its memory
        node.kill()
        again(cluster)

    def choose(asked: Asked) -> Fault | None:
        nonlocal seen
        if asked.method == point.method and re.search(point.path, asked.path):
            seen += 1
            if seen == point.occurrence:
                held.set()
                free.wait(60)
                return point.fault
        return None

    def is_held() -> bool:
        if not held.is_set():
            acked.fill(cluster)
            reader.join(0)
        return held.wait(0.2)

    reader = threading.Thread(target=read_old, args=(cluster,), daemon=True)
    faults.choose = choose
    try:
        reader.start()
        testing.eventually(is_held, what=point.name, timeout_s=60)
        node.kill()
    finally:
        free.set()
        faults.choose = lambda asked: None
    reader.join(30)
    again(cluster)


@contextlib.contextmanager
def with_directory(tmp_path: Path) -> Iterator[tuple[LocalCluster, Tier]]:
    flags = ("--tier", str(tmp_path / "tier"), "--tier-grace", "0", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags) as cluster:
        create(cluster)
        yield cluster, Tier.at(str(tmp_path / "tier"))


def test_a_node_killed_between_place_and_deletion_loses_nothing(tmp_path: Path) -> None:
    with with_directory(tmp_path) as (cluster, tier):
        acked = Acked()
        for step, when in QUICK:
            die_on_disk(cluster, acked, step, when)
            acked.check(cluster)
        settle(cluster, acked, tier)
        acked.check(cluster)


@pytest.mark.by_hand
def test_a_node_killed_at_each_step_on_its_disk_loses_nothing_and_keeps_nothing(
    tmp_path: Path,
) -> None:
    with with_directory(tmp_path) as (cluster, tier):
        acked = Acked()
        for step, when in STEPS:
            die_on_disk(cluster, acked, step, when)
            acked.check(cluster)
            settle(cluster, acked, tier)
        acked.check(cluster)


@pytest.mark.by_hand
def test_a_node_killed_at_each_request_loses_nothing_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "server").mkdir()
    with s3_server(tmp_path / "server") as server, spoiling_proxy(server) as faults:
        place = f"s3://{server.bucket('deaths')}/tier"
        flags = ("--tier", place, "--tier-endpoint", faults.endpoint, "--tier-grace", "0")
        with testing.cluster(tmp_path / "source", 1, flags=(*flags, *SMALL_WAL)) as cluster:
            create(cluster)
            acked, tier = Acked(), Tier.at(place, endpoint=server.endpoint)
            settle(cluster, acked, tier)
            for point in POINTS:
                die_at_request(cluster, acked, faults, point)
                acked.check(cluster)
            settle(cluster, acked, tier)
            acked.check(cluster)
        assert run_program(["tier", "verify", place, "--endpoint", server.endpoint]) == 0
