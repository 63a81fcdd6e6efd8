"""What a node refuses leaves no cycle of objects, neither in the node nor in its client.

A node collects what is old seldom, and everybody waits meanwhile. An error that its own frames hold
stays until then, with the request and its batches.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from live_nodes import LiveNode, live, until
from loose_operations import loosened
from strangers import hello

import lognode
from lognode.client.connection import Connection
from lognode.client.protocol import frames, limits
from lognode.client.protocol.address import split_address
from lognode.client.protocol.appends import APPEND
from lognode.client.protocol.errors import LognodeError, RemoteProtocolError, bare
from lognode.client.protocol.frame import Decoder, Frame, encode
from lognode.client.protocol.peers import RAFT
from lognode.client.protocol.records import encode_batch, open_batch

TIMES = 20
TRACEBACKS = TIMES // 2
"""Tracebacks that may be garbage for other reasons: a node does other work too. A refusal that
leaves a cycle leaves several."""

Body = dict[str, Any]
Ask = Callable[[Body], Awaitable[str]]
Closed = asyncio.StreamWriter | Connection


def batch(number: int, *keys: bytes, epoch: int = 1, **more: Any) -> bytes:
    found = keys or (b"k",)
    values: list[bytes | None] = [b"v"] * len(found)
    return encode_batch(
        list(found), values, producer=7, epoch=epoch, low=number, numbers=number, **more
    )


def claiming(number: int, values_bytes: int) -> bytes:
    """A batch that says that its values have so many bytes."""
    fields = list(open_batch(batch(number)).fields)
    fields[-1] = values_bytes
    return bytes(msgpack.packb(fields))


def refused(where: Body) -> dict[str, Callable[[int], Body]]:
    """By the code of the refusal and why: the body of an append with that number."""
    corrupt = b"no batch"
    return {
        "INVALID_ARGUMENT by the table": lambda n: {**where, "batches": 5},
        "LIMIT_EXCEEDED by the table": lambda n: {**where, "batches": [batch(n)] * 5_000},
        "RANGE_NOT_FOUND": lambda n: {**where, "range": 99, "batches": [batch(n)]},
        "GENERATION_MISMATCH": lambda n: {**where, "generation": 9, "batches": [batch(n)]},
        "CORRUPT_DATA": lambda n: {**where, "batches": [corrupt]},
        "CORRUPT_DATA of several": lambda n: {**where, "batches": [corrupt, corrupt, corrupt]},
        "CORRUPT_DATA of a long one": lambda n: {**where, "batches": [b"\x9e" * 100_000, corrupt]},
        "LIMIT_EXCEEDED by a key": lambda n: {**where, "batches": [batch(n, b"x" * 481)]},
        "LIMIT_EXCEEDED by a key in steps": lambda n: {
            **where, "batches": [batch(n, *[b"x" * 470] * 200, b"x" * 481)],
        },
        "LIMIT_EXCEEDED together": lambda n: {
            **where, "batches": [claiming(n, limits.values_bytes_max - 1)] * 2,
        },
        "SEQUENCE_MISMATCH": lambda n: {**where, "batches": [batch(100 + n, expects=[99])]},
        "FENCED": lambda n: {**where, "batches": [batch(n, epoch=0)]},
    }  # fmt: skip


async def range_of(client: lognode.AsyncClient) -> Body:
    (row,) = [row for row in (await client.status())["ranges"] if row["log"] == "orders"]
    return {"range": row["id"], "generation": row["generation"], "timeout_ms": 30_000}


def code_of(body: Body) -> str:
    """The code of a refusal, or of the first result."""
    if "code" in body:
        return str(body["code"])
    first = body["results"][0]
    return str(first["error"]["code"] if first["status"] == "error" else "ok")


async def bare_asker(node: LiveNode) -> tuple[Ask, Closed]:
    """Sends appends to the node over a socket, with no client of ours."""
    reader, writer = await asyncio.open_connection(*split_address(node.config.listen))
    decoder, last = Decoder(), 0

    async def answer() -> Body:
        while True:
            for event in decoder.feed(await reader.read(1 << 16)):
                assert isinstance(event, Frame)
                return event.body

    async def ask(body: Body) -> str:
        nonlocal last
        last += 1
        writer.write(encode(last, APPEND.number, body))
        return code_of(await answer())

    writer.write(encode(0, frames.HELLO, hello().to_body()))
    await answer()
    return ask, writer


async def asker(node: LiveNode) -> tuple[Ask, Closed]:
    """Sends appends over a connection of ours."""
    link = await node.client()
    operation = loosened(APPEND)

    async def ask(body: Body) -> str:
        deadline = asyncio.get_running_loop().time() + 60
        try:
            return code_of(await link.request(operation, body, deadline=deadline))
        except LognodeError as error:
            return error.code

    return ask, link


async def garbage_of(ask: Ask, make: Callable[[int], Body], code: str) -> Counter[str]:
    """What a number of refusals leave that refers to itself, by type."""
    for n in range(1, 4):
        assert await ask(make(n)) == code
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for n in range(4, 4 + TIMES):
            assert await ask(make(n)) == code
        gc.collect()
        return Counter(type(each).__name__ for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("made", [bare_asker, asker], ids=["node", "node and client"])
def test_refused_appends_leave_no_cycles(
    tmp_path: Path, made: Callable[[LiveNode], Awaitable[tuple[Ask, Closed]]]
) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            await (await client.create_log("orders")).append(b"k", b"v")
            where = await range_of(client)
            ask, link = await made(cluster.nodes[0])
            assert await ask({**where, "batches": [batch(1, epoch=1)]}) == "ok"
            for why, make in refused(where).items():
                found = await garbage_of(ask, make, why.split()[0])
                assert found["traceback"] < TRACEBACKS, (why, found.most_common(6))
            link.close()

    asyncio.run(run())


def test_a_condition_that_fails_leaves_no_cycle_in_the_sdk(tmp_path: Path) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster, lognode.AsyncClient(cluster.address) as client:
            log = await client.create_log("orders")
            await log.append(b"k", b"v")

            async def ask(_: Body) -> str:
                try:
                    await log.append(b"k", b"v", expect=99)
                except LognodeError as error:
                    return error.code
                return "ok"

            found = await garbage_of(ask, lambda _: {}, "SEQUENCE_MISMATCH")
            assert found["traceback"] < TRACEBACKS, found.most_common(6)

    asyncio.run(run())


FRAME: Body = {"boot": 1, "process": 1, "clock": 1, "ping": [0, 0, []]}


@pytest.mark.parametrize("peer", [True, False], ids=["of a node", "of a client"])
def test_connections_that_end_by_a_refused_message_leave_no_cycles(
    tmp_path: Path, *, peer: bool
) -> None:
    """5,000 such connections, of which each left 25 objects, cost a pause of 170 ms."""

    async def run() -> None:
        async with live(tmp_path) as cluster:
            node = cluster.nodes[0]

            async def ask(_: Body) -> str:
                link = await (node.peer() if peer else node.client())
                link.send(loosened(RAFT), {**FRAME, "messages": 5})
                await until(lambda: link.lost is not None, "the connection ends")
                await link.wait_closed()
                return "" if link.lost is None else link.lost.code

            code = "REMOTE_PROTOCOL_ERROR" if peer else "UNAUTHORIZED"
            found = await garbage_of(ask, lambda _: {}, code)
            for kind in ("ServerConnection", "Accepted", "frame"):
                assert kind not in found, found.most_common(6)

    asyncio.run(run())


def test_a_bare_error_knows_no_frame_and_no_other_error() -> None:
    def raised() -> LognodeError:
        try:
            try:
                raise ValueError("first")
            except ValueError as error:
                raise RemoteProtocolError("second", count=3) from error
        except LognodeError as error:
            return bare(error)

    error = raised()
    assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
    assert (error.message, error.fields) == ("second", {"count": 3})
