"""Without a majority of a range's members, errors say which nodes must come back."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster


@pytest.mark.by_hand
def test_errors_without_a_quorum_name_the_silent_nodes(tmp_path: Path) -> None:
    """They said `GroupId(range_id=1, generation=1)`, or that a connection was refused."""
    with testing.cluster(tmp_path, 3) as three:
        with lognode.Client(three.servers, timeout=20) as client:
            log = client.create_log("l", ranges=1)
            log.append("k", b"v")
            for node in three.nodes:
                with lognode.Client(node.address, timeout=20) as other:  # the node knows the log
                    assert other.log("l").latest("k") is not None
        for node in three.nodes[:2]:
            node.kill()
        with lognode.Client(three.servers, timeout=8) as client:
            said = ""
            deadline = time.monotonic() + 60
            while "must be up" not in said:  # the third node has to miss the others first
                assert time.monotonic() < deadline, said
                with pytest.raises(lognode.LognodeError) as caught:
                    client.log("l").latest("k")
                said = caught.value.message
                assert caught.value.outcome == "not_applied"
        assert "lead range 1 in generation 1 and knows no live leader: the node hears" in said
        assert "nothing from nodes 1, 2, and 2 of nodes 1, 2, 3 must be up" in said
        done = subprocess.run(
            [sys.executable, "-m", "lognode.node.main", "append", "l", "k", "v", "--timeout", "5s",
             "--server", three.servers],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 1
        assert "`lognode health` says which nodes are down" in done.stderr


def test_S11_a_node_that_may_not_know_a_new_log_does_not_say_that_the_log_is_missing(
    tmp_path: Path,
) -> None:
    """A node that had not heard of the log yet said `log 'l' does not exist`."""
    with testing.cluster(tmp_path, 3) as three:
        for node in three.nodes[:2]:
            node.kill()
        with (
            lognode.Client(three.servers, timeout=4) as client,
            pytest.raises(lognode.Unavailable, match="does not know log 'other'"),
        ):
            client.log("other").latest("k")


def test_S11_changes_without_a_quorum_end_with_a_definite_error(tmp_path: Path) -> None:
    """`log create` ended with unknown outcome: the node held the request for 10 s, and the client's
    attempt ended after 2 s."""
    with testing.cluster(tmp_path, 3) as three:
        with lognode.Client(three.servers, timeout=20) as client:
            client.create_log("l")
        for node in three.nodes[:2]:
            node.kill()

        def run(*words: str) -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, "-m", "lognode.node.main", *words, "--server", three.servers],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            return done.returncode, done.stderr

        deadline = time.monotonic() + 90
        for words, says in (
            (["create", "m"], "no leader of the controller; nothing was changed"),
            (
                ["alter", "l", "--retention", "1h"],
                "no leader of the controller; nothing was changed",
            ),
            (["delete", "l", "--yes"], "no leader of the controller"),
        ):
            code, told = run("log", *words)
            # The third node led the controller, and has to miss the others first. On a busy machine
            # an answer may come later than the client waits for an attempt.
            while code == 6:
                assert time.monotonic() < deadline, told
                code, told = run("log", *words)
            assert code == 1, told
            assert says in told


def shown_alive(node: testing.LocalNode) -> dict[int, bool | None]:
    """What this node says of all nodes."""
    with lognode.Client(node.address, timeout=10) as client:
        status = client.status()
    assert status["cluster"]["answered_by"] == node.number
    return {row["id"]: row["alive"] for row in status["nodes"]}


def test_every_node_shows_which_nodes_are_alive_until_no_leader_knows(
    three: testing.LocalCluster,
) -> None:
    def all_show(nodes: list[testing.LocalNode], wanted: dict[int, bool | None]) -> bool:
        return [shown_alive(node) for node in nodes] == [wanted] * len(nodes)

    testing.eventually(lambda: all_show(three.nodes, {1: True, 2: True, 3: True}))
    with lognode.Client(three.servers) as client:
        leader = client.status()["cluster"]["controller_leader"]
    dead, left = (node for node in three.nodes if node.number != leader)
    dead.kill()
    running = [node for node in three.nodes if node is not dead]
    wanted = {node.number: node is not dead for node in three.nodes}
    testing.eventually(lambda: all_show(running, wanted))
    three.nodes[leader - 1].kill()
    testing.eventually(lambda: all_show([left], dict.fromkeys(wanted)))


def test_a_follow_of_the_command_line_says_when_entries_may_be_missing(tmp_path: Path) -> None:
    """The verb was silent, as if nobody appended."""
    with testing.cluster(tmp_path, 3) as three:
        with lognode.Client(three.servers, timeout=20) as client:
            client.create_log("l").append("k", b"v")
        with subprocess.Popen(
            [sys.executable, "-m", "lognode.node.main", "follow", "l", "--from", "earliest",
             "-n", "2", "--server", three.servers],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as following:  # fmt: skip
            assert following.stdout is not None
            assert following.stderr is not None
            assert following.stdout.readline().startswith("k\t1\t")
            for node in three.nodes[:2]:
                node.kill()
            said = following.stderr.readline()
            assert "new entries may be missing, because nodes are down" in said
            for node in three.nodes[:2]:
                node.start()
            assert following.stderr.readline() == "note: the follow has all entries again\n"
            with lognode.Client(three.servers, timeout=30) as client:
                client.log("l").append("k", b"w")
            assert following.stdout.readline().endswith("\tw\n")
            assert following.wait(30) == 0
