"""A hostile or broken node costs its caller a LognodeError and nothing worse.

The node here answers each request with something else than the request asked for, on a real
socket. Every method of the SDK ends in time, with an error of lognode.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lognode import AsyncClient
from lognode.client import progress
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.pages import read_page
from lognode.client.protocol import Operation, by_number, errors, frames
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.errors import (
    LognodeError,
    Overloaded,
    RemoteProtocolError,
    Unsupported,
)
from lognode.client.protocol.reads import SCAN
from lognode.client.protocol.wire import Hello, Welcome
from lognode.client.retry import Attempts
from lognode.client.routing import Range

WRONG: tuple[Any, ...] = (
    None, -1, 1 << 63, 1.5, math.nan, True, "text", b"bytes", [], [[]], {}, {"a": 1}, {1: {2: 3}},
    [None], [1], ["x"], [b"k"], [{}], [[1, 2, 3, 4]], {b"k": b"v"}, "x" * 100_000,
)  # fmt: skip
"""Of all types, one behind the other: no field of an answer may be all of these."""

CLUSTER: dict[str, Any] = {
    "cluster": "c", "version": 1,
    "nodes": [{"id": 1, "address": "", "http": "h:1", "zone": "", "state": "ACTIVE"}],
    "logs": [{"id": 1, "name": "orders", "policy": {}}],
    "ranges": [{"id": 1, "generation": 1, "log": 1, "start": b"", "end": None, "members": [1],
                "leader": 1, "state": "ACTIVE", "operation": 0}],
}  # fmt: skip
PAGE: dict[str, Any] = {
    "keys": [b"k"], "seqs": [1], "timestamps": [1], "values": [b"v"], "headers": {0: {b"a": b"b"}},
    "snapshots": [0], "next": 2, "more": False, "applied": 1, "end_key": None,
}  # fmt: skip
CHUNK: list[Any] = [
    1, 1, 1, b"\1\0", None, b"k", b"\0\0\0\0", b"\0\0\0\0", b"\1\0\0\0", b"v", None, None
]  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {
    "metadata": CLUSTER,
    "append": {"results": [{"status": "ok", "first_seq": 1, "timestamp_ms": 1}]},
    "producer_open": {"id": 1, "epoch": 1},
    "scan": PAGE, "latest": PAGE, "read_span": PAGE,
    "follow": {"page": PAGE, "caught_up": True, "next": 2, "applied": 1, "end_key": None},
    "count": {"count": 1},
    "keys": {"keys": [b"k"], "more": False, "after": b"k"},
    "resolve": {"seq": 1, "more": False, "end_key": None},
    "export": {"chunks": [CHUNK], "position": None, "end_key": None, "applied": 1},
    "lease": {"end_key": None, "expires_ms": 1},
    "fence": {}, "trim": {}, "delete_keys": {}, "release": {},
}  # fmt: skip


def mutated(value: Any, rng: random.Random) -> Any:
    """The answer with one thing in it of another type, out of bounds, or gone."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        name = rng.choice(list(value))
        if rng.random() < 0.1:
            return {each: value[each] for each in value if each != name}
        return {**value, name: mutated(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(value[at], rng), *value[at + 1 :]]
    return rng.choice(WRONG)


class Node:
    """Answers `op` by `answer`, and all else as it should."""

    def __init__(self) -> None:
        self.op = ""
        self.answer: Any = {}
        self.error: Any = None
        self.port = 0

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c", node=1)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...
    def opened(self, connection: ServerConnection) -> None: ...
    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...
    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None: ...
    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None: ...

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        operation = by_number(number)
        if operation is None:
            raise Unsupported(f"no operation {number}")
        return operation

    def request(self, request: Request) -> None:
        name = request.operation.name
        answer = ANSWERS.get(name, {})
        if name == "metadata":
            answer = {**CLUSTER, "nodes": [{**CLUSTER["nodes"][0], "address": self.address}]}
        if name == self.op:
            if self.error is not None:
                request.connection._send(request.request_id, frames.ERROR, self.error)
                request.connection.finished(request)
                return
            answer = self.answer
        if name == "follow":
            request.push(answer if isinstance(answer, dict) else {})
            return
        request.reply(answer)

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(number) from error

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


Call = Callable[[AsyncClient], Awaitable[Any]]


async def _all(iterator: Any, most: int = 20) -> list[Any]:
    found = []
    async for each in iterator:
        found.append(each)
        if len(found) == most:
            break
    return found


async def _followed(client: AsyncClient) -> Any:
    async with client.log("orders").follow(start="earliest", timeout=0.3) as feed:
        with contextlib.suppress(TimeoutError):  # a push without entries is none
            return await asyncio.wait_for(anext(feed), 0.5)


async def _produced(client: AsyncClient) -> Any:
    async with client.log("orders").producer(timeout=0.3) as producer:
        return await (await producer.submit("k", b"v")).result()


async def _snapshot(client: AsyncClient) -> Any:
    snapshot = await client.log("orders").snapshot(timeout=0.3)
    return await _all(snapshot.read())


CALLS: dict[str, tuple[str, Call]] = {
    "metadata": ("metadata", lambda c: c.log("orders").describe(timeout=0.3)),
    "ranges": ("metadata", lambda c: c.log("orders").append("k", b"v", timeout=0.3)),
    "append": ("append", lambda c: c.log("orders").append("k", b"v", timeout=0.3)),
    "append_many": ("append", lambda c: c.log("orders").append_many([("k", b"v")], timeout=0.3)),
    "producer_open": ("producer_open", _produced),
    "producer": ("append", _produced),
    "scan": ("scan", lambda c: _all(c.log("orders").scan("k", timeout=0.3))),
    "latest": ("latest", lambda c: c.log("orders").latest("k", timeout=0.3)),
    "count": ("count", lambda c: c.log("orders").count("k", timeout=0.3)),
    "keys": ("keys", lambda c: _all(c.log("orders").keys(timeout=0.3))),
    "resolve": ("resolve", lambda c: _all(c.log("orders").scan("k", start="latest", timeout=0.3))),
    "follow": ("follow", _followed),
    "ends": ("resolve", _snapshot),
    "lease": ("lease", _snapshot),
    "export": ("export", _snapshot),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_any_malformed_answer_gives_the_caller_an_error_of_ours(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lognode.client.cluster.metadata_timeout_s", 0.3)
    op, call = CALLS[name]
    rng = random.Random(name)
    broken: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: broken.append(context))
        node = Node()
        listener = await acceptor.serve(node, "127.0.0.1", 0)
        node.port = listener.port
        for attempt in range(15):
            node.op, node.answer, node.error = op, mutated(ANSWERS[op], rng), None
            if not isinstance(node.answer, dict):
                node.answer = {"unknown": node.answer}
            if attempt % 5 == 4:  # a malformed error
                node.error = mutated(errors.to_wire(Overloaded("full", retry_after=0.1)), rng)
                node.error = node.error if isinstance(node.error, dict) else {"code": node.error}
            client = AsyncClient(node.address, timeout=0.3)
            try:
                await asyncio.wait_for(call(client), 5)
            except LognodeError as error:
                print(type(error).__name__, str(error)[:100])
            finally:
                await client.close(0.1)
        await listener.close()

    asyncio.run(main())
    assert broken == []


@pytest.mark.parametrize(
    "body",
    [None, 5, [], "x", {}, {"code": []}, {"code": {}}, {"code": "OVERLOADED", "fields": [1]},
     {"code": 5, "message": "m"}, {"code": "NOT_FOUND", "fields": "text"}],
)  # fmt: skip
def test_a_malformed_error_is_an_error_of_the_protocol(body: Any) -> None:
    error = errors.from_wire(body)
    assert isinstance(error, RemoteProtocolError)
    assert error.outcome == "unknown"


def test_an_error_has_the_fields_that_came_with_it_whatever_their_names() -> None:
    body = {
        "code": "OVERLOADED", "message": "m" * 10**6, "outcome": [],
        "fields": {"message": 1, "outcome": 2, "retry_after": 0.5, 7: 8, b"k": 1},
    }  # fmt: skip
    error = errors.from_wire(body)
    assert type(error) is Overloaded
    assert error.message == "m" * errors.message_chars_max
    assert error.outcome == "unknown"
    assert error.fields == {"message": 1, "outcome": 2, "retry_after": 0.5}
    assert errors.from_wire(errors.to_wire(error)).fields == error.fields


@pytest.mark.parametrize("told", [math.nan, -math.inf, -1, "1", None, [], True, 10**400])
def test_a_malformed_waiting_time_is_ignored(told: Any) -> None:
    attempts = Attempts("call", 1e9, writes=False)
    step = attempts.failed(Overloaded("full", retry_after=told), 0.0)
    assert 0 < step.delay_s <= 5


@pytest.mark.parametrize(
    "change",
    [{"id": -1}, {"id": None}, {"start": None}, {"start": "a"}, {"end": 5}, {"members": []},
     {"members": None}, {"members": [None]}, {"members": "12"}, {"leader": "1"}, {"log": {}},
     {"start": b"b", "end": b"a"}, {"generation": True}],
)  # fmt: skip
def test_a_damaged_descriptor_is_refused(change: dict[str, Any]) -> None:
    body = {**CLUSTER, "ranges": [{**CLUSTER["ranges"][0], **change}]}
    with pytest.raises(RemoteProtocolError):
        list(map(Range.from_wire, METADATA.check_answer(body)["ranges"]))


@pytest.mark.parametrize("column", ["keys", "seqs", "timestamps", "values", "headers", "next"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_page_with_a_column_of_another_type_is_refused(column: str, wrong: Any) -> None:
    allowed = {"keys": [b"bytes", [b"k"]], "seqs": [[1]], "timestamps": [[1]],
               "values": [[None], [b"k"]], "headers": [None, {}], "next": [1 << 63]}  # fmt: skip
    if wrong in allowed[column]:
        return
    with pytest.raises(RemoteProtocolError):
        read_page(SCAN.check_answer({**PAGE, column: wrong}))


def test_an_answer_that_does_not_go_on_is_refused() -> None:
    answer = {"next": 5, "after": b"k", "end_key": b"k"}
    assert progress.higher(answer, "next", 4) == progress.lower(answer, "next", 6) == 5
    assert progress.lower(answer, "next", None) == 5
    assert progress.later_key(answer, "after", b"j") == progress.later_key(answer, "after", None)
    assert progress.end_key(answer, b"j") == b"k"
    assert progress.end_key({"end_key": None}, b"j") is None
    for wrong in (
        lambda: progress.higher(answer, "next", 5),
        lambda: progress.lower(answer, "next", 5),
        lambda: progress.later_key(answer, "after", b"k"),
        lambda: progress.later_key({"after": None}, "after", b"k"),
        lambda: progress.end_key(answer, b"k"),
    ):
        with pytest.raises(RemoteProtocolError):
            wrong()
