"""X7 on real nodes: who administered, who was refused, in the log and in lines of JSON."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import lognode
import lognode.testing
from lognode import testing

pytestmark = pytest.mark.cluster


def records(client: lognode.Client) -> list[dict[str, Any]]:
    """What the log `_audit` has, by node and number."""
    found = []
    log = client.log("_audit")
    for key in list(log.keys()):
        found += [json.loads(entry.value or b"") for entry in log.scan(key)]
    return sorted(found, key=lambda record: tuple(map(int, record["id"].split("."))))


def lines(node: testing.LocalNode) -> list[dict[str, Any]]:
    """The records among the lines of a node's own log."""
    told = map(json.loads, node.log_path.read_text("utf-8").splitlines())
    return [line["record"] for line in told if line["logger"] == "lognode.audit"]


def get(node: testing.LocalNode, page: str, token: str) -> int:
    """The status of an answer over HTTP."""
    request = urllib.request.Request(
        f"http://{node.http}{page}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_X7_administration_and_refusals_are_in_the_log_with_their_principals(
    tmp_path: Path,
) -> None:
    with (
        lognode.testing.cluster(tmp_path, 3, auth=True) as cluster,
        lognode.Client(cluster.servers, timeout=20) as admin,
    ):
        admin.create_log("orders").append("k", b"v")
        web = admin.admin.create_token("web", ["read orders"])
        where = cluster.nodes[0].address
        with lognode.Client(where, token=web["token"]) as client:
            assert client.log("orders").count("k") == 1
            with pytest.raises(lognode.Unauthorized):
                client.delete_log("orders")
            with pytest.raises(lognode.Unauthorized):
                client.log("orders").append("k", b"v")
        wrong = web["token"][:-1] + ("1" if web["token"].endswith("0") else "0")
        with (
            pytest.raises(lognode.Unauthorized),
            lognode.Client(where, token=wrong) as client,
        ):
            client.log("orders").count("k")

        other = admin.admin.create_token("other", ["read orders"])
        with (
            pytest.raises(lognode.Unauthorized),
            lognode.Client(where, token=other["token"]) as client,
        ):
            client.delete_log("orders")
        assert get(cluster.nodes[0], "/status.json", "no token") == 401
        assert get(cluster.nodes[0], "/metrics", web["token"]) == 403

        def told(**wanted: Any) -> bool:
            return any(wanted.items() <= record.items() for record in records(admin))

        testing.eventually(
            lambda: told(event="request", operation="create_log", outcome="OK"),
            what="who created the log is there",
        )
        for wanted in (
            {"event": "request", "operation": "token_create", "outcome": "OK"},
            {"event": "command", "operation": "create_log", "outcome": "OK"},
            {"event": "refusal", "operation": "delete_log", "principal": "web"},
            {"event": "refusal", "operation": "delete_log", "principal": "other"},
            {"event": "refusal", "operation": "producer_open", "principal": "web"},
            {"event": "refusal", "operation": "/status.json", "principal": "127.0.0.1"},
            {"event": "refusal", "operation": "/metrics", "principal": "web"},
            {"event": "refusal", "operation": "hello", "outcome": "UNAUTHORIZED"},
        ):
            testing.eventually(lambda wanted=wanted: told(**wanted), what=f"{wanted} is there")
        found = records(admin)
        assert len({record["id"] for record in found}) == len(found), "each once"
        text = json.dumps(found) + json.dumps([lines(node) for node in cluster.nodes])
        assert web["token"].partition(".")[2] not in text, "no secret"
        with pytest.raises(lognode.Unauthorized, match="only the cluster writes this log"):
            admin.log("_audit").append("web", b"forged")
        with pytest.raises(lognode.Unauthorized, match="only the cluster writes this log"):
            admin.log("_audit").trim("web", before=1 << 40)
        assert {record["id"] for record in found} <= {
            record["id"] for node in cluster.nodes for record in lines(node)
        }


def test_X7_without_known_clients_records_are_lines_alone(tmp_path: Path) -> None:
    with (
        lognode.testing.cluster(tmp_path, 1) as cluster,
        lognode.Client(cluster.servers) as client,
    ):
        client.create_log("orders")
        assert [log["name"] for log in client.logs()] == ["orders"]
        (line,) = [line for line in lines(cluster.nodes[0]) if line["event"] == "request"]
        assert (line["operation"], line["principal"]) == ("create_log", "127.0.0.1")
        assert line["about"]["name"] == "orders"
