"""`lognode node drain` and `node remove`: nodes leave under load, and nothing is lost."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_history import check, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing
from lognode.client.cli.printer import FORMATS

pytestmark = pytest.mark.cluster

PAUSE_S = 3.0
DRAIN_S = 60.0


def cli(cluster: testing.LocalCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "node", *words, "--server", cluster.servers],
        capture_output=True, text=True, timeout=90, check=False, env=os.environ,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def row_of(client: lognode.Client, node: int) -> dict[str, Any]:
    (row,) = [row for row in client.admin.nodes() if row["id"] == node]
    return row


def rests_on(client: lognode.Client, staying: set[int]) -> bool:
    """Whether these nodes have all ranges, and nothing is under way."""
    status = client.status()
    members = [set(range_["members"]) for range_ in status["ranges"]]
    return not status["operations"] and all(each == staying for each in members)


def ended(node: testing.LocalNode) -> str:
    """What a node that ends by itself, with exit code 1, says last."""
    testing.eventually(lambda: not node.running, what=f"node {node.number} ends")
    assert node.exit_code == 1
    return node.log_path.read_text().splitlines()[-1]


def test_S2_S4_S8_L1_a_node_is_drained_under_load_and_removed(tmp_path: Path) -> None:
    """The one that leads the controller; then its process ends, and its directory is refused."""
    with (
        testing.cluster(tmp_path, 4) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("load", ranges=6)
        testing.wait_healthy(cluster)
        leaves: int = client.status()["cluster"]["controller_leader"]
        node = cluster.nodes[leaves - 1]
        staying = {1, 2, 3, 4} - {leaves}
        seed = random.SystemRandom().randrange(1 << 32)
        with Load(cluster.servers, "load", seed, Size(value_bytes=200)) as load:
            load.go_on(200)
            was = row_of(client, leaves)["replicas"]
            assert was > 1
            began = client.admin.drain(leaves, wait=False)
            assert began == {"node": leaves, "state": "DRAINING", "replicas": was}
            load.go_on(50)
            assert client.admin.drain(leaves, timeout=DRAIN_S) == {
                "node": leaves, "state": "DRAINING", "replicas": 0,
            }  # fmt: skip
            # The last move is decided; it ends when its new members have installed it.
            testing.eventually(lambda: rests_on(client, staying), what="all moves end")
            status = client.status()
            said = f"node {leaves} is draining"
            ends = [range_["last_operation"] for range_ in status["ranges"]]
            assert [(e["kind"], e["outcome"]) for e in ends if e and e["reason"] == said] == (
                [("move", "DONE")] * was
            )
            load.go_on(50)
            new = client.create_log("new", ranges=4)
            new.append(b"k", b"v")
            assert row_of(client, leaves)["replicas"] == 0, "it gets nothing new"
            assert client.admin.remove(leaves) == client.admin.remove(leaves) == {
                "node": leaves, "state": "REMOVED", "replicas": 0,
            }  # fmt: skip
            assert f"node {leaves} was removed from the cluster" in ended(node)
            load.go_on(100)
        assert load.slowest_s() < PAUSE_S
        check(same_on(cluster.servers, "load", staying), load.told)
        testing.wait_healthy(cluster, 3)
        node.start()
        assert "the cluster has refused this data directory" in ended(node)
        assert row_of(client, leaves)["state"] == "REMOVED"
        with pytest.raises(lognode.Conflict, match="is REMOVED and cannot be drained"):
            client.admin.drain(leaves)


@pytest.mark.by_hand
def test_S2_one_node_after_the_other_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    """From one node to one other: also the only member of the controller moves."""
    with (
        testing.cluster(tmp_path, 2) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("orders", ranges=2)
        acks = log.append_many([(b"k%d" % (n % 5), b"%d" % n) for n in range(300)])
        assert client.admin.drain(1, timeout=DRAIN_S)["replicas"] == 0
        assert [range_["members"] for range_ in client.status()["ranges"]] == [[2]] * 3
        with pytest.raises(lognode.Conflict, match="node 2 is the last ACTIVE node"):
            client.admin.drain(2)
        assert client.admin.remove(1)["state"] == "REMOVED"
        assert "was removed" in ended(cluster.nodes[0])
        testing.wait_healthy(cluster, 1)
        log.append(b"k0", b"more")
        entries = same_on(cluster.servers, "orders", [2])
        assert sum(map(len, entries.values())) == len(acks) + 1
        with pytest.raises(lognode.Conflict, match="no other node is ACTIVE"):
            client.admin.remove(2)


@pytest.mark.by_hand
def test_a_dead_node_is_removed_and_its_replicas_are_rebuilt_at_once(tmp_path: Path) -> None:
    """By default that would take five minutes. What only it has keeps it from being removed."""
    with (
        testing.cluster(tmp_path, 4) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("orders", ranges=2)
        alone = client.create_log("alone", ranges=4, replicas=1)
        alone.append(b"k", b"v")
        gone = next(
            range_["members"][0] for range_ in client.status()["ranges"]
            if range_["log"] == "alone" and range_["members"][0] != 1
        )  # fmt: skip
        node = cluster.nodes[gone - 1]
        node.kill()
        with pytest.raises(lognode.Conflict, match=f"node {gone} is ACTIVE: .*--dead is only for"):
            client.admin.remove(gone, dead=True)

        def dead() -> bool:
            return bool(row_of(client, gone)["state"] == "DEAD")

        testing.eventually(dead, what="it is DEAD")
        with pytest.raises(
            lognode.Conflict, match="or remove the node with --dead if it never returns"
        ):
            client.admin.remove(gone)
        with pytest.raises(lognode.Conflict, match=r"has the last copy of range \d+ of log alon"):
            client.admin.remove(gone, dead=True)
        assert dead(), "nothing has changed"
        client.delete_log("alone")
        assert client.admin.remove(gone, dead=True)["state"] == "REMOVED"
        testing.eventually(
            lambda: row_of(client, gone)["replicas"] == 0, what="its replicas are elsewhere"
        )
        testing.wait_healthy(cluster, 3)
        node.start()
        assert f"node {gone} was removed from the cluster" in ended(node)


@pytest.mark.by_hand
def test_the_command_line_drains_undoes_and_removes(tmp_path: Path) -> None:
    with (
        testing.cluster(tmp_path, 4) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("orders", ranges=3)
        testing.wait_healthy(cluster)
        for format_ in FORMATS:
            done = cli(cluster, "drain", "4", "--timeout", "60s", "--format", format_)
            assert (done.returncode, done.stderr) == (0, "")
            if format_ != "table":
                row = {"node": 4, "state": "DRAINING", "replicas": 0}
                assert json.loads(done.stdout) == row
            undone = cli(cluster, "drain", "4", "--undo", "--format", format_)
            assert (undone.returncode, "ACTIVE" in undone.stdout) == (0, True)
        full = next(row["id"] for row in client.admin.nodes() if row["replicas"])
        begun = cli(cluster, "drain", str(full), "--no-wait")
        assert begun.returncode == 0
        assert "`lognode node list` shows the count" in begun.stderr
        other = next(row["id"] for row in client.admin.nodes() if row["id"] not in (4, full))
        refusals: tuple[tuple[tuple[str, ...], int, str], ...] = (
            (("drain", "9"), 4, "node 9 does not exist"),
            (("drain", str(other)), 5, f"node {other} cannot be drained: "),
            (("drain", "-1"), 2, "not a whole number"),
            (("remove", "9", "--yes"), 4, "node 9 does not exist"),
            (("remove", "4", "--yes"), 5, "node 4 is ACTIVE: `lognode node drain 4` first"),
            (("remove", "4"), 2, "Give --yes"),
        )
        for words, code, said in refusals:
            wrong = cli(cluster, *words)
            assert (wrong.returncode, said in wrong.stderr) == (code, True), wrong.stderr
            assert len(wrong.stderr.splitlines()) == 1
        assert cli(cluster, "drain", str(full), "--timeout", "60s").returncode == 0
        for format_ in FORMATS:
            removed = cli(cluster, "remove", str(full), "--yes", "--format", format_)
            assert (removed.returncode, "REMOVED" in removed.stdout) == (0, True), removed.stderr
        listed = cli(cluster, "list").stdout.splitlines()
        assert any("REMOVED" in line for line in listed)
