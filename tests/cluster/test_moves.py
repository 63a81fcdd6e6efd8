"""`lognode range move`: replicas go to other nodes under load, and back, and nothing is lost."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cluster_history import check, read_all, same_on
from cluster_load import Load, Size

import lognode
from lognode import testing
from lognode.client.cli.printer import FORMATS

pytestmark = pytest.mark.cluster

NODES = {1, 2, 3, 4}
PAUSE_S = 3.0
"""Promise L1 for a leader that is lost; a move takes a tenth of it on a machine with nothing else
to do."""


@pytest.fixture(scope="module")
def shared_four(module_path: Path) -> Iterator[testing.LocalCluster]:
    flags = ("--balance", "off")  # here only operators move replicas
    with testing.cluster(module_path, 4, flags=flags) as cluster:
        yield cluster


@pytest.fixture
def four(shared_four: testing.LocalCluster) -> testing.LocalCluster:
    """Four nodes that all run; each test takes a log of its own."""
    for node in shared_four.nodes:
        node.start()
    for node in shared_four.nodes:
        node.wait_ready()
    testing.wait_healthy(shared_four)
    return shared_four


@pytest.fixture
def client(four: testing.LocalCluster) -> Iterator[lognode.Client]:
    with lognode.Client(four.servers, timeout=30) as found:
        yield found


def cli(cluster: testing.LocalCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "range", "move", *words,
         "--server", cluster.servers],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip


def range_of(client: lognode.Client, log: str) -> dict[str, Any]:
    return next(range_ for range_ in client.status()["ranges"] if range_["log"] == log)


def spare_of(range_: dict[str, Any]) -> int:
    (spare,) = NODES - set(range_["members"])
    return spare


def replicas_on(node: testing.LocalNode) -> set[int]:
    """The ranges of which the node has a replica, of whatever generation."""
    with lognode.Client(node.address) as client:
        return {replica["range"] for replica in client.status()["replicas"]}


def test_S2_S4_S8_L1_members_and_the_leader_move_under_load(
    four: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("load")
    testing.wait_healthy(four)
    first = range_of(client, "load")
    seed = random.SystemRandom().randrange(1 << 32)
    with Load(four.servers, "load", seed, Size(value_bytes=200)) as load:
        load.go_on(200)
        for who in ("follower", "leader", "follower", "leader"):
            range_ = range_of(client, "load")
            leader = testing.leader_of(client, "load")
            others = [member for member in range_["members"] if member != leader]
            leaves, comes = leader if who == "leader" else others[0], spare_of(range_)
            answer = client.admin.move(range_["id"], from_node=leaves, to_node=comes)
            members = sorted({*range_["members"], comes} - {leaves})
            assert answer["members"] == members
            now = range_of(client, "load")
            assert (now["members"], now["generation"]) == (members, range_["generation"] + 1)
            if who == "follower":
                assert testing.leader_of(client, "load") == leader, "it leads on"
            load.go_on(100)
            # Who left has let go of all of it (x2.17), once all that come after have begun.
            gone = four.nodes[leaves - 1]
            testing.eventually(lambda: first["id"] not in replicas_on(gone), what="retired")  # noqa: B023
            with pytest.raises(lognode.NodeNotFound):
                client.log("load").count(b"shared-0-0", node=leaves)
    assert load.slowest_s() < PAUSE_S
    range_ = range_of(client, "load")
    assert (range_["id"], range_["generation"]) == (first["id"], first["generation"] + 4)
    check(same_on(four.servers, "load", range_["members"]), load.told)


@pytest.mark.by_hand
def test_x25_the_target_is_killed_while_it_copies_and_the_move_is_given_up(
    tmp_path: Path,
) -> None:
    """The range is not sealed for it; when the node is back the copy goes on where it was."""
    rate = 1 << 20
    flags = ("--wal-file-bytes", str(1 << 20), "--transfer-bytes-per-s", str(rate))
    with (
        testing.cluster(tmp_path, 4, flags=flags) as cluster,
        lognode.Client(cluster.servers, timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        testing.wait_healthy(cluster)
        log = client.create_log("large")
        before = range_of(client, "large")
        values: list[bytes] = []
        while min(file_bytes(cluster.nodes[member - 1]) for member in before["members"]) < 4 * rate:
            values.append(random.Random(len(values)).randbytes(100_000))
            log.append(b"large", values[-1])
        comes, leaves = spare_of(before), before["members"][0]
        target = cluster.nodes[comes - 1]
        with Load(cluster.servers, "large", 1) as load:
            load.go_on(20)
            move = pool.submit(client.admin.move, before["id"], from_node=leaves, to_node=comes)
            parts = target.data / "tmp"
            testing.eventually(lambda: list(parts.glob("fetch-*")), what="a file is on its way")
            target.kill()
            with pytest.raises(
                lognode.Conflict, match=f"the cluster gave up .*: node {comes} was gone"
            ):
                move.result()
            assert range_of(client, "large")["generation"] == before["generation"]
            load.go_on(20)
            target.start()
            target.wait_ready()
            testing.eventually(lambda: "DEAD" not in states(client), what="it is back")
            client.admin.move(before["id"], from_node=leaves, to_node=comes)
            load.go_on(20)
        assert load.slowest_s() < PAUSE_S
        members = range_of(client, "large")["members"]
        assert members == sorted({*before["members"], comes} - {leaves})
        entries = same_on(cluster.servers, "large", members)
        assert [entry.value for entry in entries.pop(b"large")] == values
        check(entries, load.told)


@pytest.mark.by_hand
@pytest.mark.parametrize("victim", ["target", "leaver"])
def test_x7_S2_a_node_is_killed_at_some_moment_of_a_move_and_it_ends(
    four: testing.LocalCluster, client: lognode.Client, victim: str
) -> None:
    """Given up or done, all that was acknowledged is with every member."""
    name = f"killed-{victim}"
    client.create_log(name)
    testing.wait_healthy(four)
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    ends: list[str] = []
    with (
        Load(four.servers, name, seed, Size(value_bytes=200), timeout_s=60) as load,
        ThreadPoolExecutor() as pool,
    ):
        for _ in range(4):
            load.go_on(100)
            range_ = range_of(client, name)
            leaves, comes = testing.leader_of(client, name), spare_of(range_)
            killed = four.nodes[(comes if victim == "target" else leaves) - 1]
            move = pool.submit(
                client.admin.move, range_["id"], from_node=leaves, to_node=comes, timeout=60
            )
            time.sleep(rng.uniform(0.0, 0.3))  # the moment is what is drawn
            killed.kill()
            error = move.exception()
            moved = comes in range_of(client, name)["members"]
            assert isinstance(error, lognode.Conflict | None), error
            assert moved == (error is None)
            ends.append("moved" if moved else "given up")
            load.go_on(50)
            killed.start()
            killed.wait_ready()
            testing.wait_healthy(four)
    print(f"seed {seed}: {ends}")
    assert load.slowest_s() < 2 * PAUSE_S, (
        "the seal waits 2 s for the target, an election is on top"
    )
    check(same_on(four.servers, name, range_of(client, name)["members"]), load.told)


def test_S2_the_only_member_moves(four: testing.LocalCluster, client: lognode.Client) -> None:
    log = client.create_log("alone", replicas=1)
    acks = log.append_many([(b"k%d" % (n % 7), b"%d" % n) for n in range(500)])
    before = read_all(four.servers, "alone")
    for _ in range(2):
        range_ = range_of(client, "alone")
        (member,) = range_["members"]
        client.admin.move(range_["id"], from_node=member, to_node=member % 4 + 1)
        assert range_of(client, "alone")["members"] == [member % 4 + 1]
        assert same_on(four.servers, "alone", [member % 4 + 1]) == before
    assert sum(map(len, before.values())) == len(acks)
    assert log.append(b"k", b"more").seq == len(acks) + 1, "S6: seqs go on"


def test_every_format_and_no_wait(four: testing.LocalCluster, client: lognode.Client) -> None:
    client.create_log("formats")
    testing.wait_healthy(four)
    for format_ in FORMATS:
        range_ = range_of(client, "formats")
        leaves, comes = range_["members"][0], spare_of(range_)
        words = (str(range_["id"]), "--from", str(leaves), "--to", str(comes))
        answer = cli(four, *words, "--format", format_)
        assert (answer.returncode, answer.stderr) == (0, "")
        now = range_of(client, "formats")
        if format_ != "table":
            row = json.loads(answer.stdout)
            assert row.pop("operation") > 0
            assert row == {"range": range_["id"], "generation": now["generation"],
                           "members": now["members"]}  # fmt: skip
        else:
            assert str(range_["id"]) in answer.stdout
    range_ = range_of(client, "formats")
    leaves, comes = range_["members"][0], spare_of(range_)
    words = (str(range_["id"]), "--from", str(leaves), "--to", str(comes))
    answer = cli(four, *words, "--no-wait", "--format", "json")
    number = json.loads(answer.stdout)["operation"]
    assert (
        answer.stderr == f"note: operation {number} goes on; `lognode status` shows the operation\n"
    )
    testing.eventually(lambda: comes in range_of(client, "formats")["members"], what="it is moved")


@pytest.mark.by_hand
def test_an_impossible_move_is_one_line_and_changes_nothing(
    four: testing.LocalCluster, client: lognode.Client
) -> None:
    client.create_log("refused")
    testing.wait_healthy(four)
    range_ = range_of(client, "refused")
    number, spare = str(range_["id"]), str(spare_of(range_))
    one, two = map(str, range_["members"][:2])
    for words, code, said in (
        (("999", "--from", one, "--to", spare), 4, "range 999 does not exist"),
        (
            (number, "--from", spare, "--to", spare),
            1,
            f"node {spare} is given as source and target",
        ),
        ((number, "--from", spare, "--to", "9"), 4, f"node {spare} has no replica of range"),
        ((number, "--from", one, "--to", two), 5, f"already; choose node {spare}"),
        ((number, "--from", one, "--to", "9"), 4, f"node 9 does not exist; choose node {spare}"),
        (("0", "--from", one, "--to", spare), 1, "range 0 is the controller"),
        ((number, "--from", one), 2, "--to"),
        ((number, "--from", "-1", "--to", spare), 2, "not a whole number"),
    ):
        wrong = cli(four, *words)
        assert (wrong.returncode, said in wrong.stderr) == (code, True), wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1
    four.nodes[int(spare) - 1].kill()
    testing.eventually(lambda: "DEAD" in states(client), what="it is DEAD", timeout_s=60)
    wrong = cli(four, number, "--from", one, "--to", spare)
    assert (wrong.returncode, f"node {spare} is DEAD" in wrong.stderr) == (5, True), wrong.stderr
    after = range_of(client, "refused")
    for what in ("generation", "members", "operation", "last_operation"):
        assert after[what] == range_[what], what


def file_bytes(node: testing.LocalNode) -> int:
    return sum(file.stat().st_size for file in (node.data / "files").iterdir())


def states(client: lognode.Client) -> list[str]:
    return [node["state"] for node in client.status()["nodes"]]
