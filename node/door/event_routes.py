"""The operation over HTTP that follows keys: server-sent events."""

from typing import Any, Final

from aiohttp import web

from ...client.protocol.errors import InvalidArgument
from . import parameters
from .event_ids import EventIds
from .events import EventStream
from .parameters import Parameter
from .route import Asked, Route

_KEYS_MAX: Final = 100


async def _follow(asked: Asked) -> web.StreamResponse:
    given = asked.given
    keys, patterns = sorted(set(given["key"])), sorted(set(given["pattern"]))
    if len(keys) > _KEYS_MAX:
        raise InvalidArgument(
            f"{len(keys)} keys are given; the limit is {_KEYS_MAX}. Follow a prefix or a pattern, "
            "or open several streams",
            what="key",
        )
    log = asked.client.log(given["log"])
    log_id = int((await log.describe())["id"])
    ids = EventIds(log_id, keys, (given["prefix"], patterns))
    start: Any = given["from"]
    last = given["Last-Event-ID"] or given["last-event-id"]
    if last:
        start = ids.read(last)
    feed = log.follow(
        keys=keys or None, prefix=given["prefix"], pattern=patterns or None, start=start
    )
    async with feed:
        ids.made(feed.cursor)  # an error is an answer of its own before the stream begins
        return await EventStream(asked.request, feed, ids).run()


EVENT_ROUTES: Final = (
    Route(
        "GET", "/v1/logs/{log}/events", "follow",
        "Follow keys as server-sent events. `entries` has a list of entries; `caught-up` says that "
        "the stream has everything that was appended, and `lagged` that it no longer has; "
        "`problem` is the last event. The id of an event is where another stream continues.",
        _follow, None,
        (
            parameters.text("log", "The name of the log; `/` in a name is `%2F`.", "path"),
            parameters.raw("key", "A key to follow; give several keys.", repeated=True),
            parameters.raw("prefix", "Follow the keys that begin with these bytes."),
            parameters.raw("pattern", "Follow the keys that match one of these.", repeated=True),
            parameters.START._replace(
                schema={"type": "string", "default": "latest"}, default="latest"
            ),
            Parameter(
                "Last-Event-ID", "header", "The id of the last event of an earlier stream.",
                {"type": "string"}, parameters.read_text,
            ),
            parameters.text("last-event-id", "The same, for readers that cannot set the header."),
        ),
        streams=True,
    ),
)  # fmt: skip
