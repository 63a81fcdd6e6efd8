"""The last administrator's token is lost: a real cluster gets another one, by a data directory."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.private_files import write_private
from lognode.client.tokens import id_of
from lognode.node.directory.data_directory import RECOVERY
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def three(module_path: Path) -> Iterator[testing.LocalCluster]:
    with testing.cluster(module_path, 3, auth=True) as cluster:
        testing.wait_healthy(cluster)
        yield cluster


def nodes(cluster: testing.LocalCluster) -> str:
    return cluster.servers.partition("?")[0]


def recover(node: LocalNode, out: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lognode.node.main", "token", "recover", "--data", str(node.data),
         "--principal", "ops", "--out", str(out)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def is_good(cluster: testing.LocalCluster, token: str) -> bool:
    with lognode.Client(nodes(cluster), token=token, timeout=5) as client:
        try:
            client.admin.tokens()
        except LognodeError:
            return False
    return True


def lines(node: LocalNode, message: str) -> list[dict[str, Any]]:
    told = map(json.loads, node.log_path.read_text("utf-8").splitlines())
    return [line for line in told if line["message"] == message]


@pytest.mark.by_hand
def test_a_node_alone_creates_nothing_and_goes_on_when_the_others_are_back(
    three: testing.LocalCluster, tmp_path: Path
) -> None:
    """It is a command of the controller, not a change of one member."""
    out = tmp_path / "token"
    for node in three.nodes:
        node.stop()
    assert recover(three.nodes[2], out).returncode == 0
    token = out.read_text().strip()
    three.nodes[2].start()
    testing.eventually(lambda: not (three.nodes[2].data / RECOVERY).exists(), what="the request")
    time.sleep(2)  # it has tried by then
    assert not is_good(three, token)
    three.nodes[0].start()
    three.nodes[1].start()
    for node in three.nodes:
        node.wait_ready()
    testing.eventually(lambda: is_good(three, token), timeout_s=30, what="the token")


def test_a_request_that_is_used_up_does_not_bring_its_token_back(
    three: testing.LocalCluster, tmp_path: Path
) -> None:
    """Not even when a crash comes right after: the request is gone before anything is proposed."""
    out, node = tmp_path / "token", three.nodes[0]
    assert three.token is not None
    node.stop()
    assert recover(node, out).returncode == 0
    token = out.read_text().strip()
    node.start()
    testing.eventually(lambda: is_good(three, token), what="the token")
    node.kill()
    with lognode.Client(nodes(three), token=three.token, timeout=20) as client:
        client.admin.revoke_token(id_of(token))
    node.start()
    node.wait_ready()
    testing.wait_healthy(three, timeout_s=30)
    assert not is_good(three, token)


def test_a_bad_request_costs_a_line_and_no_node(three: testing.LocalCluster) -> None:
    node = three.nodes[2]
    node.stop()
    write_private(node.data / RECOVERY, os.urandom(100))
    node.start()
    node.wait_ready()
    assert not (node.data / RECOVERY).exists()
    (line,) = lines(node, "the node recovered no token")
    assert "the node dropped the request for a token" in line["error"]


def test_a_cluster_without_tokens_gets_none(tmp_path: Path) -> None:
    """The first token locks everybody out who has none: only an administrator does that."""
    with testing.cluster(tmp_path / "c", 1) as cluster:
        (node,) = cluster.nodes
        node.stop()
        assert recover(node, tmp_path / "token").returncode == 0
        node.start()
        node.wait_ready()
        testing.eventually(lambda: lines(node, "the node recovered no token"), what="the line")
        with lognode.Client(cluster.servers, timeout=10) as client:
            assert client.admin.tokens() == []


def test_a_lost_token_is_replaced_and_taken_away(
    three: testing.LocalCluster, tmp_path: Path
) -> None:
    """The last test: the token with which the cluster was founded is gone then."""
    out, node = tmp_path / "token", three.nodes[1]
    done = recover(node, out)
    assert (done.returncode, "uses data directory" in done.stderr) == (1, True), done.stderr
    assert not out.exists()
    node.stop()
    done = recover(node, out)
    assert done.returncode == 0, done.stderr
    token = out.read_text().strip()
    assert done.stdout.strip() == id_of(token)
    assert token.partition(".")[2] not in done.stdout + done.stderr
    assert not is_good(three, token), "before the node starts nothing has happened"
    node.start()
    node.wait_ready()
    testing.eventually(lambda: is_good(three, token), what="the token")
    assert not (node.data / RECOVERY).exists()
    assert three.token is not None
    with lognode.Client(nodes(three), token=token, timeout=20) as client:
        client.admin.revoke_token(id_of(three.token))
        rows = {row["id"]: row for row in client.admin.tokens()}
        row = rows[id_of(token)]
        assert (row["principal"], row["expires_ms"]) == ("ops", None)
        assert id_of(three.token) not in rows
        by = f"recovery at {node.address}"

        def audited() -> bool:
            log = client.log("_audit")
            found = [json.loads(e.value or b"") for k in list(log.keys()) for e in log.scan(k)]
            return any(
                record["operation"] == "create_token" and record["about"].get("by") == by
                and record["about"]["id"] == id_of(token) for record in found
            )  # fmt: skip

        testing.eventually(audited, what="the audit record")
    assert not is_good(three, three.token)
    (line,) = lines(node, "the data directory of this node created a token that allows everything")
    assert line["token"] == id_of(token)
