"""Real nodes whose new and repaired replicas take sealed files from the tier, not from members."""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_ranges import ranges_of
from cluster_wal import SMALL_WAL
from metrics_page import metric
from tier_contents import Tier

import lognode
from lognode import testing
from lognode.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster
LOG = "orders"
RNG = random.Random(3)
BYTES = 1_000_000
"""The least bytes of segments that the tier has before a replica moves."""
CALM_S = 3.0
"""For so long the leader's files stay the same before a replica moves."""
VALUES = [RNG.randbytes(400) for _ in range(64)]


def fill(source: LocalCluster, rounds: int) -> None:
    with lognode.Client(source.servers, timeout=60) as client:
        log = client.log(LOG)
        for at in range(rounds):
            log.append_many([(f"k{n % 8}", VALUES[(at + n) % 64]) for n in range(200)])


def entries(source: LocalCluster) -> list[lognode.Entry]:
    with lognode.Client(source.servers, timeout=60) as client:
        return sorted(client.log(LOG).snapshot().read())


def sent(source: LocalCluster) -> float:
    """The bytes of segments that members have sent to each other."""
    return sum(metric(node, "lognode_transfer_sent_bytes_total") for node in source.nodes)


def received(node: LocalNode) -> float:
    return metric(node, "lognode_tier_received_bytes_total")


def segments(node: LocalNode) -> dict[str, int]:
    return {path.stem: path.stat().st_size for path in (node.data / "files").glob("*.seg")}


def _member(source: LocalCluster) -> tuple[int, list[int]]:
    with lognode.Client(source.servers, timeout=60) as client:
        (row,) = ranges_of(client, LOG)
    return row["id"], row["members"]


def _move(source: LocalCluster) -> LocalNode:
    """Move a replica to the node that has none; return this node."""
    range_id, members = _member(source)
    other = ({1, 2, 3, 4} - set(members)).pop()
    with lognode.Client(source.servers, timeout=60) as client:
        client.admin.move(range_id, from_node=members[0], to_node=other)
    testing.wait_healthy(source)
    return source.nodes[other - 1]


def _rot(node: LocalNode) -> int:
    """Damage the largest segment of a node that is down; return its bytes."""
    path = max((node.data / "files").glob("*.seg"), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return len(data)


@pytest.mark.by_hand
def test_a_moved_and_a_repaired_replica_load_the_members_only_with_what_the_tier_lacks(
    tmp_path: Path,
) -> None:
    place = tmp_path / "tier"
    flags = ("--tier", str(place), "--balance", "off", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 4, flags=flags) as source:
        testing.wait_healthy(source)
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log(LOG, replicas=3, split_bytes=None, split_rate=None)
        fill(source, 80)
        before, tier = entries(source), Tier.at(str(place))

        seen: dict[str, int] = {}
        since = time.monotonic()

        def is_uploaded() -> bool:
            """Whether the leader builds and merges nothing any more, and the tier has its files."""
            nonlocal seen, since
            with lognode.Client(source.servers, timeout=60) as client:
                here = segments(source.nodes[testing.leader_of(client, LOG) - 1])
            if here != seen:
                seen, since = here, time.monotonic()
            heads = tier.store.snapshot().heads.values()
            held = {name for head in heads for name in head.held}
            is_calm = time.monotonic() - since > CALM_S
            return is_calm and here.keys() <= held and sum(here.values()) > BYTES

        testing.eventually(is_uploaded, what="all files are in the tier", timeout_s=60)
        uploaded = 0.9 * sum(seen.values())
        new = _move(source)
        whole = sum(segments(new).values())
        assert received(new) > uploaded
        by_members = sent(source)
        assert by_members < whole - uploaded
        assert new.status()["tier"]["received_bytes"] == received(new)
        # Rot: the file comes from the tier, and no member sends a byte of it.
        new.kill()
        size = _rot(new)
        new.start()
        new.wait_ready()
        testing.eventually(_is_repaired(new, size), what="the file is repaired", timeout_s=60)
        # A lost disk: the whole replica.
        new.kill()
        shutil.rmtree(new.data / "wal")
        shutil.rmtree(new.data / "files")
        (new.data / "files").mkdir(mode=0o700)
        new.start()
        new.wait_ready()
        testing.eventually(
            lambda: received(new) > uploaded, what="the replica is rebuilt", timeout_s=60
        )
        testing.wait_healthy(source)
        assert sent(source) < by_members + whole - uploaded
        # Without the tier the members send all files.
        place.rename(tmp_path / "away")
        place.write_text("in the way")
        already = sent(source)
        last = _move(source)
        assert last is not new
        assert not received(last)
        assert sent(source) - already > 0.7 * whole
        assert entries(source) == before


def _is_repaired(node: LocalNode, size: int) -> Callable[[], bool]:
    return lambda: (
        received(node) >= size
        and not node.status()["segments_in_doubt"]
        and not node.status()["damaged"]
    )
