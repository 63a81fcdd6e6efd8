"""Send answers piece by piece, at the pace of the reader, without holding the event loop."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

from aiohttp import web

from ...client.json_text import printable, to_json
from ...client.protocol import limits
from ...client.protocol.errors import LognodeError
from ...client.protocol.types import Ack, Entry
from ..runtime.slices import SLICE_S, one_by_one
from .json_kinds import BYTES_SCHEMA, Schema
from .route import JSON_TYPE, NDJSON_TYPE

T = TypeVar("T")
_PIECE_BYTES: Final = 64 * limits.KIB
PATIENCE_S: Final = 30.0
"""A reader that takes no piece for this time loses the connection."""

ENTRY_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["key", "seq", "timestamp_ms", "value"],
    "properties": {
        "key": BYTES_SCHEMA,
        "seq": {"type": "integer"},
        "timestamp_ms": {"type": "integer"},
        "value": {"oneOf": [BYTES_SCHEMA, {"type": "null"}]},
        "headers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "value"],
                "properties": {"name": BYTES_SCHEMA, "value": BYTES_SCHEMA},
            },
        },
        "snapshot": {"type": "boolean"},
    },
}
ACK_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["seq", "timestamp_ms", "duplicate"],
    "properties": {
        "seq": {"type": ["integer", "null"]},
        "timestamp_ms": {"type": ["integer", "null"]},
        "duplicate": {"type": "boolean"},
    },
}


def entry_row(entry: Entry) -> dict[str, Any]:
    """Return an entry for JSON; headers and the snapshot mark only where the entry has them."""
    row: dict[str, Any] = {
        "key": printable(entry.key),
        "seq": entry.seq,
        "timestamp_ms": entry.timestamp_ms,
        "value": None if entry.value is None else printable(entry.value),
    }
    if entry.headers:
        row["headers"] = [
            {"name": printable(name), "value": printable(value)}
            for name, value in entry.headers.items()
        ]
    if entry.snapshot:
        row["snapshot"] = True
    return row


async def entry_rows(entries: AsyncIterator[Entry]) -> AsyncIterator[dict[str, Any]]:
    """Yield entries for JSON."""
    async for entry in entries:
        yield entry_row(entry)


def ack_row(ack: Ack) -> dict[str, Any]:
    """Return an acknowledgement for JSON."""
    return {"seq": ack.seq, "timestamp_ms": ack.timestamp_ms, "duplicate": ack.duplicate}


def closing(found: AsyncIterator[T]) -> "aclosing[AsyncGenerator[T, None]]":
    """Return the context that ends an iteration of the SDK, also before its end."""
    return aclosing(cast(AsyncGenerator[T, None], found))


def small_answer(value: Any, status: int = 200) -> web.Response:
    """Return an answer of a few values."""
    return web.Response(status=status, text=to_json(value) + "\n", content_type=JSON_TYPE)


async def rows_answer(
    request: web.Request, name: str, rows: Iterable[Any], more: dict[str, Any] | None = None
) -> web.StreamResponse:
    """Send an object whose field `name` has the rows, and which has the fields of `more`."""
    pieces = ["{"]
    for field, value in (more or {}).items():
        pieces.append(f"{to_json(field)}: {to_json(value)}, ")
    pieces.append(f"{to_json(name)}: [")
    comma = ""
    async for row in one_by_one(rows):
        pieces.append(comma + to_json(row))
        comma = ", "
    pieces.append("]}\n")
    response, _ = await _whole(request, "".join(pieces).encode())
    return response


async def text_answer(
    request: web.Request, pieces: AsyncIterator[str]
) -> tuple[web.StreamResponse, bool]:
    """Send the pieces of a JSON text as one answer; return also whether the reader has taken it."""
    return await _whole(request, "".join([piece async for piece in pieces]).encode())


async def _whole(request: web.Request, body: bytes) -> tuple[web.StreamResponse, bool]:
    response = stream_of(JSON_TYPE)
    response.content_length = len(body)
    try:
        await response.prepare(request)
        await send(response, body)
        await end(response)
    except ConnectionError:
        abort(request)
        return response, False
    return response, True


async def lines_answer(
    request: web.Request, rows: AsyncIterator[dict[str, Any]]
) -> web.StreamResponse:
    """Send rows as NDJSON while they come. The first row is awaited before the answer begins, so
    that an error is an answer of its own; a later error cuts the connection."""
    first = await anext(rows, None)
    until = time.perf_counter() + SLICE_S
    response = stream_of(NDJSON_TYPE)
    try:
        await response.prepare(request)
        if first is not None:
            pieces, size = [to_json(first) + "\n"], 0
            async for row in rows:
                pieces.append(to_json(row) + "\n")
                size += len(pieces[-1])
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_S
                if size > _PIECE_BYTES:
                    await send(response, "".join(pieces).encode())
                    pieces, size = [], 0
            await send(response, "".join(pieces).encode())
        await end(response)
    except (ConnectionError, LognodeError):
        abort(request)
    return response


def stream_of(kind: str) -> web.StreamResponse:
    """Return an answer of a content type that is sent piece by piece."""
    return web.StreamResponse(
        headers={
            "Content-Type": kind, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
        }
    )  # fmt: skip


async def send(response: web.StreamResponse, body: bytes) -> None:
    """Send bytes. Raises ConnectionError when the reader is gone, or takes nothing for too long."""
    for at in range(0, len(body), _PIECE_BYTES):
        await _within(response.write(body[at : at + _PIECE_BYTES]))


async def end(response: web.StreamResponse) -> None:
    """End an answer. Raises the errors of `send`."""
    await _within(response.write_eof())


async def _within(sent: Any) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await sent
    except TimeoutError:
        raise ConnectionAbortedError("the reader takes nothing") from None


def abort(request: web.Request) -> None:
    """Close the connection at once, so that a reader sees that the answer has not ended."""
    if request.transport is not None:
        request.transport.abort()
