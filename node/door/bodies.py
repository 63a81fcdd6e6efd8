"""Read the bodies of requests: their bytes are bounded in all, and no text holds the loop for long.

A JSON text is decoded in one step. The number of its parts bounds the time of this step. A body of
many values is NDJSON, of which each line is decoded in a step of its own, or a JSON array.
"""

import asyncio
import contextlib
import json
from typing import Any, Final, NoReturn

from aiohttp import web

from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument, LimitExceeded, Overloaded
from ..runtime.slices import one_by_one
from .route import JSON_TYPE, NDJSON_TYPE, Route

BODY_BYTES_MAX: Final = 2 * limits.MIB
"""Enough for the largest value in base64. Each step of reading so many bytes takes 4 ms at most."""
VALUES_MAX: Final = 1_000
"""Values of one body: entries of one request. The SDK is for more."""
_BODIES_BYTES_MAX: Final = 64 * limits.MIB
_BODY_S: Final = 30.0
"""A body arrives within this time."""
_PASSED_OVER_MAX: Final = 16 * limits.MIB
_PASSED_OVER_S: Final = 5.0
_PARTS_MAX: Final = 65_536
"""Commas, brackets and backslashes of one JSON text: decoding so many takes 4 ms."""
_PARTS: Final = ",[{\\"


class Bodies:
    """Reads the bodies of the requests of a node."""

    def __init__(self) -> None:
        self._bytes = 0
        """Bytes that the bodies being read may have together."""

    async def read(self, request: web.Request, route: Route) -> tuple[list[Any], bool]:
        """Return the JSON values of a body, and whether the body may hold several.

        Raises InvalidArgument, LimitExceeded, Overloaded, HTTPUnsupportedMediaType and
        HTTPRequestEntityTooLarge.
        """
        if route.body is None:
            if request.body_exists:
                raise InvalidArgument(f"{route.name} has no body; leave the body out")
            return [], False
        is_lines = _is_lines(request, route)
        wanted = request.content_length
        if wanted is None:
            wanted = BODY_BYTES_MAX
        if wanted > BODY_BYTES_MAX:
            if wanted <= _PASSED_OVER_MAX:
                await _pass_over(request)
            raise web.HTTPRequestEntityTooLarge(
                BODY_BYTES_MAX, wanted,
                text=f"the body has {wanted} bytes; the limit is {BODY_BYTES_MAX}. Send less in "
                "one request",
            )  # fmt: skip
        if self._bytes + wanted > _BODIES_BYTES_MAX:
            raise Overloaded("the node reads too many bodies; come back later", retry_after=1)
        self._bytes += wanted
        try:
            body = await _received(request)
            await asyncio.sleep(0)
            text = _decoded(body)
            await asyncio.sleep(0)
            return await _values(text, route, is_lines=is_lines)
        finally:
            self._bytes -= wanted


def _is_lines(request: web.Request, route: Route) -> bool:
    """Return whether the body is NDJSON. Raises HTTPUnsupportedMediaType.

    A web page of another site can send a body without asking, but not with one of these types.
    """
    allowed = (JSON_TYPE, NDJSON_TYPE) if route.many else (JSON_TYPE,)
    given = request.content_type if "Content-Type" in request.headers else "nothing"
    charset = (request.charset or "utf-8").lower()
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if given not in allowed or charset != "utf-8" or encoding != "identity":
        raise web.HTTPUnsupportedMediaType(
            text=f"the body is {given[:100]!r}; send Content-Type {' or '.join(allowed)}, in "
            "UTF-8, without Content-Encoding"
        )
    return given == NDJSON_TYPE


async def _received(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError:
        # The rest of the body may still come: nothing else can be read from this connection.
        if request.transport is not None:
            request.transport.abort()
        raise InvalidArgument(f"the body did not arrive in {_BODY_S:g} s") from None
    except web.HTTPRequestEntityTooLarge:
        await _pass_over(request)
        raise web.HTTPRequestEntityTooLarge(
            BODY_BYTES_MAX, -1,
            text=f"the body has more than {BODY_BYTES_MAX} bytes, the limit. Send less in one "
            "request",
        ) from None  # fmt: skip
    except web.RequestPayloadError:
        raise InvalidArgument("the body is cut off or malformed; send the body again") from None


async def _pass_over(request: web.Request) -> None:
    """Read the rest of a body that is too large and forget it, so that its sender reads the answer:
    a sender that is cut off while it sends sees no answer. An endless body is cut off."""
    size = 0
    with contextlib.suppress(TimeoutError, web.RequestPayloadError):
        async with asyncio.timeout(_PASSED_OVER_S):
            while size < _PASSED_OVER_MAX and (data := await request.content.readany()):
                size += len(data)


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(
            "the body is not UTF-8; encode the text as UTF-8, and other bytes as base64"
        ) from None


async def _values(text: str, route: Route, *, is_lines: bool) -> tuple[list[Any], bool]:
    assert route.body is not None
    if is_lines:
        lines = text.split("\n", VALUES_MAX + 1)
        _check_count(len(lines) - 1)
        found = []
        async for at in one_by_one(range(len(lines))):
            if lines[at].strip():
                value = _parsed(lines[at], f"line {at + 1}")
                found.append(route.body.take(value, f"line {at + 1}"))
        return found, True
    value = _parsed(text, "the body")
    await asyncio.sleep(0)
    if not route.many or type(value) is not list:
        return [route.body.take(value, "the body")], False
    _check_count(len(value))
    return [
        route.body.take(each, f"value {at}") async for at, each in one_by_one(enumerate(value, 1))
    ], True


def _check_count(count: int) -> None:
    if count > VALUES_MAX:
        raise LimitExceeded(
            f"the body has more than {VALUES_MAX} values; send several requests",
            limit="request_values_max", value=count, allowed=VALUES_MAX,
        )  # fmt: skip


def _parsed(text: str, what: str) -> Any:
    parts = sum(map(text.count, _PARTS))
    if parts > _PARTS_MAX:
        raise LimitExceeded(
            f"{what} has {parts} commas, brackets and backslashes; the limit is {_PARTS_MAX}. "
            "Send such values as base64, and many entries as NDJSON",
            limit="json_parts_max", value=parts, allowed=_PARTS_MAX,
        )  # fmt: skip
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deeply; send plain objects") from None
    except ValueError as error:
        raise InvalidArgument(f"{what} is not JSON: {str(error)[:200]}") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
