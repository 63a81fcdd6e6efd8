"""A consumer group over HTTP: pull at any node, settle at any node."""

import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feature_level import raised
from http_asking import Answer, asked

import lognode
from lognode import testing
from lognode.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster


@pytest.fixture
def client(three: LocalCluster) -> Iterator[lognode.Client]:
    with raised(three) as found:
        yield found


class Queue:
    """A group of a log, as a program without an SDK uses it."""

    def __init__(self, log: str, group: str = "work") -> None:
        self.path = f"/v1/logs/{log}/groups/{group}"

    def create(self, node: LocalNode, **options: Any) -> Any:
        answer = asked(node.http, "PUT", self.path, options)
        assert answer.status == 200, answer
        return answer.json

    def ask(self, node: LocalNode, what: str, body: Any = None) -> Answer:
        method = "GET" if body is None else "POST"
        return asked(node.http, method, f"{self.path}/{what}", body)

    def pull(self, node: LocalNode, most: int = 1, wait_ms: int = 10_000) -> list[Any]:
        answer = self.ask(node, "pull", {"max": most, "wait_ms": wait_ms})
        assert answer.status == 200, answer
        found: list[Any] = answer.json["batches"]
        assert len(found) <= most
        return found

    def lag(self, node: LocalNode) -> Any:
        return self.ask(node, "lag").json


def refused(answer: Answer, status: int, code: str) -> str:
    assert (answer.status, answer.json["code"]) == (status, code), answer
    return str(answer.json["detail"])


@pytest.mark.parametrize("ordering", ["key", "none"])
def test_G3_each_entry_is_done_once_by_pulls_and_acks_at_any_node(
    three: LocalCluster, client: lognode.Client, ordering: str
) -> None:
    log = client.create_log(f"queue-{ordering}", split_at=[b"k3", b"k6"])
    log.append_many([(f"k{n % 10}", b"%d" % n) for n in range(60)])
    queue = Queue(log.name)
    made = queue.create(three.nodes[0], ordering=ordering)
    assert (made["name"], made["ordering"]) == ("work", ordering)
    assert queue.create(three.nodes[1], ordering=ordering) == made
    seen: Counter[str] = Counter()
    turn = 0
    while sum(seen.values()) < 60:
        batches = queue.pull(three.nodes[turn % 3], 7)
        for batch in batches:
            assert batch["deliveries"] == 1
            assert {entry["key"] for entry in batch["entries"]} == {batch["key"]}
            if ordering == "none":
                assert len(batch["entries"]) == 1
            seen.update(entry["value"] for entry in batch["entries"])
        tokens = [{"token": batch["token"]} for batch in batches]
        done = queue.ask(three.nodes[(turn + 1) % 3], "ack", tokens)
        assert (done.status, done.json) == (200, {"settled": len(tokens)}), done
        # The same request again: an answer may be lost.
        assert queue.ask(three.nodes[turn % 3], "ack", tokens).status == 200
        turn += 1
    assert seen == {str(n): 1 for n in range(60)}
    assert queue.pull(three.nodes[0], wait_ms=300) == []
    lag = queue.lag(three.nodes[2])
    assert (lag["entries"], lag["in_flight"], lag["begun"]) == (0, 0, True)


