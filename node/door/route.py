"""The table of operations over HTTP: routes and the OpenAPI document are made from its rows."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aiohttp import web

from ...client.client import AsyncClient
from ...client.protocol.errors import InvalidArgument
from .json_kinds import Kind, Schema
from .looks import Looks
from .parameters import Parameter, decoded_bytes, read_query

JSON_TYPE: Final = "application/json"
NDJSON_TYPE: Final = "application/x-ndjson"
EVENTS_TYPE: Final = "text/event-stream"


class Asked(NamedTuple):
    """A request whose parameters are checked. `client` is of the asker's token. `values` has the
    JSON values of the body, and `many` says whether the body may hold several. `looks` gets
    statuses of the cluster."""

    request: web.Request
    client: AsyncClient
    given: Mapping[str, Any]
    values: list[Any]
    many: bool
    looks: Looks

    @property
    def wants_lines(self) -> bool:
        """Whether the asker wants NDJSON."""
        return NDJSON_TYPE in self.request.headers.get("Accept", "")


Handler = Callable[[Asked], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """An operation over HTTP.

    `answer` is the schema of the answer, None for an answer without a body. `body` is the kind of
    a JSON value in the request's body; `many`: the body may hold several values. `streams`: the
    answer has no end.
    """

    method: str
    path: str
    name: str
    about: str
    handler: Handler
    answer: Schema | None
    parameters: tuple[Parameter, ...] = ()
    body: Kind | None = None
    many: bool = False
    status: int = 200
    lines: bool = False
    """Whether the answer may be NDJSON."""
    streams: bool = False
    waits: bool = False
    """Whether the request may wait for something to happen, as a stream does."""
    segments: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.path.split("/")))

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Return the parts of a path by parameter, or None if another route has the path."""
        if len(segments) != len(self.segments):
            return None
        found = {}
        for own, given in zip(self.segments, segments, strict=True):
            if own.startswith("{"):
                found[own[1:-1]] = given
            elif own != given:
                return None
        return found

    def read(self, parts: Mapping[str, str], request: web.Request) -> dict[str, Any]:
        """Return the parameters of a request. Raises InvalidArgument."""
        query = read_query(request.rel_url.raw_query_string)
        unknown = query.keys() - {each.name for each in self.parameters if each.where == "query"}
        if unknown:
            raise InvalidArgument(
                f"the operation has no parameter {min(unknown)!r}; leave it out", what=min(unknown)
            )
        found: dict[str, Any] = {}
        for each in self.parameters:
            if each.where == "path":
                given = [decoded_bytes(parts[each.name])]
            elif each.where == "header":
                header = request.headers.get(each.name)
                given = [] if header is None else [header.encode("utf-8", "surrogateescape")]
            else:
                given = query.get(each.name, [])
            found[each.name] = _value(each, given)
        return found


def _value(parameter: Parameter, given: list[bytes]) -> Any:
    name = parameter.name
    if parameter.repeated:
        return [parameter.read(value, name) for value in given]
    if len(given) > 1:
        raise InvalidArgument(f"{name} is given {len(given)} times; give it once", what=name)
    if not given:
        return parameter.default
    if parameter.where == "path" and not given[0]:
        raise InvalidArgument(f"{name} in the path is empty; give at least one byte", what=name)
    return parameter.read(given[0], name)


class Routes:
    """Finds the operation of a request."""

    def __init__(self, table: tuple[Route, ...]) -> None:
        self.table = table

    def find(self, request: web.Request) -> tuple[Route, dict[str, str]]:
        """Return the operation and the parts of the path. Raises HTTPNotFound and
        HTTPMethodNotAllowed."""
        segments = request.rel_url.raw_path.split("/")
        allowed = set()
        for route in self.table:
            parts = route.match(segments)
            if parts is None:
                continue
            if route.method == request.method:
                return route, parts
            allowed.add(route.method)
        if allowed:
            raise web.HTTPMethodNotAllowed(
                request.method, allowed,
                text=f"the path has no {request.method[:20]}; use {' or '.join(sorted(allowed))}",
            )  # fmt: skip
        raise web.HTTPNotFound(
            text="no operation has this path; /openapi.json lists all operations"
        )
