"""Errors as `application/problem+json` (RFC 9457), with the codes of the SDK's errors."""

import math
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from ...client.json_text import printable, to_json
from ...client.protocol.errors import (
    Conflict,
    CorruptData,
    InvalidArgument,
    LognodeError,
    NotFound,
    Overloaded,
    PartialFailure,
    ProtocolError,
    Routing,
    Timeout,
    Unauthorized,
    Unavailable,
    Unsupported,
)

PROBLEM_TYPE: Final = "application/problem+json"
_RETRY_AFTER_S: Final = 1
_STATUS: Final[Mapping[type[LognodeError], int]] = {
    InvalidArgument: 400,
    NotFound: 404,
    Conflict: 409,
    Routing: 503,
    Overloaded: 503,
    Unavailable: 503,
    Timeout: 504,
    CorruptData: 500,
    Unauthorized: 403,
    Unsupported: 501,
    ProtocolError: 502,
    LognodeError: 500,
}
"""The status of each error, and of its subclasses."""
_OF_HTTP: Final = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHORIZED", 403: "UNAUTHORIZED", 404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED", 413: "LIMIT_EXCEEDED", 415: "UNSUPPORTED_MEDIA_TYPE",
    421: "MISDIRECTED", 503: "UNAVAILABLE",
}  # fmt: skip
"""The code of an error that only HTTP knows."""
STATUSES: Final = tuple(sorted({*_STATUS.values(), *_OF_HTTP, 429}))
"""Every status that a problem may have."""
_FIELD_CHARS_MAX: Final = 4_096


def status_of(error: LognodeError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, PartialFailure):
        found = [each for each in error.fields.get("errors", ()) if each is not None]
        return max(map(status_of, found), default=500)
    if isinstance(error, Overloaded) and error.fields.get("quota"):
        return 429
    return next(_STATUS[each] for each in type(error).__mro__ if each in _STATUS)


def problem(error: LognodeError, request_id: str) -> web.Response:
    """Return the answer for an error of a request with that id."""
    status = status_of(error)
    headers = {}
    if status in (429, 503):
        after = error.fields.get("retry_after")
        if not isinstance(after, int | float) or not 0 < after < 1e6:
            after = _RETRY_AFTER_S
        headers["Retry-After"] = str(math.ceil(after))
    return _answer(status, told(error, request_id), headers)


def told(error: LognodeError, request_id: str) -> dict[str, Any]:
    """Return the problem of an error, for JSON."""
    body = _body(status_of(error), error.code, error.message, request_id) | {
        "outcome": error.outcome, "retryable": error.retryable,
    }  # fmt: skip
    fields = {name: _plain(value) for name, value in error.fields.items()}
    return body | ({"fields": fields} if fields else {})


def problem_of_bug(request_id: str) -> web.Response:
    """Return the answer for an error that nobody expects."""
    error = LognodeError(
        "the node failed to serve the request by a bug; the line of the node's log with this "
        "request id has the reason. Report the line",
        outcome="unknown",
    )
    return problem(error, request_id)


def problem_of_http(refusal: web.HTTPException, request_id: str) -> web.Response:
    """Return the answer for an error of aiohttp or of the guard. Nothing was done."""
    code = _OF_HTTP.get(refusal.status, "ERROR")
    body = _body(refusal.status, code, (refusal.text or refusal.reason).strip(), request_id)
    kept = {
        name: refusal.headers[name]
        for name in ("Allow", "Retry-After", "WWW-Authenticate")
        if name in refusal.headers
    }
    body |= {"outcome": "not_applied", "retryable": refusal.status == 503}
    return _answer(refusal.status, body, kept)


def _body(status: int, code: str, detail: str, request_id: str) -> dict[str, Any]:
    title = code.replace("_", " ").capitalize()
    return {
        "type": f"urn:lognode:error:{code}", "title": title, "status": status, "code": code,
        "detail": detail, "request_id": request_id,
    }  # fmt: skip


def _answer(status: int, body: dict[str, Any], headers: Mapping[str, str]) -> web.Response:
    return web.Response(
        status=status, text=to_json(body) + "\n", content_type=PROBLEM_TYPE, headers=headers
    )


def _plain(value: Any) -> Any:
    """Return a field of an error in a form that JSON has."""
    if isinstance(value, LognodeError):
        return {"code": value.code, "detail": value.message, "outcome": value.outcome}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, bytes):
        return printable(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or type(value) in (bool, int, str):
        return value
    return str(value)[:_FIELD_CHARS_MAX]


PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "request_id", "outcome", "retryable"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "The code of the error, as in the SDK."},
        "detail": {"type": "string", "description": "What was given, what is allowed, what to do."},
        "outcome": {
            "enum": ["not_applied", "applied", "unknown"],
            "description": "Whether the change happened.",
        },
        "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
        "request_id": {
            "type": "string",
            "description": "The id of the request, as in `X-Request-Id` and in the node's log.",
        },
        "fields": {"type": "object", "description": "Values of the error, such as a limit."},
    },
}
