"""HTTP for people and their tools: health, readiness, metrics, status."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web

from ..client.acceptor import handshake_timeout_s
from ..client.access import Access
from ..client.errors import Unauthorized, Unavailable
from ..client.json_text import to_json
from ..client.listening import end_listening
from ..client.protocol import Operation
from ..client.protocol.cluster import STATUS
from .http_guard import Handler, HttpGuard
from .metrics import Metrics
from .slices import in_slices


class HttpServer:
    """Serves `/healthz`, `/readyz`, `/metrics`, `/status.json`.

    `not_ready` returns the reason why the node does not serve yet, or None.
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
        guard: HttpGuard,
        visible: Callable[[Operation, Access, dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._metrics = metrics
        self._not_ready = not_ready
        self._status = status
        self._guard = guard
        self._visible = visible
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises Unavailable when the address cannot be had."""
        app = web.Application(middlewares=[self._checked])
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._serve_metrics),
                web.get("/status.json", self._serve_status),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(
                _factory(self._runner), self._host, self._port, ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else handshake_timeout_s,
            )  # fmt: skip
        except OSError as error:
            await self._runner.cleanup()
            raise Unavailable(
                f"cannot listen on {self._host}:{self._port} for HTTP: "
                f"{error.strerror or error}; give another address with --http"
            ) from None

    async def stop(self) -> None:
        """Close the listener and open connections."""
        if self._listening is not None:
            await end_listening(self._listening)
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._guard.check_host(request)
        return await handler(request)

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
            body=self._metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _serve_status(self, request: web.Request) -> web.Response:
        access = await self._guard.access(request)
        try:
            access.authorise(STATUS, {})
        except Unauthorized as error:
            raise web.HTTPForbidden(text=error.message + "\n") from None
        status = self._visible(STATUS, access, await self._status())
        pieces = await in_slices(_pieces(status))
        return web.Response(text="".join(pieces), content_type="application/json")


def _factory(runner: web.AppRunner) -> Callable[[], asyncio.BaseProtocol]:
    """Makes the protocol of a connection. Not a site of aiohttp, so that the end of listening is
    this node's own."""
    if runner.server is None:
        raise RuntimeError("a runner that is not set up")
    return runner.server


def _pieces(status: dict[str, Any]) -> Iterator[str]:
    """The JSON of it, a row at a time."""
    between = "{"
    for name, part in status.items():
        yield f"{between}{to_json(name)}: "
        between = ", "
        if not isinstance(part, list):
            yield to_json(part)
            continue
        for at, row in enumerate(part):
            yield ("[" if at == 0 else ", ") + to_json(row)
        yield "]" if part else "[]"
    yield "}\n"
