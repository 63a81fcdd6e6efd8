"""The door: serve REST and server-sent events at the HTTP address, as a client of the cluster.

An asker shows a token as `Authorization: Bearer TOKEN`, and the door's client shows the same token
to the cluster. Without tokens in the cluster every asker may do everything, as at the port for
clients. Requests of web pages of other sites are refused: the door needs no cookie, answers no
question of a browser about other sites, and takes bodies only of types that such a page may not
send.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from ...client.client import AsyncClient
from ...client.json_text import to_json
from ...client.protocol.errors import LognodeError, Unauthorized
from ..access.access import OpenAccess
from ..access.http_guard import HttpGuard, token_of
from ..metrics import Metrics
from ..replicas.traces import Traces
from .admission import of_requests, of_streams
from .bodies import Bodies
from .clients import Clients
from .entry_routes import ENTRY_ROUTES
from .event_routes import EVENT_ROUTES
from .group_routes import GROUP_ROUTES
from .log_routes import LOG_ROUTES
from .looks import Looks
from .openapi import document
from .problems import problem, problem_of_bug, problem_of_http
from .report_routes import REPORT_ROUTES
from .request_ids import OPERATION, id_of
from .route import JSON_TYPE, Asked, Route, Routes
from .snapshot_routes import SNAPSHOT_ROUTES
from .status_groups import STATUS_GROUPS
from .status_routes import STATUS_ROUTES

DOCUMENT_PATH: Final = "/openapi.json"
PREFIX: Final = "/v1/"
LEFT: Final = 499
"""The status, in metrics alone, of a request whose asker left before the answer."""
TABLE: Final = (
    *LOG_ROUTES, *ENTRY_ROUTES, *EVENT_ROUTES, *SNAPSHOT_ROUTES, *GROUP_ROUTES, *STATUS_ROUTES,
    STATUS_GROUPS, *REPORT_ROUTES,
)  # fmt: skip
"""All operations over HTTP."""


class Door:
    """Serves the operations of `TABLE`. `requests_max` and `streams_max` bound what is under way.
    `make` and `most` are those of `Clients`. `version` is that of the program. `metrics` counts
    requests. `traces` are those of the node, if it exports traces."""

    def __init__(
        self,
        *,
        guard: HttpGuard,
        make: Callable[[str | None], AsyncClient],
        most: Callable[[], int],
        requests_max: int,
        streams_max: int,
        version: str,
        metrics: Metrics,
        traces: Traces | None = None,
    ) -> None:
        self._guard = guard
        self._clients = Clients(make, most)
        self._requests = of_requests(requests_max)
        self._streams = of_streams(streams_max)
        self._bodies = Bodies()
        self._looks = Looks()
        self._routes = Routes(TABLE)
        self._metrics = metrics
        self._traces = traces
        metrics.http_under_way.set_function(lambda: len(self._requests))
        metrics.http_streams.set_function(lambda: len(self._streams))
        self._document = to_json(document(TABLE, version))

    @property
    def paths(self) -> list[web.RouteDef]:
        """The paths of the door, for aiohttp. The door finds the operation by the bytes of the
        address: aiohttp decodes them as text."""
        rest = PREFIX + r"{rest:[\s\S]*}"
        return [web.get(DOCUMENT_PATH, self.serve), web.route("*", rest, self.serve)]

    @staticmethod
    def has(path: str) -> bool:
        """Return whether a path belongs to the door."""
        return path.startswith(PREFIX) or path == DOCUMENT_PATH

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request. Raises HTTPException, which `problem_of_http` answers."""
        began, route, status = time.monotonic(), None, LEFT
        try:
            _check_origin(request)
            if request.path == DOCUMENT_PATH:
                status = 200
                return web.Response(text=self._document, content_type=JSON_TYPE)
            route, parts = self._routes.find(request)
            request[OPERATION] = route.name
            answer = await self._serve(request, route, parts)
            status = answer.status
            return answer
        except LognodeError as error:
            answer = problem(error, id_of(request))
            status = answer.status
            return answer
        except web.HTTPException as refusal:
            status = refusal.status
            raise
        except Exception:
            status = 500
            raise
        finally:
            self._count(route, status, time.monotonic() - began)

    def _count(self, route: Route | None, status: int, took_s: float) -> None:
        """Count a request. Its labels are of the table: an address is of the asker's choice."""
        name = "?" if route is None else route.name
        self._metrics.http_requests.labels(name, str(status)).inc()
        if route is not None and not (route.streams or route.waits):
            self._metrics.http_request_seconds.observe(took_s)

    async def _serve(
        self, request: web.Request, route: Route, parts: dict[str, str]
    ) -> web.StreamResponse:
        access = await self._guard.access(request)
        token = None if isinstance(access, OpenAccess) else token_of(request)
        if token is None and not isinstance(access, OpenAccess):
            raise web.HTTPUnauthorized(
                text="a certificate alone cannot be passed on to the cluster; give a token as "
                "`Authorization: Bearer TOKEN` too (`lognode token create`)",
                headers={"WWW-Authenticate": "Bearer"},
            )
        bound = self._streams if route.streams or route.waits else self._requests
        with bound.admitted(access.principal.name), self._traced(request, route):
            given = route.read(parts, request)
            values, many = await self._bodies.read(request, route)
            async with self._clients.of(token, given.get("log")) as client:
                asked = Asked(request, client, given, values, many, self._looks)
                return await route.handler(asked)

    def _traced(self, request: web.Request, route: Route) -> AbstractContextManager[None]:
        """Return the span of a request, whose asker is known: strangers get no spans."""
        if self._traces is None or route.streams:
            return nullcontext()
        told = {"http.request.method": route.method, "http.route": route.path,
                "lognode.request_id": id_of(request)}  # fmt: skip
        parents = request.headers.getall("traceparent", [])
        return self._traces.served(parents, f"{route.method} {route.path}", told)

    async def close(self) -> None:
        """Close the clients; returns within about two seconds."""
        await self._clients.close()

    @staticmethod
    def refusal(request: web.Request, error: web.HTTPException) -> web.StreamResponse:
        """Return the answer for an error of the guard, of a route or of aiohttp."""
        return problem_of_http(error, id_of(request))

    @staticmethod
    def bug(request: web.Request) -> web.StreamResponse:
        """Return the answer for an error that nobody expects."""
        return problem_of_bug(id_of(request))


def _check_origin(request: web.Request) -> None:
    """Raise Unauthorized for the request of a web page of another site."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower()
    except ValueError:
        same = False
    if not same:
        raise Unauthorized(
            f"the request is of a web page of {origin[:200]!r}, and the door serves no pages of "
            "other sites; ask from a page of this address, or from a program"
        )
