"""Log requests over HTTP, by their ids.

At level DEBUG each request has a line. Requests that fail, with a status of 500 or above, have a
warning in ten seconds for each status: askers must not fill the log. A bug has a line with its
traceback. No line has an address of the door, since addresses have keys.
"""

import logging
import time
from typing import Any, Final

from aiohttp import web

from ..door.request_ids import OPERATION, id_of

_LINE_EVERY_S: Final = 10.0
_FAILED: Final = 500
_METHOD_CHARS: Final = 16
_PAGES: Final = frozenset({"/healthz", "/readyz", "/metrics", "/status.json", "/openapi.json"})
log = logging.getLogger("lognode.http")


class RequestLog:
    """Call `answered` for each request, or `failed`."""

    def __init__(self) -> None:
        self._untold: dict[int, int] = {}
        """Failed requests by status since the last line."""
        self._silent_until: dict[int, float] = {}

    def answered(self, request: web.Request, status: int, began_s: float) -> None:
        """Note the end of a request, which began at that time of the monotonic clock."""
        count = self._count(request, status)
        level = logging.WARNING if count else logging.DEBUG
        if not log.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "request_id": id_of(request),
            "method": request.method[:_METHOD_CHARS],
            "operation": _operation(request),
            "status": status,
            "took_ms": round(1000 * (time.monotonic() - began_s), 1),
        }
        if count:
            fields["count"] = count
        log.log(level, "request over HTTP", extra={"fields": fields})

    def _count(self, request: web.Request, status: int) -> int:
        """Return how many failures with the status the line of this request stands for, or 0."""
        if status < _FAILED or request.path == "/readyz":
            return 0
        count = self._untold[status] = self._untold.get(status, 0) + 1
        if time.monotonic() < self._silent_until.get(status, 0.0):
            return 0
        self._silent_until[status] = time.monotonic() + _LINE_EVERY_S
        self._untold[status] = 0
        return count

    def failed(self, request: web.Request, error: Exception) -> None:
        """Note a bug."""
        log.error(
            "request over HTTP failed", exc_info=error,
            extra={"fields": {"request_id": id_of(request), "operation": _operation(request)}},
        )  # fmt: skip


def _operation(request: web.Request) -> str:
    known: str | None = request.get(OPERATION)
    if known is None:
        known = request.path if request.path in _PAGES else "?"
    return known
