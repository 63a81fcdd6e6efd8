"""Serve HTTP for people and their tools: health, readiness, metrics, status, the door, the console.

Requests for the pages have no body, and connections are few and short (`http_guests.py`). Requests
to the door (`node/door/`) have bodies and may last. They leave room for the others.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from ...client.accepting.listening import Entrance
from ...client.accepting.server_handshake import handshake_timeout_s
from ...client.protocol.cluster import STATUS
from ...client.protocol.errors import LognodeError, Unauthorized, Unavailable
from ...client.protocol.principal import anonymous
from ..access.http_guard import Forbidden, Handler, HttpGuard
from ..door.bodies import BODY_BYTES_MAX
from ..door.door import LEFT, Door
from ..door.request_ids import id_of, is_begun, tell
from ..metrics import Metrics
from ..runtime.descriptors import SLACK
from .console_files import ConsoleFiles
from .http_guests import Closed, HttpGuests
from .http_log import HttpLog
from .http_status import MetricsPage, StatusPages, Visible
from .request_log import RequestLog

_KEEP_ALIVE_S = 15.0
_LINE_BYTES_MAX = 8_192
_HEADERS_MAX = 64
_READ_BYTES = 16 * 1024


class HttpServer:
    """Serves `/healthz`, `/readyz`, `/metrics`, `/status.json`, and the paths of the `door` and of
    the console.

    `not_ready` returns the reason why the node does not serve yet, or None. `on_refused` gets the
    principal, the address, the page and the error of each request that its asker may not make.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        metrics: Metrics,
        not_ready: Callable[[], str | None],
        status: Callable[[], Awaitable[dict[str, Any]]],
        connections_max: int,
        on_closed: Closed,
        guard: HttpGuard,
        visible: Visible,
        on_refused: Callable[[str, str, str, LognodeError], None],
        door: Door | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._not_ready = not_ready
        self._pages = StatusPages(status, visible)
        self._metrics = MetricsPage(metrics.exposition)
        self._guard = guard
        self._on_refused = on_refused
        self._door = door
        self._console = ConsoleFiles()
        self._runner: web.AppRunner | None = None
        self._connections_max = connections_max
        self._on_closed = on_closed
        self._entrance: Entrance | None = None
        self._guests: HttpGuests | None = None
        self._log = RequestLog()

    async def start(self) -> None:
        """Listen. Raises Unavailable when the address is not available."""
        app = web.Application(
            middlewares=[self._logged, self._watched], client_max_size=BODY_BYTES_MAX
        )
        app.on_response_prepare.append(tell)
        door = self._door
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._serve_metrics),
                web.get("/status.json", self._serve_status),
                *([] if door is None else [*door.paths, *self._console.paths]),
            ]
        )
        # An asker that leaves cancels its request. Otherwise, requests of closed connections would
        # wait for their pages, without a bound, ahead of everybody else.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=_KEEP_ALIVE_S,
            handler_cancellation=True,
            lingering_time=0.0, max_line_size=_LINE_BYTES_MAX, max_field_size=_LINE_BYTES_MAX,
            max_headers=_HEADERS_MAX, read_bufsize=_READ_BYTES, auto_decompress=False,
            logger=HttpLog(self._on_closed),
        )  # fmt: skip
        await self._runner.setup()
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner is not set up")
        # No aiohttp site, so that connections are counted from their accept to their close.
        self._guests = guests = HttpGuests(
            server, connections_max=self._connections_max, on_closed=self._on_closed,
            on_gone=lambda guest: entrance.gone(guest), on_end=lambda guest: entrance.shut(guest),
        )  # fmt: skip
        self._entrance = entrance = Entrance(
            guests.arrive, sockets_max=self._connections_max + SLACK,
            on_lack=lambda error: self._on_closed("lack", str(error)), tls=self._tls,
            handshake_s=handshake_timeout_s,
        )  # fmt: skip
        try:
            await entrance.listen(self._host, self._port)
        except OSError as error:
            await self._runner.cleanup()
            raise Unavailable(
                f"cannot listen on {self._host}:{self._port} for HTTP: "
                f"{error.strerror or error}; give another address with --http"
            ) from None

    async def stop(self) -> None:
        """Close the listener and open connections."""
        if self._door is not None:
            await self._door.close()  # streams end with an event that says so
        if self._entrance is not None:
            await self._entrance.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return 0 if self._guests is None else len(self._guests)

    @property
    def ended(self) -> int:
        """The number of connections that have ended since the start."""
        return 0 if self._entrance is None else self._entrance.ended

    @web.middleware
    async def _logged(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began_s = time.monotonic()
        try:
            answer = await handler(request)
        except web.HTTPException as refusal:
            self._log.answered(request, refusal.status, began_s)
            raise
        except asyncio.CancelledError:
            self._log.answered(request, LEFT, began_s)
            raise
        except Exception as error:
            self._log.failed(request, error)
            if is_begun(request):  # such an answer can only be cut off
                raise
            if self._door is not None and self._door.has(request.path):
                return self._door.bug(request)
            return web.Response(
                status=500,
                text="the node failed to make the page by a bug; the line of the node's log with "
                f"request id {id_of(request)} has the reason\n",
            )
        self._log.answered(request, answer.status, began_s)
        return answer

    @web.middleware
    async def _watched(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        door = self._door if self._door is not None and self._door.has(request.path) else None
        if door is None and request.body_exists:
            raise web.HTTPRequestEntityTooLarge(
                0, -1, text="the request has a body; leave the body out\n"
            )
        guests = self._guests
        if guests is None:
            raise web.HTTPServiceUnavailable
        guests.begun(request.protocol, bounded=door is not None)
        try:
            self._guard.check_host(request)
            return await handler(request)
        except web.HTTPException as refusal:
            if isinstance(refusal, web.HTTPUnauthorized | Forbidden):
                self._refused(request, refusal)
            if door is None:
                raise
            return door.refusal(request, refusal)
        finally:
            guests.served(request.protocol)

    def _refused(self, request: web.Request, refusal: web.HTTPException) -> None:
        guests = self._guests
        address = "?" if guests is None else guests.address(request.protocol)
        who = anonymous(address.rpartition(":")[0])
        if isinstance(refusal, Forbidden):
            who = refusal.principal
        error = Unauthorized((refusal.text or "").strip())
        self._on_refused(who.name, address, request.path, error)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._not_ready()
        if reason is None:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=reason + "\n")

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        await self._guard.check_everything(request)
        return web.Response(
            body=self._metrics.page(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _serve_status(self, request: web.Request) -> web.StreamResponse:
        access = await self._guard.access(request)
        try:
            access.authorise(STATUS, {})
        except Unauthorized as error:
            raise Forbidden(access.principal, error.message) from None
        return await self._pages.serve(request, access)
