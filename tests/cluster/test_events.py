"""Server-sent events on a real node: what comes, how a stream goes on, and slow readers."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from http_asking import Event, Events, asked
from live_nodes import LiveNode, live, until

import lognode
from lognode.node.door import answers, events

pytestmark = pytest.mark.cluster
PATH = "/v1/logs/orders/events"
QUERY = "?key=k&from=earliest"


def on_a_node(
    tmp_path: Path, body: Callable[[LiveNode, lognode.AsyncClient], Awaitable[None]],
    **settings: Any,
) -> None:  # fmt: skip
    async def run() -> None:
        async with (
            live(tmp_path, **settings) as cluster,
            lognode.AsyncClient(cluster.address) as client,
        ):
            await body(cluster.nodes[0], client)

    asyncio.run(run())


def entries_of(found: list[Event]) -> list[tuple[Any, Any]]:
    return [
        (e["key"], e["value"]) for event in found if event.name == "entries" for e in event.data
    ]


async def taken(
    node: LiveNode, query: str, count: int, last: str = "", *, after: str = ""
) -> tuple[list[Event], str]:
    """The events of a stream until so many entries came, and until an event `after`; the last
    id."""

    def read() -> tuple[list[Event], str]:
        stream, found = Events(node.config.http, PATH + query, last), []
        assert stream.status == 200, stream.problem
        try:
            for event in stream:
                found.append(event)
                if len(entries_of(found)) >= count and after in ("", event.name):
                    break
            return found, stream.last
        finally:
            stream.close()

    return await asyncio.to_thread(read)


@pytest.mark.parametrize("query", ["?key=a&key=%FF", "?prefix=", "?pattern=*", "?from=1&prefix="])
def test_a_stream_has_each_entry_once_also_when_it_is_cut(tmp_path: Path, query: str) -> None:
    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders", split_at=["m"])
        keys = [b"a", b"\xff"]
        await log.append_many([(keys[n % 2], b"%d" % n) for n in range(100)])
        start = "" if "from=" in query else "&from=earliest"
        found, last = await taken(node, query + start, 1)
        while len(entries_of(found)) < 100:
            more, last = await taken(node, query, 1, last)
            found += more
        await log.append_many([(keys[n % 2], b"%d" % n) for n in range(100, 120)])
        while len(entries_of(found)) < 120:
            more, last = await taken(node, query, 1, last)
            found += more
        shown = entries_of(found)
        for at, key in enumerate(("a", {"b64": "/w=="})):
            assert [value for k, value in shown if k == key] == [str(n) for n in range(at, 120, 2)]

    on_a_node(tmp_path, body)


def test_a_stream_says_that_it_has_caught_up_and_begins_with_an_id(tmp_path: Path) -> None:
    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders")
        await log.append("k", b"before")
        found, last = await taken(node, "?key=k&from=latest", 0, after="caught-up")
        assert entries_of(found) == []
        await log.append("k", b"after")
        found, _ = await taken(node, "?key=k", 1, last)
        assert entries_of(found) == [("k", "after")]
        found, _ = await taken(node, f"?key=k&last-event-id={last}", 1)
        assert entries_of(found) == [("k", "after")]

    on_a_node(tmp_path, body)


def test_an_id_of_other_keys_or_of_a_deleted_log_is_refused(tmp_path: Path) -> None:
    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders")
        await log.append("k", b"v")
        _, last = await taken(node, "?key=k&from=earliest", 1)

        def refused(query: str, header: str = "") -> Any:
            stream = Events(node.config.http, PATH + query, header)
            assert stream.status == 400
            return stream.problem["detail"]

        for query in ("?key=j", "?key=k&key=j", "?prefix=k", ""):
            assert "of other keys" in await asyncio.to_thread(refused, query, last)
        assert "not an id" in await asyncio.to_thread(refused, "?key=k", "x")
        for query in ("?key=k&prefix=k", "?key=", "?from=tail:2", "?prefix=a&pattern=b",
                      "?" + "&".join(f"key={n}" for n in range(101))):  # fmt: skip
            await asyncio.to_thread(refused, query)
        await client.delete_log("orders")
        await client.create_log("orders")
        assert "another log" in await asyncio.to_thread(refused, "?key=k", last)

    on_a_node(tmp_path, body)


def test_a_stream_of_a_deleted_log_ends_with_a_problem(tmp_path: Path) -> None:
    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        await client.create_log("orders")
        reading = asyncio.create_task(taken(node, "?key=k", 1))
        await until(lambda: streams(node) == 1, "the stream is open")
        await asyncio.sleep(0.3)
        await client.delete_log("orders")
        found, _ = await reading
        assert found[-1].name == "problem"
        assert found[-1].data["code"] == "LOG_NOT_FOUND"
        await until(lambda: streams(node) == 0, "the stream has ended")

    on_a_node(tmp_path, body)


def streams(node: LiveNode) -> int:
    door: Any = node.node._doors._http._door  # type: ignore[union-attr]
    return len(door._streams)


def test_an_idle_stream_has_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.1)

    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders")

        def read() -> int:
            stream = Events(node.config.http, PATH + QUERY)
            for event in stream:
                if event.name == "entries":
                    break
            stream.close()
            return stream.comments

        reading = asyncio.create_task(asyncio.to_thread(read))
        await until(lambda: streams(node) == 1, "the stream is open")
        await asyncio.sleep(1.0)
        await log.append("k", b"v")
        assert await reading >= 3
        await until(lambda: streams(node) == 0, "the node notes that the reader has left")

    on_a_node(tmp_path, body)


def test_a_reader_that_takes_nothing_is_closed_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 0.5)

    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        log = await client.create_log("orders")
        host, port = node.config.http.rsplit(":", 1)
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.connect((host, int(port)))
            stuck.sendall(f"GET {PATH}?prefix= HTTP/1.1\r\nHost: h\r\n\r\n".replace(
                "Host: h", "Host: 127.0.0.1").encode())  # fmt: skip
            await until(lambda: streams(node) == 1, "the stream is open")
            await asyncio.sleep(0.3)
            for _ in range(20):
                await log.append_many([("k", bytes([65]) * 500_000)] * 2)
            await until(lambda: streams(node) == 0, "the reader is closed")
        found, _ = await taken(node, "?prefix=&from=earliest", 40)
        assert len(entries_of(found)) == 40

    on_a_node(tmp_path, body)


def test_the_door_has_no_more_streams_than_configured(tmp_path: Path) -> None:
    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        await client.create_log("orders")
        tasks = [asyncio.create_task(taken(node, QUERY, 1)) for _ in range(3)]
        await until(lambda: streams(node) == 3, "the streams are open")
        over = await asyncio.to_thread(asked, node.config.http, "GET", PATH + "?key=k")
        assert (over.status, over.json["code"]) == (503, "OVERLOADED")
        for path in ("/healthz", "/readyz", "/v1/logs"):
            assert (await asyncio.to_thread(asked, node.config.http, "GET", path)).status == 200
        await client.log("orders").append("k", b"v")
        every = [found for found, _ in await asyncio.gather(*tasks)]
        assert [entries_of(found) for found in every] == [[("k", "v")]] * 3, every

    on_a_node(tmp_path, body, http_streams=4)


def test_a_node_that_stops_ends_its_streams(tmp_path: Path) -> None:
    async def body(node: LiveNode, client: lognode.AsyncClient) -> None:
        await client.create_log("orders")
        reading = asyncio.create_task(taken(node, "?key=k", 1))
        await until(lambda: streams(node) == 1, "the stream is open")
        await asyncio.sleep(0.5)
        async with asyncio.timeout(10):
            assert await node.stop() == 0
        with contextlib.suppress(OSError, HTTPException):
            await reading

    on_a_node(tmp_path, body)
