"""REST on a real node: entries, logs, problems, hostile requests; rights with tokens and TLS."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from http_asking import Answer, Events, asked
from live_nodes import LiveNode, live

import lognode
from lognode import testing
from lognode.client.protocol import limits
from lognode.node.door import bodies

pytestmark = pytest.mark.cluster
Ask = Callable[..., Awaitable[Answer]]
SCAN = "/v1/logs/orders/keys/k/entries"


def on_a_node(
    tmp_path: Path, body: Callable[[LiveNode, Ask, lognode.AsyncClient], Awaitable[None]],
    **settings: Any,
) -> None:  # fmt: skip
    """Run the body with a node, a function that asks the door, and a client."""

    async def run() -> None:
        async with live(tmp_path, **settings) as cluster:
            (node,) = cluster.nodes

            async def ask(*args: Any, **how: Any) -> Answer:
                return await asyncio.to_thread(asked, node.config.http, *args, **how)

            async with lognode.AsyncClient(cluster.address) as client:
                await body(node, ask, client)

    asyncio.run(run())


def problem(answer: Answer, status: int, code: str) -> Any:
    """The problem of an answer, which has this status and this code."""
    assert answer.status == status, answer
    assert answer.headers["Content-Type"] == "application/problem+json; charset=utf-8"
    told = answer.json
    assert (told["status"], told["code"]) == (status, code)
    assert told["detail"]
    return told


def test_entries_go_in_and_come_out(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        made = await ask("POST", "/v1/logs", {"name": "orders", "split_at": ["m"], "replicas": 1})
        assert (made.status, made.json["name"]) == (201, "orders")
        one = await ask("POST", "/v1/logs/orders/entries", {"key": "k", "value": "one"})
        assert one.status == 200
        assert one.json.keys() == {"seq", "timestamp_ms", "duplicate"}
        many = await ask(
            "POST", "/v1/logs/orders/entries",
            [
                {"key": "k", "value": {"b64": "/w=="}, "headers": [{"name": "h", "value": "v"}]},
                {"key": "z", "value": None},
                {"key": {"b64": "AP8="}, "value": ""},
            ],
        )  # fmt: skip
        assert len(many.json["acks"]) == 3
        lines = b'{"key": "k", "value": "3"}\n\n{"key": "k", "value": "4"}\n'
        ndjson = {"Content-Type": "application/x-ndjson"}
        assert (await ask("POST", "/v1/logs/orders/entries", lines, headers=ndjson)).status == 200
        log = client.log("orders")
        found = [entry async for entry in log.scan("k")]
        assert [entry.value for entry in found] == [b"one", b"\xff", b"3", b"4"]
        assert found[1].headers == {b"h": b"v"}
        shown = (await ask("GET", SCAN)).json
        assert shown["next"] is None
        assert [entry["value"] for entry in shown["entries"]] == ["one", {"b64": "/w=="}, "3", "4"]
        assert shown["entries"][1]["headers"] == [{"name": "h", "value": "v"}]
        assert "headers" not in shown["entries"][0]
        odd = (await ask("GET", "/v1/logs/orders/keys/%00%FF/latest")).json["entries"]
        assert odd[0]["key"] == {"b64": "AP8="}
        assert (await ask("GET", "/v1/logs/orders/keys/none/latest")).json == {"entries": []}
        (tombstone,) = (await ask("GET", "/v1/logs/orders/keys/z/latest")).json["entries"]
        assert tombstone["value"] is None
        assert (await ask("GET", "/v1/logs/orders/keys/k/count")).json == {"count": 4}
        assert (await ask("GET", "/v1/logs/orders/keys/k/count?from=tail:2")).json == {"count": 2}
        keys = (await ask("GET", "/v1/logs/orders/keys")).json
        assert keys == {"keys": [{"b64": "AP8="}, "k", "z"], "next": None}
        page = (await ask("GET", "/v1/logs/orders/keys?limit=1&after=%00%FF&prefix=")).json
        assert page == {"keys": ["k"], "next": "k"}

    on_a_node(tmp_path, body)


def test_pages_of_a_scan_have_each_entry_once(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders")
        await log.append_many([("k", b"%d" % n) for n in range(10)])
        want = [str(n) for n in range(10)]
        for reverse, wanted in ((False, want), (True, want[::-1])):
            found, page = [], ""
            while page is not None:
                path = f"{SCAN}?limit=3&reverse={str(reverse).lower()}{page}"
                shown = (await ask("GET", path)).json
                found += [entry["value"] for entry in shown["entries"]]
                page = None if shown["next"] is None else f"&page={shown['next']}"
            assert found == wanted
        lines = await ask("GET", SCAN, headers={"Accept": "application/x-ndjson"})
        assert lines.headers["Content-Type"] == "application/x-ndjson"
        assert [entry["value"] for entry in lines.lines] == want
        few = await ask("GET", f"{SCAN}?limit=2&from=3&to=5", headers=lines_wanted())
        assert [entry["seq"] for entry in few.lines] == [3, 4]
        # A page ends after a MiB.
        await log.append_many([("big", bytes([65]) * 700_000) for _ in range(3)])
        shown = (await ask("GET", "/v1/logs/orders/keys/big/entries")).json
        assert len(shown["entries"]) == 2
        assert shown["next"] is not None

    on_a_node(tmp_path, body)


def lines_wanted() -> dict[str, str]:
    return {"Accept": "application/x-ndjson"}


def test_logs_ranges_nodes_and_health(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        for name in ("a/b", "c", "d"):
            await client.create_log(name, split_at=[b"m", b"\xff"])
        first = (await ask("GET", "/v1/logs?limit=2")).json
        assert [log["name"] for log in first["logs"]] == ["a/b", "c"]
        rest = (await ask("GET", f"/v1/logs?limit=2&after={first['next']}")).json
        assert ([log["name"] for log in rest["logs"]], rest["next"]) == (["d"], None)
        one = (await ask("GET", "/v1/logs/a%2Fb")).json
        assert (one["name"], one["policy"]["cleanup"]) == ("a/b", "delete")
        ranges = (await ask("GET", "/v1/logs/a%2Fb/ranges")).json["ranges"]
        assert [(each["start"], each["end"]) for each in ranges] == [
            ("", "m"), ("m", {"b64": "/w=="}), ({"b64": "/w=="}, None),
        ]  # fmt: skip
        (found,) = (await ask("GET", "/v1/nodes")).json["nodes"]
        assert (found["id"], found["address"]) == (1, node.config.listen)
        health = (await ask("GET", "/v1/cluster")).json
        while not health["ok"]:
            assert health["reasons"], "a cluster that is not healthy says why"
            assert health["next"], "and what to do"
            health = (await ask("GET", "/v1/cluster")).json
        assert health == {"ok": True, "reasons": [], "next": None}
        assert (await ask("DELETE", "/v1/logs/a%2Fb")).status == 204
        problem(await ask("GET", "/v1/logs/a%2Fb"), 404, "LOG_NOT_FOUND")
        problem(await ask("POST", "/v1/logs", {"name": "c"}), 409, "LOG_EXISTS")
        again = await ask("POST", "/v1/logs", {"name": "c", "exist_ok": True})
        assert again.status == 201

    on_a_node(tmp_path, body)


def test_s9_a_condition_that_does_not_hold_is_a_problem(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        await client.create_log("orders")
        path = "/v1/logs/orders/entries"
        seq = (await ask("POST", path, {"key": "k", "value": "1", "expect": "absent"})).json["seq"]
        told = problem(
            await ask("POST", path, {"key": "k", "value": "2", "expect": "absent"}),
            409, "SEQUENCE_MISMATCH",
        )  # fmt: skip
        assert (told["outcome"], told["retryable"]) == ("not_applied", False)
        assert told["fields"]["actual"] == seq
        many = [
            {"key": "k", "value": "2", "expect": seq},
            {"key": "k", "value": "3", "expect": seq},
        ]
        told = problem(await ask("POST", path, many), 409, "PARTIAL_FAILURE")
        assert [each and each["code"] for each in told["fields"]["errors"]] == [
            None, "SEQUENCE_MISMATCH",
        ]  # fmt: skip
        assert told["fields"]["acks"][0]["seq"] > seq
        assert (await ask("GET", "/v1/logs/orders/keys/k/count")).json == {"count": 2}

    on_a_node(tmp_path, body)


def test_s10_an_atomic_batch_is_of_one_range(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders", split_at=["m"])
        path = "/v1/logs/orders/entries?atomic=true"
        acks = (
            await ask("POST", path, [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}])
        ).json
        first, second = (ack["seq"] for ack in acks["acks"])
        assert second == first + 1
        assert (await log.latest("b")).seq == second  # type: ignore[union-attr]
        both = [{"key": "a", "value": "1"}, {"key": "z", "value": "2"}]
        problem(await ask("POST", path, both), 400, "BATCH_SPANS_RANGES")
        assert await log.count("z") == 0
        both[1] = {"key": "b", "value": "2", "expect": "absent"}
        problem(await ask("POST", path, both), 400, "INVALID_ARGUMENT")

    on_a_node(tmp_path, body)


def test_bad_requests_get_problems_and_change_nothing(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders")
        path, good = "/v1/logs/orders/entries", {"key": "k", "value": "v"}
        bad: list[Any] = [
            1, b"null", "x", [1], [[]], {}, {"key": "k"}, {"value": "v"}, good | {"key": 1},
            good | {"key": None}, good | {"value": 1.5}, good | {"key": ""},
            good | {"key": "k" * 481}, good | {"key": "\ud800"}, good | {"value": "\udfff"},
            good | {"unknown": 1}, good | {"headers": {}}, good | {"headers": [{"name": "h"}]},
            good | {"headers": [{"name": "h", "value": "v"}] * 2}, good | {"expect": -1},
            good | {"expect": 10**30}, good | {"snapshot": 1}, [good | {"snapshot": True}],
            good | {"value": "v" * (limits.value_bytes_max + 1)},
        ]  # fmt: skip
        for value in bad:
            answer = await ask("POST", path, value)
            assert answer.status == 400, value
            assert answer.json["outcome"] == "not_applied"
        for raw in (b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b"9" * 5_000, b'{"key": "k"}}',
                    b"[" * 60_000, b"\0"):  # fmt: skip
            assert (await ask("POST", path, raw)).status == 400, raw[:20]
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                     "application/json; charset=latin-1"):  # fmt: skip
            answer = await ask("POST", path, good, headers={"Content-Type": kind})
            problem(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
        packed = {"Content-Encoding": "gzip"}
        problem(await ask("POST", path, good, headers=packed), 415, "UNSUPPORTED_MEDIA_TYPE")
        problem(await ask("POST", path), 415, "UNSUPPORTED_MEDIA_TYPE")
        for name in ("p", "p:", "p:0", ":1", "p:-1", "p:1x", "p:" + "9" * 19, "p" * 300 + ":1"):
            answer = await ask("POST", path, good, headers={"Idempotency-Key": name})
            assert answer.status == 400, name
        named = {"Idempotency-Key": "p:1"}
        for value in ([good], good | {"expect": "absent"}):
            problem(await ask("POST", path, value, headers=named), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", "/v1/logs/orders", good), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", "/v1/nothing"), 404, "NOT_FOUND")
        problem(await ask("GET", "/v1/logs/none"), 404, "LOG_NOT_FOUND")
        problem(await ask("GET", "/v1/logs/" + "n" * 200), 400, "LIMIT_EXCEEDED")
        problem(await ask("GET", "/v1/logs/%FF"), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", "/v1/logs/orders/keys//entries"), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", "/v1/logs/orders/keys?limit=0"), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", "/v1/logs/orders/keys?limit=1&limit=2"), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", "/v1/logs/orders/keys?what=1"), 400, "INVALID_ARGUMENT")
        problem(await ask("GET", f"{SCAN}?from=tail:2&reverse=true"), 400, "INVALID_ARGUMENT")
        wrong = await ask("PUT", "/v1/logs/orders")
        problem(wrong, 405, "METHOD_NOT_ALLOWED")
        assert wrong.headers["Allow"] == "DELETE,GET"
        odd = await ask("GET", "/v1/logs/orders/keys/%7B%0A%2F..%25%7D/count")
        assert odd.json == {"count": 0}
        found = log.keys()
        assert [key async for key in found] == []

    on_a_node(tmp_path, body)


def test_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        await client.create_log("orders")
        path, entry = "/v1/logs/orders/entries", {"key": "k", "value": "v"}
        for origin in ("http://evil.example", "null", "http://[", f"http://{node.config.http}0"):
            answer = await ask("POST", path, entry, headers={"Origin": origin})
            problem(answer, 403, "UNAUTHORIZED")
        own = {"Origin": f"http://{node.config.http}"}
        answer = await ask("POST", path, entry, headers=own)
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers
        problem(await ask("GET", SCAN, headers={"Host": "evil.example"}), 421, "MISDIRECTED")
        asks_first = await ask("OPTIONS", path, headers={"Origin": "http://evil.example"})
        assert asks_first.status == 403

    on_a_node(tmp_path, body)


def talk(node: LiveNode, *parts: bytes, pause_s: float = 0.0, wait_s: float = 20.0) -> bytes:
    """Send the parts over one connection; return all that comes until the node closes it."""
    host, port = node.config.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=wait_s) as sock:
        found = b""
        try:
            for part in parts:
                sock.sendall(part)
                time.sleep(pause_s)
            while data := sock.recv(65_536):
                found += data
        except OSError:
            pass
        return found


def test_hostile_requests_are_cut_off_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_BODY_S", 0.5)
    begin = b"POST /v1/logs/orders/entries HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    json_type = b"Content-Type: application/json\r\n"

    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        await client.create_log("orders")

        async def said(*parts: bytes, **how: Any) -> bytes:
            return await asyncio.to_thread(talk, node, *parts, **how)

        many = b"".join(b"x-%d: y\r\n" % n for n in range(10_000))
        assert b" 200 " not in await said(b"GET /v1/logs HTTP/1.1\r\n" + many + b"\r\n")
        wide = b"".join(b"x-%d: %b\r\n" % (n, b"y" * 4_000) for n in range(50))
        assert b" 200 " not in await said(b"GET /v1/logs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + wide)
        large = b"Content-Length: 100000000\r\n\r\n"
        assert b" 413 " in await said(begin + json_type + large)
        over = json_type + b"Content-Length: 3000000\r\n\r\n"
        assert b" 413 " in await said(begin + over, b" " * 3_000_000, wait_s=3.0)
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        endless = begin + json_type + b"Transfer-Encoding: chunked\r\n\r\n"
        assert b" 413 " in await said(endless, *[chunk] * 8)
        broken = endless + b"zz\r\n"
        assert b" 400 " in await said(broken)
        slow = begin + json_type + b"Content-Length: 1000\r\n\r\n"
        began = time.monotonic()
        assert b" 200 " not in await said(slow, b"{")
        assert time.monotonic() - began < 10
        assert (await ask("GET", "/v1/logs/orders")).status == 200
        assert node.node._doors._http._door._bodies._bytes == 0  # type: ignore[union-attr]

    on_a_node(tmp_path, body)


def test_a_full_door_still_answers_probes(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        door: Any = node.node._doors._http._door  # type: ignore[union-attr]
        with door._requests.admitted("a"):
            most = door._requests._most
            held = [door._requests.admitted(f"asker {n}") for n in range(most - 1)]
            for each in held:
                each.__enter__()
            told = problem(await ask("GET", "/v1/logs"), 503, "OVERLOADED")
            assert told["retryable"]
            assert (await ask("GET", "/healthz")).status == 200
            assert (await ask("GET", "/openapi.json")).status == 200
            for each in held:
                each.__exit__(None, None, None)
        assert (await ask("GET", "/v1/logs")).status == 200

    on_a_node(tmp_path, body)


def test_the_document_is_served(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        found = (await ask("GET", "/openapi.json")).json
        assert found["openapi"] == "3.1.0"
        assert "/v1/logs/{log}/entries" in found["paths"]

    on_a_node(tmp_path, body)


def test_s8_an_append_with_an_idempotency_key_is_applied_once(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders", split_at=["m"])

        async def append(number: int, key: str = "a", producer: str = "shop") -> Answer:
            return await ask(
                "POST", "/v1/logs/orders/entries", {"key": key, "value": str(number)},
                headers={"Idempotency-Key": f"{producer}:{number}"},
            )  # fmt: skip

        first = (await append(1)).json
        assert not first["duplicate"]
        for _ in range(3):
            again = (await append(1)).json
            assert (again["seq"], again["duplicate"]) == (first["seq"], True)
        assert not (await append(2, "z")).json["duplicate"]  # in another range
        assert (await append(1)).json["seq"] == first["seq"]
        assert not (await append(1, producer="other")).json["duplicate"]
        assert not (await append(9)).json["duplicate"]
        told = problem(await append(5), 409, "CONFLICT")  # skipped, which nobody can know
        assert told["outcome"] == "unknown"
        # Requests at the same time: each is applied once, or is fenced and may be repeated.
        answers = await asyncio.gather(*(append(10) for _ in range(4)))
        while not any(answer.status == 200 for answer in answers):
            answers = [await append(10)]
        assert {answer.status for answer in answers} <= {200, 409}
        assert (await append(10)).json["duplicate"]
        assert [entry.value async for entry in log.scan("a")] == [b"1", b"1", b"9", b"10"]
        assert [entry.value async for entry in log.scan("z")] == [b"2"]

    on_a_node(tmp_path, body)


def test_a_snapshot_reads_the_same_until_it_is_released(tmp_path: Path) -> None:
    async def body(node: LiveNode, ask: Ask, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders", split_at=["m"])
        await log.append_many([("a", b"1"), ("a", b"\xff"), ("z", b"3")])
        path = "/v1/logs/orders/snapshots"
        taken = await ask("POST", path, {})
        assert taken.status == 201
        snapshot = taken.json["snapshot"]
        assert {"snapshot": snapshot} == taken.json
        await log.append("a", b"4")
        await log.delete_key("a")

        async def values(**chosen: Any) -> list[Any]:
            answer = await ask("POST", f"{path}/read", {"snapshot": snapshot} | chosen)
            assert answer.headers["Content-Type"] == "application/x-ndjson"
            return [entry["value"] for entry in answer.lines]

        assert await values() == ["1", {"b64": "/w=="}, "3"]
        assert await values(key="a") == ["1", {"b64": "/w=="}]
        assert await values(prefix="z") == ["3"]
        assert await values(pattern=["z*"]) == ["3"]
        both = {"snapshot": snapshot, "key": "a", "prefix": "a"}
        problem(await ask("POST", f"{path}/read", both), 400, "INVALID_ARGUMENT")
        other = await client.create_log("other")
        assert other.name == "other"
        wrong = await ask("POST", "/v1/logs/other/snapshots/read", {"snapshot": snapshot})
        assert wrong.status in (400, 409), wrong
        for change in ({"cluster": "x"}, {"log_id": 99}, {"parts": []}, {"v": 2},
                       {"parts": [snapshot["parts"][0] | {"through_seq": 10**30}]},
                       {"lease": "\udfff"}):  # fmt: skip
            answer = await ask("POST", f"{path}/read", {"snapshot": snapshot | change})
            assert 400 <= answer.status < 500, (change, answer)
        assert (await ask("POST", f"{path}/release", {"snapshot": snapshot})).status == 204
        ended = await ask("POST", f"{path}/read", {"snapshot": snapshot})
        problem(ended, 404, "NOT_FOUND")

    on_a_node(tmp_path, body)


# Rights.


def test_a_token_may_do_over_http_what_it_may_do_elsewhere(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, auth=True) as cluster:
        (node,) = cluster.nodes
        with lognode.Client(cluster.servers) as client:
            for name in ("mine", "other"):
                client.create_log(name).append("k", b"v")
            reader = client.admin.create_token("r", ["read,describe mine"])["token"]

            def ask(token: str, method: str, path: str, body: Any = None) -> Answer:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                return asked(node.http, method, path, body, headers=headers)

            path = "/v1/logs/mine/keys/k/latest"
            nobody = ask("", "GET", path)
            problem(nobody, 401, "UNAUTHORIZED")
            assert nobody.headers["WWW-Authenticate"] == "Bearer"
            problem(ask("x", "GET", path), 401, "UNAUTHORIZED")
            problem(ask("0" * 16 + "." + "A" * 30, "GET", path), 401, "UNAUTHORIZED")
            assert ask(reader, "GET", path).json["entries"][0]["value"] == "v"
            entry = {"key": "k", "value": "v"}
            problem(ask(reader, "POST", "/v1/logs/mine/entries", entry), 403, "UNAUTHORIZED")
            assert ask(reader, "GET", path.replace("mine", "other")).status in (403, 404)
            names = [log["name"] for log in ask(reader, "GET", "/v1/logs").json["logs"]]
            assert names == ["mine"]
            shown = {"Authorization": f"Bearer {reader}"}
            stream = Events(node.http, "/v1/logs/mine/events?key=k&from=earliest", headers=shown)
            events = iter(stream)
            assert next(events).data[0]["value"] == "v"
            client.admin.revoke_token(reader.partition(".")[0])
            last = list(events)[-1]  # the stream ends
            assert (last.name, last.data["code"]) == ("problem", "UNAUTHORIZED")
            stream.close()
            testing.eventually(
                lambda: ask(reader, "GET", path).status == 401, timeout_s=20,
                what="the token is refused",
            )  # fmt: skip


def test_with_tls_a_certificate_alone_is_not_enough(tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, tls=True, auth=True) as cluster:
        (node,) = cluster.nodes
        assert cluster.tls is not None
        with lognode.Client(cluster.servers) as client:
            client.create_log("orders").append("k", b"v")
            token = client.admin.create_token("app", ["all"])["token"]
            client.admin.create_token("dev", ["all"], certificate="client dev")
        context, path = cluster.tls.context, "/v1/logs/orders/keys/k/latest"

        def ask(**headers: str) -> Answer:
            return asked(node.http, "GET", path, tls=context, headers=headers)

        testing.eventually(
            lambda: "certificate alone" in ask().json["detail"], what="the rights are known"
        )
        problem(ask(), 401, "UNAUTHORIZED")
        shown = ask(Authorization=f"Bearer {token}").json["entries"]
        assert shown[0]["value"] == "v"


def test_without_tokens_everybody_that_reaches_the_port_is_served(tmp_path: Path) -> None:
    """As at the port for clients: with TLS, everybody with a certificate of the cluster's CA."""
    with testing.cluster(tmp_path, 1, tls=True) as cluster:
        (node,) = cluster.nodes
        assert cluster.tls is not None
        made = asked(node.http, "POST", "/v1/logs", {"name": "orders"}, tls=cluster.tls.context)
        assert made.status == 201
