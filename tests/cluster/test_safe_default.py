"""The safe default on real nodes: who may listen on all interfaces, and what `--insecure` tells."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.ports import free_ports
from lognode.node.local.dev import LocalNode

pytestmark = pytest.mark.cluster


def open_up(node: LocalNode, *flags: str) -> None:
    """Have the node serve clients on every interface; others find it on loopback."""
    port = node.address.rpartition(":")[2]
    node.address = f"0.0.0.0:{port}"
    node.add_flags("--advertise", f"127.0.0.1:{port}", *flags)


def refusal(node: LocalNode) -> str:
    """The error with which the node does not start."""
    node.start()
    assert node.wait_end() == 1
    line = node.log_tail(1)
    assert line.startswith("lognode: listen is 0.0.0.0:"), line
    return line


def table(servers: str, *verb: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "lognode.node.main", *verb, "--server", servers],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [line.split("\t") for line in done.stdout.splitlines()]


def insecure(status: dict[str, Any]) -> tuple[Any, list[Any]]:
    return status["cluster"]["insecure"], [node["insecure"] for node in status["nodes"]]


def test_a_node_on_every_interface_needs_insecure_and_tells_that_it_has_it(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 2, start=False) as cluster:
        first, second = cluster.nodes
        servers = cluster.servers
        open_up(first)
        first.http = f"0.0.0.0:{free_ports(1)[0]}"
        assert "and the node has no TLS" in refusal(first)
        assert f"http is {first.http} (flag --http)" in first.log_tail(1)
        assert not first.data.exists(), "nothing was founded"

        first._flags = (*first._flags, "--insecure")
        first.start()
        first.wait_ready()
        second.start()
        second.wait_ready()
        for node in cluster.nodes:
            testing.eventually(
                lambda node=node: insecure(node.status()) == (True, [True, False]),
                what=f"node {node.number} knows which node is insecure",
            )
        with second.fetch("/metrics", 5) as page:
            assert b"\nlognode_insecure 0.0\n" in page.read()
        with first.fetch("/metrics", 5) as page:
            assert b"\nlognode_insecure 1.0\n" in page.read()
        testing.wait_healthy(cluster)  # it is not a failure
        assert [row[-1] for row in table(servers, "node", "list")] == ["yes", "no"]
        rows = table(servers, "status")
        assert rows[0][-3] == "yes"
        assert [row[-3] for row in rows[1:3]] == ["yes", "no"]
        lines = [json.loads(line) for line in first.log_path.read_text().splitlines()[1:]]
        (told,) = [line for line in lines if "--insecure" in line["message"]]
        assert told["level"] == "warning"
        assert [text.partition(" ")[0] for text in told["open"]] == ["listen", "http"]
        assert "--insecure" not in second.log_path.read_text()


def test_tls_and_certificates_of_clients_are_enough(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, tls=True, start=False) as cluster:
        (node,) = cluster.nodes
        servers = cluster.servers
        open_up(node, "--tls-client-auth", "optional")
        assert "--tls-client-auth is optional, and authorisation is off" in refusal(node)
        assert not node.data.exists(), "nothing was founded"
        node._flags = node._flags[:-2]
        node.start()
        node.wait_ready()
        assert insecure(node.status()) == (False, [False])
        with lognode.Client(servers) as client:
            client.create_log("orders").append(b"k", b"v")


@pytest.mark.parametrize("auth", [False, True])
def test_a_node_that_joins_learns_from_the_cluster_whether_clients_are_known(
    auth: bool, tmp_path: Path
) -> None:
    with testing.cluster(tmp_path, 2, tls=True, auth=auth, start=False) as cluster:
        first, second = cluster.nodes
        first.start()
        first.wait_ready()
        second._flags = tuple(flag for flag in second._flags if flag != "--auth")
        open_up(second, "--tls-client-auth", "none")
        if not auth:
            assert "--tls-client-auth is none, and authorisation is off" in refusal(second)
            second._flags = second._flags[:-2]  # certificates are required, by default
        second.start()
        second.wait_ready()
        testing.wait_healthy(cluster)
        testing.eventually(
            lambda: insecure(first.status()) == (False, [False, False]),
            what="the reports of both nodes",
        )
        if auth:
            assert second.stop() == 0
            second.start()  # the data directory says that there are tokens
            second.wait_ready()
            port = second.address.rpartition(":")[2]
            files = cluster.tls
            assert files is not None
            with (
                lognode.Client(
                    f"lognodes://127.0.0.1:{port}", tls=lognode.Tls(ca=files.client.ca), timeout=10
                ) as client,
                pytest.raises(lognode.Unauthorized, match="give a token"),
            ):
                client.status()
