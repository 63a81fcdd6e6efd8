"""The ids of requests over HTTP: in answers, in problems and in the log of a real node."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from http_asking import Events, asked
from live_nodes import live

import lognode
from lognode import testing
from lognode.node.door.door import Door
from lognode.testing import LocalNode

pytestmark = pytest.mark.cluster
MADE = re.compile(r"[0-9a-f]{16}")


def lines(node: LocalNode) -> list[dict[str, Any]]:
    found = []
    for line in node.log_path.read_text().splitlines():
        if line.startswith("{"):
            found.append(json.loads(line))
    return [line for line in found if line["logger"] == "lognode.http"]


def test_each_answer_has_the_id_of_its_request(tmp_path: Path) -> None:
    flags = ("--log-level", "DEBUG", "--log-format", "json")
    with testing.cluster(tmp_path, 1, flags=flags) as cluster:
        (node,) = cluster.nodes
        with lognode.Client(cluster.servers) as client:
            client.create_log("orders")
        given = {"X-Request-Id": "shop-7/a+b=c@d:1.2_3"}
        path = "/v1/logs/orders/keys/secret-key/count"
        answer = asked(node.http, "GET", path, headers=given)
        assert answer.headers["X-Request-Id"] == given["X-Request-Id"]
        missing = asked(node.http, "GET", "/v1/logs/none", headers={"X-Request-Id": "lost-1"})
        assert missing.json["request_id"] == missing.headers["X-Request-Id"] == "lost-1"
        unknown = asked(node.http, "GET", "/v1/nope")
        assert MADE.fullmatch(unknown.headers["X-Request-Id"])
        assert unknown.json["request_id"] == unknown.headers["X-Request-Id"]
        assert MADE.fullmatch(asked(node.http, "GET", "/healthz").headers["X-Request-Id"])
        for bad in ("", "a b", "x" * 129, "\xff", 'a"b', "a{b}"):
            head = asked(node.http, "GET", "/v1/logs", headers={"X-Request-Id": bad}).headers
            assert MADE.fullmatch(head["X-Request-Id"]), bad
        events = Events(node.http, "/v1/logs/orders/events", headers={"X-Request-Id": "stream-1"})
        assert events.status == 200
        events.close()

        def told(request_id: str) -> dict[str, Any] | None:
            return next((x for x in lines(node) if x.get("request_id") == request_id), None)

        line = testing.eventually(
            lambda: told(given["X-Request-Id"]), what="the log has the request"
        )
        assert (line["operation"], line["status"], line["method"]) == ("count", 200, "GET")
        assert line["took_ms"] >= 0
        line = testing.eventually(lambda: told("lost-1"), what="the log has the problem")
        assert (line["operation"], line["status"], line["level"]) == ("describeLog", 404, "debug")
        testing.eventually(lambda: told("stream-1"), what="the log has the stream")
        assert "secret-key" not in node.log_path.read_text(), "an address has keys"


def test_a_bug_is_answered_and_logged_with_the_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    async def broken(*_: Any) -> None:
        raise RuntimeError("broken for a test")

    async def run() -> None:
        async with live(tmp_path) as cluster:
            (node,) = cluster.nodes
            monkeypatch.setattr(Door, "_serve", broken)
            for number in range(3):
                answer = await asyncio.to_thread(
                    asked, node.config.http, "GET", "/v1/logs",
                    headers={"X-Request-Id": f"bug-{number}"},
                )  # fmt: skip
                assert answer.status == 500
                assert answer.headers["X-Request-Id"] == f"bug-{number}"
                told = answer.json
                assert (told["request_id"], told["outcome"]) == (f"bug-{number}", "unknown")
                assert "broken for a test" not in answer.body.decode()

    asyncio.run(run())
    bugs = [each for each in caplog.records if each.message == "request over HTTP failed"]
    assert [each.fields["request_id"] for each in bugs] == ["bug-0", "bug-1", "bug-2"]  # type: ignore[attr-defined]
    assert all(each.exc_info for each in bugs)