def test_an_entry_that_fails_comes_again_and_is_parked(
    three: LocalCluster, client: lognode.Client
) -> None:
    node = three.nodes[0]
    log = client.create_log("failing")
    log.append_many([("k", b"%d" % n) for n in range(3)])
    queue = Queue("failing")
    queue.create(node, max_deliveries=3, prefix="k")
    (batch,) = queue.pull(node)
    seqs = [entry["seq"] for entry in batch["entries"]]
    assert len(seqs) == 3
    token = batch["token"]
    text = refused(queue.ask(node, "ack", {"token": token, "through": 99}), 400, "INVALID_ARGUMENT")
    assert "entries with seqs" in text
    assert queue.ask(node, "ack", {"token": token, "through": seqs[0]}).status == 200
    assert queue.ask(node, "extend", {"token": token}).json == {"settled": 1}
    assert queue.ask(node, "release", {"token": token}).status == 200
    (batch,) = queue.pull(node)
    assert [entry["seq"] for entry in batch["entries"]] == seqs[1:]
    assert batch["deliveries"] == 1, "a release without an error does not count as failed"
    assert "no longer has" in refused(queue.ask(node, "ack", {"token": token}), 409, "FENCED")
    token = batch["token"]
    assert queue.ask(node, "release", {"token": token, "error": "no room"}).status == 200
    (batch,) = queue.pull(node)
    assert (batch["deliveries"], len(batch["entries"])) == (2, 1)
    assert queue.ask(node, "reject", {"token": batch["token"], "error": "bad\n<b>"}).status == 200
    parked = queue.ask(node, "parked").json
    assert parked["count"] == 1
    assert parked["parked"] == [
        {"key": "k", "position": seqs[1], "deliveries": 2, "error": "bad <b>"}
    ]
    assert queue.lag(node)["parked"] == 1
    assert queue.ask(node, "retry", {"key": "k"}).status == 204
    refused(queue.ask(node, "retry", {"key": "k"}), 409, "CONFLICT")
    assert queue.ask(node, "skip", {"key": "k", "why": "known"}).json == {"through": seqs[1]}
    (batch,) = queue.pull(node)
    assert [entry["seq"] for entry in batch["entries"]] == seqs[2:]
    assert queue.ask(node, "ack", {"token": batch["token"]}).status == 200
    assert queue.lag(node)["entries"] == 0
    assert asked(node.http, "GET", "/v1/logs/failing/groups").json["groups"][0]["name"] == "work"
    assert asked(node.http, "DELETE", queue.path).status == 204
    refused(queue.ask(node, "pull", {}), 404, "NOT_FOUND")


def test_G4_a_lease_ends_unless_its_holder_extends_it(
    three: LocalCluster, client: lognode.Client
) -> None:
    node = three.nodes[0]
    client.create_log("leases").append_many([("a", b"1"), ("b", b"2")])
    queue = Queue("leases")
    queue.create(node, lease_ms=1_000)
    held, left = queue.pull(node, 2)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        assert queue.ask(node, "extend", {"token": held["token"]}).status == 200
        time.sleep(0.1)
    (again,) = queue.pull(node, 2)
    assert (again["key"], again["deliveries"]) == (left["key"], 2)
    assert queue.ask(node, "ack", {"token": held["token"]}).status == 200
    many = [{"token": each["token"]} for each in (again, left)]
    told = queue.ask(node, "ack", many)
    refused(told, 409, "PARTIAL_FAILURE")
    errors = told.json["fields"]["errors"]
    assert (errors[0], errors[1]["code"]) == (None, "FENCED")


def test_an_asker_that_leaves_while_it_waits_gets_nothing(
    three: LocalCluster, client: lognode.Client
) -> None:
    node = three.nodes[0]
    log = client.create_log("left")
    queue = Queue("left")
    queue.create(node)
    host, port = node.http.split(":")
    body = b'{"wait_ms": 30000}'
    for _ in range(4):
        with socket.create_connection((host, int(port))) as sock:
            head = f"POST {queue.path}/pull HTTP/1.1\r\nHost: {host}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode() + body)
            testing.eventually(lambda: queue.lag(node)["consumers"], what="a pull waits")
    log.append("k", b"v")
    (batch,) = queue.pull(node)
    assert batch["deliveries"] == 1
    assert queue.ask(node, "ack", {"token": batch["token"]}).status == 200


