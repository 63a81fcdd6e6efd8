"""The pages `/status.json` and `/metrics`, which take only a bounded part of the node's time.

The page of metrics is the same for everybody, so that one page serves many askers for a moment.

The status is made for one asker at a time. It describes all ranges, and an asker with the right may
request it as often as connections allow. So its cost is bounded: the node makes the pages one after
another, and rests three times as long as it worked. Pages that are made and not yet read have a
bound in bytes and in time.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from aiohttp import web

from ...client.accepting.access import Access
from ...client.json_text import to_json
from ...client.protocol import Operation, limits
from ...client.protocol.cluster import STATUS
from ..runtime.slices import in_slices

_REST: Final = 3
"""How long the node rests after a page, in multiples of the time that the page took."""
_UNREAD_BYTES_MAX: Final = 16 * limits.MIB
_READ_S: Final = 30.0
_PIECE_BYTES: Final = 64 * limits.KIB

_METRICS_SHARE: Final = 0.05
"""The share of the time that making pages of metrics takes in the long run."""
_METRICS_BURST_S: Final = 0.1
"""How much making may come at once, so that an occasional asker always gets a new page."""
_METRICS_KEPT_S: Final = 1.0
"""The largest age of a page of metrics."""

Status = dict[str, Any]
Visible = Callable[[Operation, Access, Status], Status]


class MetricsPage:
    """Keeps a page of metrics. `make` returns the page as it is now."""

    def __init__(
        self, make: Callable[[], bytes], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._page = b""
        self._made_at = self._looked_at = -math.inf
        self._spent_s = 0.0
        """The used part of the burst: making a page adds to it, and time reduces it."""

    def page(self) -> bytes:
        """Return the page: at most a second old, and new while few pages are requested."""
        now = self._clock()
        self._spent_s = max(0.0, self._spent_s - _METRICS_SHARE * (now - self._looked_at))
        self._looked_at = now
        if self._spent_s < _METRICS_BURST_S or now - self._made_at > _METRICS_KEPT_S:
            self._page, self._made_at = self._make(), now
            self._spent_s += self._clock() - now
        return self._page


class StatusPages:
    """Serves the status. `status` returns everything; `visible` keeps what the asker may see."""

    def __init__(self, status: Callable[[], Awaitable[Status]], visible: Visible) -> None:
        self._status = status
        self._visible = visible
        self._turn = asyncio.Lock()
        self._not_before = 0.0
        self._unread_bytes = 0

    async def serve(self, request: web.Request, access: Access) -> web.StreamResponse:
        """Answer with the page. Raises HTTPServiceUnavailable while too much is unread."""
        async with self._turn:
            if self._unread_bytes > _UNREAD_BYTES_MAX:
                raise web.HTTPServiceUnavailable(
                    text="the node still sends too many pages; ask again in a second\n",
                    headers={"Retry-After": "1"},
                )
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            began = time.monotonic()
            try:
                body = await self._made(access)
            finally:  # also if the asker has left meanwhile, because it may ask again
                self._not_before = time.monotonic() + _REST * (time.monotonic() - began)
        self._unread_bytes += len(body)
        try:
            return await _sent(request, body)
        finally:
            self._unread_bytes -= len(body)

    async def _made(self, access: Access) -> bytes:
        told = await self._status()
        return "".join(await in_slices(self._pieces(told, access))).encode()

    def _pieces(self, status: Status, access: Access) -> Iterator[str]:
        """Yield the JSON text of the status, a row at a time."""
        between = "{"
        for name, part in status.items():
            yield f"{between}{to_json(name)}: "
            between = ", "
            if not isinstance(part, list):
                yield to_json(part)
                continue
            comma = "["
            for row in part:
                for shown in self._visible(STATUS, access, {name: [row]})[name]:
                    yield comma + to_json(shown)
                    comma = ", "
            yield "]" if comma == ", " else "[]"
        yield "}\n"


async def _sent(request: web.Request, body: bytes) -> web.StreamResponse:
    """Send the page piece by piece, at the pace of the reader.

    A reader that takes longer than half a minute in all loses the connection. A reader that leaves
    before the end causes no error: nobody would receive it."""
    response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
    response.content_length = len(body)
    try:
        async with asyncio.timeout(_READ_S):
            await response.prepare(request)
            for at in range(0, len(body), _PIECE_BYTES):
                await response.write(body[at : at + _PIECE_BYTES])
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        pass
    return response
