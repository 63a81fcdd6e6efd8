"""`lognode range recover`: a range that lost two of its three members for good goes on from the
third one, with all that this one had."""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_nodes import ask, live

import lognode
from lognode import testing
from lognode.client.cli.printer import FORMATS
from lognode.client.connection import dial
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.cluster import RANGE_RECOVER, RANGE_RECOVERY
from lognode.client.protocol.peers import REPLICA_END

pytestmark = pytest.mark.cluster

GONE = (4, 5)
"""The nodes that are lost with their disks. The controller keeps its members, nodes 1 to 3."""
LOST_S = 60.0
"""Ten seconds until they are DEAD, on a machine with other work."""


@pytest.fixture
def five(tmp_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(tmp_path, 5) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


@pytest.fixture
def client(five: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(five.servers, timeout=30) as found:
        assert found.status()["cluster"]["controller"] == [1, 2, 3]
        yield found


def cli(cluster: testing.LocalCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "range", "recover", *words,
         "--server", cluster.servers],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip


def range_with(client: lognode.Client, range_id: int) -> dict[str, Any]:
    return next(range_ for range_ in client.status()["ranges"] if range_["id"] == range_id)


def on_both(client: lognode.Client, log: str) -> list[dict[str, Any]]:
    """The ranges of the log with members on both nodes that are going to be lost."""
    return [
        range_
        for range_ in client.status()["ranges"]
        if range_["log"] == log and set(GONE) < set(range_["members"])
    ]


def survivor_of(range_: dict[str, Any]) -> int:
    (node,) = set(range_["members"]) - set(GONE)
    return int(node)


def lose(five: testing.LocalCluster, client: lognode.Client) -> None:
    """The nodes, until the controller calls them DEAD."""
    for number in GONE:
        five.nodes[number - 1].kill()

    def dead() -> bool:
        states = {node["id"]: node["state"] for node in client.status()["nodes"]}
        return all(states[number] == "DEAD" for number in GONE)

    testing.eventually(dead, timeout_s=LOST_S, what="they are DEAD")


def wait_grown(client: lognode.Client, range_id: int) -> None:
    def grown() -> bool:
        range_ = range_with(client, range_id)
        return range_["members"] == [1, 2, 3] and not range_["operation"]

    testing.eventually(grown, timeout_s=60, what="it has three members again")


def test_S6_a_range_goes_on_from_the_member_that_is_left(
    five: testing.LocalCluster, client: lognode.Client
) -> None:
    """It is told first what may be lost; then all that the survivor had is there, what comes after
    the lost entries has other seqs, and followers and producers carry on by themselves."""
    client.create_log("first")  # on nodes 1 to 3, so that the next one is on the others
    log = client.create_log("orders")
    testing.wait_healthy(five)
    (range_,) = on_both(client, "orders")
    number, survivor = range_["id"], survivor_of(range_)
    kept = [log.append(b"key", b"kept %d" % n).seq for n in range(200)]
    assert kept[-1] is not None
    assert log.count(b"key", node=survivor, through=kept[-1]) == 200
    early = cli(five, str(number), "--from", str(survivor), "--accept-loss")
    assert (early.returncode, "has a majority" in early.stderr) == (5, True)

    numbered(log, range(1, 4))
    assert log.count(b"named", node=survivor, consistency="linearizable") == 3
    alone = five.nodes[survivor - 1]
    alone.kill()
    lost = [log.append(b"key", b"lost %d" % n).seq for n in range(20)]
    assert lost[-1] is not None
    with log.follow(keys=[b"key"], start=lost[-1] + 1) as feed, log.producer() as producer:
        producer.submit(b"other", b"lost too").result()
        numbered(log, range(1, 7))
        lose(five, client)
        for gone in GONE:
            shutil.rmtree(five.nodes[gone - 1].data)
        alone.start()
        alone.wait_ready()
        # Who asks first asks the node that was started a moment ago, and has to hear of a leader.
        testing.eventually(
            lambda: "to recover the range" in cli(five, str(number)).stderr, what="it could go on"
        )
        check_told(five, number, survivor)
        waiting = producer.submit(b"other", b"comes after")
        done = cli(five, str(number), "--from", str(survivor), "--accept-loss", "--format", "json")
        assert (done.returncode, done.stderr) == (0, "")
        answer = json.loads(done.stdout)
        assert answer["generation"] == range_["generation"] + 1
        ack = log.append(b"key", b"new")
        assert ack.seq is not None
        assert ack.seq > lost[-1] + (1 << 39), "S6: no seq is given twice"
        waiting.result()
        assert next(feed.entries()).value == b"new"
    numbered(log, range(1, 7))
    named = [entry.value for entry in log.scan(b"named")]
    assert named == [b"%d" % number for number in range(1, 7)], "S8: only what was lost comes again"
    wait_grown(client, number)
    last = range_with(client, number)["last_operation"]
    assert last["kind"] == "expand"
    for node in (1, 2, 3):
        entries = list(log.scan(b"key", node=node, through=ack.seq))
        assert [entry.seq for entry in entries] == [*kept, ack.seq]
        assert [entry.value for entry in log.scan(b"other", node=node)] == [b"comes after"]


@pytest.mark.by_hand
def test_S12_a_member_that_is_damaged_for_good_counts_as_gone(
    five: testing.LocalCluster, client: lognode.Client
) -> None:
    """No majority of sound members is left for a repair: one is DEAD, and one has lost its WAL."""
    client.create_log("first")
    log = client.create_log("orders")
    testing.wait_healthy(five)
    (range_,) = on_both(client, "orders")
    number, survivor = range_["id"], survivor_of(range_)
    ack = log.append(b"key", b"value")
    assert log.count(b"key", node=survivor, through=ack.seq) == 1
    lose(five, client)
    damaged = five.nodes[GONE[1] - 1]
    shutil.rmtree(damaged.data / "wal")
    damaged.start()
    damaged.wait_ready()

    def told() -> dict[int, Any]:
        return {row["node"]: row for row in client.admin.recovery(number)["members"]}

    said = testing.eventually(lambda: told()[GONE[1]]["damaged"], what="it says that it is damaged")
    assert "its log is not in the WAL" in said
    wrong = cli(five, str(number), "--from", str(GONE[1]), "--accept-loss")
    assert (wrong.returncode, "is damaged" in wrong.stderr) == (5, True), wrong.stderr
    testing.eventually(
        lambda: [row["state"] for row in told().values()].count("ACTIVE") == 2, what="it is back"
    )
    assert client.admin.recovery(number)["refused"] is None
    client.admin.recover(number, from_node=survivor, accept_loss=True)
    gid = (number, range_["generation"])
    testing.eventually(lambda: gid not in replicas_on(damaged), what="it lets go of it")
    testing.eventually(
        lambda: all(row["range"] != number for row in client.status()["damaged"]),
        what="nothing of it is damaged",
    )
    log.append(b"key", b"more")
    assert [entry.value for entry in log.scan(b"key")] == [b"value", b"more"]


def replicas_on(node: testing.LocalNode) -> set[tuple[int, int]]:
    """Range and generation of all that the node has."""
    with lognode.Client(node.address) as client:
        return {(row["range"], row["generation"]) for row in client.status()["replicas"]}


def append_at(node: testing.LocalNode, range_id: int, generation: int) -> str:
    """What that very node says to an append to a generation: a code."""

    async def ask() -> str:
        host, _, port = node.address.removeprefix("lognode://").rpartition(":")
        connection = await dial(host, int(port))
        deadline = asyncio.get_running_loop().time() + 10.0
        body = {"range": range_id, "generation": generation, "batches": [b""]}
        try:
            await connection.request(APPEND, body, deadline=deadline)
        except lognode.LognodeError as error:
            return error.code
        finally:
            connection.close()
        return "OK"

    return asyncio.run(ask())


@pytest.mark.by_hand
def test_S2_a_recovery_ends_after_a_kill_of_the_survivor_and_returning_members_delete_their_data(
    five: testing.LocalCluster, client: lognode.Client
) -> None:
    """Killed at some moment of it and started again; nothing was lost here, and nothing is. The
    others, that come back with their disks, never serve what they had."""
    log = client.create_log("many", split_at=[b"b", b"c", b"d", b"e", b"f", b"g", b"h"])
    testing.wait_healthy(five)
    ranges = on_both(client, "many")
    assert len(ranges) >= 2
    acks = {}
    for range_ in ranges:
        key = (range_["start"] or b"a") + b"1"
        acks[key] = [log.append(key, b"%d" % n).seq for n in range(50)]
        assert log.count(key, node=survivor_of(range_), through=acks[key][-1]) == 50
    lose(five, client)
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    print("seed", seed)
    for range_ in ranges:
        survivor = survivor_of(range_)
        alone = five.nodes[survivor - 1]
        client.admin.recover(range_["id"], from_node=survivor, accept_loss=True, wait=False)
        time.sleep(rng.uniform(0.0, 0.2))  # the moment is what is drawn
        alone.kill()
        alone.start()
        alone.wait_ready()
        wait_grown(client, range_["id"])
    for key, seqs in acks.items():
        seqs.append(log.append(key, b"more").seq)
        for node in (1, 2, 3):
            assert [entry.seq for entry in log.scan(key, node=node, through=seqs[-1])] == seqs
    for number in GONE:
        back = five.nodes[number - 1]
        back.start()
        back.wait_ready()
    for number in GONE:
        back = five.nodes[number - 1]
        old = {(range_["id"], range_["generation"]) for range_ in ranges}
        testing.eventually(lambda: not old & replicas_on(back), what="it lets go")  # noqa: B023
        assert {append_at(back, *gid) for gid in old} == {"GENERATION_MISMATCH"}
    testing.wait_healthy(five)


def numbered(log: Any, numbers: range) -> None:
    """Send these records of a named producer, as an import does."""
    with log.producer(name="import") as producer:
        for number in numbers:
            producer.submit(b"named", b"%d" % number, number=number)


def check_told(five: testing.LocalCluster, number: int, survivor: int) -> None:
    """Without the flag, in every format, it says what there is and changes nothing."""
    for format_ in FORMATS:
        told = cli(five, str(number), "--format", format_)
        assert told.returncode == 5
        assert told.stderr == (
            "lognode range recover: nothing changed; to recover the range: "
            f"lognode range recover {number} --from {survivor} --accept-loss\n"
        )
        assert "every entry acknowledged after entry" in told.stdout
        assert "this promise ends: S2" in told.stdout
        if format_ != "table":
            found = json.loads(told.stdout)
            assert (found["range"], found["proposed"]) == (number, survivor)
            answers = {member["node"]: member["answers"] for member in found["members"]}
            assert answers == {survivor: True, 4: False, 5: False}
    for words, code, said in (
        (("999",), 4, "range 999 does not exist"),
        (("999", "--from", "1", "--accept-loss"), 4, "range 999 does not exist"),
        (("0", "--from", "1", "--accept-loss"), 1, "range 0 is the controller"),
        ((str(number), "--accept-loss"), 2, "--accept-loss needs --from NODE"),
        ((str(number), "--from", "x"), 2, "not a whole number"),
        ((str(number), "--from", "9", "--accept-loss"), 4, "node 9 has no replica of range"),
        ((str(number), "--from", "4", "--accept-loss"), 5, "node 4 is DEAD"),
    ):
        wrong = cli(five, *words)
        assert (wrong.returncode, said in wrong.stderr) == (code, True), wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1


def test_bad_requests_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            (node,) = cluster.nodes
            await client.create_log("a")
            await cluster.settled()  # a replica that has not begun cannot answer
            (range_,) = (await client.metadata("a"))["ranges"]
            version = node.node._view.metadata.version
            accepted = {"range": range_["id"], "from": 1, "accept_loss": True}
            for body, error, said in (
                ({**accepted, "accept_loss": False}, lognode.InvalidArgument, "accept the loss"),
                ({**accepted, "accept_loss": 1}, lognode.InvalidArgument, "`accept_loss` is 1"),
                ({**accepted, "range": None}, lognode.InvalidArgument, "range"),
                ({**accepted, "from": -1}, lognode.InvalidArgument, "from"),
                ({**accepted, "range": 99}, lognode.NotFound, "range 99 does not exist"),
                ({**accepted, "from": 2}, lognode.NodeNotFound, "node 2 has no replica"),
                (accepted, lognode.Conflict, "has a majority"),
            ):
                with pytest.raises(error, match=said):
                    await ask(node, RANGE_RECOVER, body)
            for body, error in (
                ({"range": 99}, lognode.NotFound),
                ({"range": "x"}, lognode.InvalidArgument),
                ({}, lognode.InvalidArgument),
            ):
                with pytest.raises(error):
                    await ask(node, RANGE_RECOVERY, body)
            peer = await node.peer()
            deadline = asyncio.get_running_loop().time() + 5.0
            with pytest.raises(lognode.InvalidArgument):
                await peer.request(REPLICA_END, {"range": b"x"}, deadline=deadline)
            gone = {"range": 7, "generation": 3}
            assert await peer.request(REPLICA_END, gone, deadline=deadline) == {"held": None}
            peer.close()
            for number in (0, range_["id"]):
                told = await client.admin.recovery(number)
                assert told["refused"] is not None, told
            (member,) = told["members"]
            assert (told["proposed"], member["answers"], member["last_seq"]) == (1, True, 0)
            assert member["last_index"] >= member["applied"] >= 1
            assert node.node._view.metadata.version == version

    asyncio.run(main())


def test_without_the_controller_nothing_can_be_decided_and_what_is_left_can_be_read(
    tmp_path: Path,
) -> None:
    """Two of three nodes are lost: they were most of the controller's members too."""
    with (
        testing.cluster(tmp_path, 3) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("orders")
        testing.wait_healthy(cluster)
        ack = log.append(b"key", b"value")
        assert log.count(b"key", node=1, through=ack.seq) == 1
        number = str(next(r["id"] for r in client.status()["ranges"] if r["log"] == "orders"))
        for node in cluster.nodes[1:]:
            node.kill()

        def told() -> str:
            return cli(cluster, number).stderr

        testing.eventually(
            lambda: "controller, range 0, has no leader" in told(), what="it says so"
        )
        words = (number, "--from", "1", "--accept-loss", "--timeout", "3")
        wrong = cli(cluster, *words)
        assert wrong.returncode == 1, wrong
        assert len(wrong.stderr.splitlines()) == 1
        assert "reaches no leader of the controller; nothing was changed" in wrong.stderr
        left = log.scan(b"key", node=1, consistency="prefix")
        assert [entry.value for entry in left] == [b"value"]
