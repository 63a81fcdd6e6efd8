"""A follow as server-sent events, at the pace of the reader.

An event has the entries of one batch, so that its id, the position behind the batch, is exact: a
reader has all entries of the batch or none. The next batch is taken once the reader's connection
has room for this one; until then the follow waits, with a bounded number of bytes.
"""

import asyncio
from typing import Final

from aiohttp import web

from ...client.follow import AsyncFeed
from ...client.json_text import to_json
from ...client.protocol.errors import LognodeError
from ...client.protocol.types import FollowBatch
from ..runtime.slices import one_by_one
from .answers import abort, end, entry_row, send, stream_of
from .event_ids import EventIds
from .problems import told
from .request_ids import id_of
from .route import EVENTS_TYPE

HEARTBEAT_S: Final = 15.0


class EventStream:
    """Sends the batches of an open feed. `ids` makes the ids of the events."""

    def __init__(self, request: web.Request, feed: AsyncFeed, ids: EventIds) -> None:
        self._request = request
        self._feed = feed
        self._ids = ids
        self._caught_up = False
        self._next: asyncio.Task[FollowBatch] | None = None

    async def run(self) -> web.StreamResponse:
        """Send events until the reader leaves, or the follow ends with an error, which is the last
        event."""
        response = stream_of(EVENTS_TYPE)
        try:
            await response.prepare(self._request)
            await self._send_id(response)
            await self._run(response)
        except ConnectionError:
            abort(self._request)
        finally:
            if self._next is not None:
                self._next.cancel()
        return response

    async def _run(self, response: web.StreamResponse) -> None:
        try:
            while True:
                await self._send(response, await self._batch(response))
        except LognodeError as error:
            last = f"event: problem\ndata: {to_json(told(error, id_of(self._request)))}\n\n"
            await send(response, last.encode())
            await end(response)

    async def _send_id(self, response: web.StreamResponse) -> None:
        """Send where the follow begins: a reader that is cut off before the first event continues
        from there."""
        await send(response, f"id: {self._ids.made(self._feed.cursor)}\n\n".encode())

    async def _batch(self, response: web.StreamResponse) -> FollowBatch:
        """Return the next batch; send comments while there is none."""
        self._next = asyncio.ensure_future(anext(self._feed))
        self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        while True:
            done, _ = await asyncio.wait((self._next,), timeout=HEARTBEAT_S)
            if done:
                return self._next.result()
            await send(response, b": waiting\n\n")

    async def _send(self, response: web.StreamResponse, batch: FollowBatch) -> None:
        made = self._ids.made(batch.cursor)
        if batch.entries:
            pieces = [f"event: entries\nid: {made}\n"]
            before, last = "data: [", len(batch.entries) - 1
            async for at in one_by_one(range(len(batch.entries))):
                after = "]\n\n" if at == last else ",\n"
                pieces.append(f"{before}{to_json(entry_row(batch.entries[at]))}{after}")
                before = "data: "
            await send(response, "".join(pieces).encode())
        if batch.caught_up != self._caught_up:
            self._caught_up = batch.caught_up
            name = "caught-up" if batch.caught_up else "lagged"
            data = to_json({"staleness_ms": batch.staleness_ms})
            await send(response, f"event: {name}\nid: {made}\ndata: {data}\n\n".encode())
