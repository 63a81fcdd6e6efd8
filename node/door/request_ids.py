"""The id of a request over HTTP: of its asker, or made here.

The answer has the id in `X-Request-Id`, a problem also as `request_id`, and the lines of the node's
log about the request have the id. An id is what an asker says, so its length and its characters are
bounded.
"""

import re
import secrets
from typing import Final

from aiohttp import web

HEADER: Final = "X-Request-Id"
OPERATION: Final = web.RequestKey("operation", str)
"""Where a request has the name of its operation, once that is known."""
_ID: Final = web.RequestKey("request_id", str)
_BEGUN: Final = web.RequestKey("begun", bool)
_ACCEPTED: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_BYTES: Final = 8


def id_of(request: web.Request) -> str:
    """Return the id of a request: the same at each call."""
    known: str | None = request.get(_ID)
    if known is None:
        given = request.headers.get(HEADER, "")
        known = given if _ACCEPTED.fullmatch(given) else secrets.token_hex(_BYTES)
        request[_ID] = known
    return known


async def tell(request: web.Request, answer: web.StreamResponse) -> None:
    """Put the id into the head of an answer."""
    answer.headers.update({HEADER: id_of(request)})
    request[_BEGUN] = True


def is_begun(request: web.Request) -> bool:
    """Whether an answer to the request has begun."""
    return _BEGUN in request
