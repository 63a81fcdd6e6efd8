"""S1, L1: with little room left appends are refused, as not applied, before the disk is full."""

import re
from pathlib import Path

import pytest
from small_disk import fill

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

MIB = 1 << 20
RESERVE = 16 * MIB
FLAGS = ("--wal-file-bytes", str(MIB), "--disk-reserve-bytes", str(RESERVE))


def refused(client: lognode.Client, key: bytes) -> bool:
    """Whether an append is, for lack of room; the client tries again until its deadline."""
    found: lognode.LognodeError | None = None
    try:
        client.log("orders").append(key, b"one more", timeout=0.5)
    except (lognode.Overloaded, lognode.Timeout) as error:
        found = error
    if found is not None:
        assert found.outcome == "not_applied"
        assert "the node refuses appends until the disk has space" in found.message
        assert "trim or delete keys" in found.message
    return found is not None


def logged(node: testing.LocalNode, what: str) -> list[str]:
    """The lines in which the node said so."""
    return [line for line in node.log_path.read_text().splitlines() if what in line]


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(12 * MIB, id="low", marks=pytest.mark.by_hand),
        pytest.param(2 * MIB, id="last"),
    ],
)
def test_S1_S11_without_the_reserve_appends_are_refused_and_all_else_goes_on(
    small_disk: Path, tmp_path: Path, leave: int
) -> None:
    with testing.cluster(tmp_path, 1, flags=FLAGS, start=False) as cluster:
        (node,) = cluster.nodes
        node.data = small_disk / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=20) as client:
            log = client.create_log("orders")
            acks = [log.append(b"k", b"%d" % n) for n in range(20)]
            assert client.status()["disk"]["level"] == "AMPLE"
            filler = fill(small_disk, leave=leave)
            testing.eventually(lambda: refused(client, b"k"), what="appends are refused")
            assert log.count(b"k") >= len(acks)
            assert [entry.seq for entry in log.scan(b"k")][: len(acks)] == [a.seq for a in acks]
            client.create_log("another")
            level = "LOW" if leave > RESERVE // 2 else "LAST"

            def told() -> bool:  # with the next look at the disk, and the next heartbeat
                status = client.status()
                short = [each["disk_short"] for each in status["nodes"]]
                return status["disk"]["level"] == level and short == [True]

            testing.eventually(told, what="the status says so")
            reasons = client.health(nodes=1)["reasons"]
            assert any("the disk of node 1 has" in each for each in reasons)
            held = log.count(b"k")
            filler.unlink()
            testing.eventually(lambda: not refused(client, b"k"), what="it goes on by itself")
            assert log.count(b"k") > held
            testing.wait_healthy(cluster)
        # Once for each level, which it may have seen on the way there.
        lines = " ".join(logged(node, "the disk has "))
        said = re.findall("LOW|SCARCE|LAST", lines)
        assert said[-1] == level
        assert said == [each for each in ("LOW", "SCARCE", "LAST") if each in said]
        assert len(logged(node, "the disk has enough space again")) == 1


def test_L1_a_leader_without_room_lets_a_member_with_room_lead(
    small_disk: Path, tmp_path: Path
) -> None:
    with testing.cluster(tmp_path, 3, flags=FLAGS, start=False) as cluster:
        victim = cluster.nodes[1]
        victim.data = small_disk / "data"
        cluster.start()
        testing.wait_healthy(cluster)
        with lognode.Client(cluster.servers, timeout=30) as client:
            log = client.create_log("orders")
            testing.wait_healthy(cluster)
            (range_,) = [each for each in client.status()["ranges"] if each["log"] == "orders"]
            client.admin.transfer(range_["id"], to_node=victim.number)
            log.append(b"k", b"by the victim")
            filler = fill(small_disk, leave=12 * MIB)

            def another_leads() -> bool:
                log.append(b"k", b"meanwhile")  # each is acknowledged, after a moment
                return testing.leader_of(client, "orders") != victim.number

            testing.eventually(another_leads, what="a member with room leads")
            for _ in range(20):
                log.append(b"k", b"after")
            assert victim.running

            def told() -> bool:  # with the victim's next heartbeat
                reasons = client.health(nodes=3)["reasons"]
                return any("the disk of node 2 has" in reason for reason in reasons)

            testing.eventually(told, what="health names the node")
            filler.unlink()
            testing.wait_healthy(cluster)