def test_a_made_up_token_is_refused(three: LocalCluster, client: lognode.Client) -> None:
    node = three.nodes[0]
    client.create_log("tokens").append("k", b"v")
    queue, other = Queue("tokens"), Queue("tokens", "other")
    queue.create(node)
    other.create(node)
    (batch,) = queue.pull(node)
    good = batch["token"]
    bad = ["", "x", "!", "é", "\ud800", "A" * 40, "A" * 100, "A" * 5_000, good[:-20],
           good + "=" * 3, "_" * len(good)]  # fmt: skip
    for token in (*bad, 7, None, [good], {"token": good}):
        for what in ("ack", "release", "reject", "extend"):
            refused(queue.ask(node, what, {"token": token}), 400, "INVALID_ARGUMENT")
    refused(queue.ask(node, "ack", {"token": good, "more": 1}), 400, "INVALID_ARGUMENT")
    refused(queue.ask(node, "release", {"token": good, "delay_ms": -1}), 400, "INVALID_ARGUMENT")
    text = refused(other.ask(node, "ack", {"token": good}), 400, "INVALID_ARGUMENT")
    assert "another group" in text
    refused(asked(node.http, "PUT", f"{queue.path}2", {"start": "tail:3"}), 400, "INVALID_ARGUMENT")
    refused(asked(node.http, "PUT", queue.path, {"lease_ms": 5_000}), 409, "CONFLICT")
    refused(Queue("none").ask(node, "pull", {}), 404, "LOG_NOT_FOUND")
    assert queue.ask(node, "ack", [{"token": good}]).json == {"settled": 1}


def test_G4_after_the_loss_of_a_leader_its_batches_come_again(
    three: LocalCluster, client: lognode.Client
) -> None:
    client.create_log("lost").append_many([(f"k{n}", b"v") for n in range(5)])
    queue = Queue("lost")
    queue.create(three.nodes[0])
    dead = three.nodes[testing.leader_of(client, "lost") - 1]
    asks = [node for node in three.nodes if node is not dead]
    held = queue.pull(asks[0], 5)
    assert queue.ask(asks[1], "ack", {"token": held[0]["token"]}).status == 200
    dead.kill()
    done = {held[0]["key"]}

    def all_done() -> bool:
        answer = queue.ask(asks[0], "pull", {"max": 5, "wait_ms": 2_000})
        if answer.status != 200:
            assert answer.json["retryable"], answer
            return False
        for batch in answer.json["batches"]:
            assert batch["key"] not in done
            if queue.ask(asks[1], "ack", {"token": batch["token"]}).status == 200:
                done.add(batch["key"])
        return len(done) == 5

    testing.eventually(all_done, what="all keys are done")
    refused(queue.ask(asks[0], "ack", {"token": held[1]["token"]}), 409, "FENCED")


def test_rights_are_those_of_the_token(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, auth=True) as cluster:
        (node,) = cluster.nodes
        queue = Queue("orders")

        def ask(token: str, method: str, path: str, body: Any = None) -> Answer:
            headers = {"Authorization": f"Bearer {token}"}
            return asked(node.http, method, path, body, headers=headers)

        with lognode.Client(cluster.servers) as client:
            client.create_log("orders").append_many([("a/1", b"v"), ("b/1", b"v")])
            reader = client.admin.create_token("reader", ["read orders a/*"])["token"]
            root = client.admin.create_token("root", ["all"])["token"]
        assert ask(root, "PUT", queue.path, {}).status == 200
        assert ask(root, "PUT", f"{queue.path}-a", {"prefix": "a/"}).status == 200
        assert ask(reader, "PUT", f"{queue.path}-b", {"prefix": "a/"}).status == 403
        assert ask(reader, "POST", f"{queue.path}/pull", {"wait_ms": 0}).status in (403, 404)
        found = ask(reader, "POST", f"{queue.path}-a/pull", {})
        (batch,) = found.json["batches"]
        assert batch["key"] == "a/1"
        assert ask(reader, "POST", f"{queue.path}-a/skip", {"key": "a/1"}).status == 403
        done = ask(reader, "POST", f"{queue.path}-a/ack", {"token": batch["token"]})
        assert done.status == 200
        assert asked(node.http, "POST", f"{queue.path}/pull", {}).status == 401
