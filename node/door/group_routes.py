"""Operations over HTTP on consumer groups, for the people who look after them: list, lag, parked
keys, retry and skip."""

import asyncio
from typing import Any, Final

from aiohttp import web

from ...client.group import AsyncGroup
from ...client.protocol.errors import LogNotFound
from ...client.protocol.kinds import INTEGER_MAX
from ...client.protocol.types import GroupInfo
from . import parameters
from .answers import rows_answer, small_answer
from .json_kinds import BYTES, BYTES_SCHEMA, TEXT, Field, Schema, integer, object_of
from .log_routes import listing
from .route import Asked, Route

Row = dict[str, Any]
_PAGE_MAX: Final = 1_000
_LOGS_A_PAGE: Final = 256
"""Logs that one page looks at: logs without groups cost requests too."""
_AT_A_TIME: Final = 16
_LOG: Final = parameters.text("log", "The name of the log; `/` in a name is `%2F`.", "path")
_GROUP: Final = parameters.text("group", "The name of the group.", "path")
_GROUP_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["log", "name", "id", "ordering", "max_deliveries", "lease_ms", "created_ms"],
    "properties": {
        "log": {"type": "string"},
        "name": {"type": "string"},
        "id": {"type": "integer"},
        "prefix": BYTES_SCHEMA,
        "patterns": {"type": "array", "items": BYTES_SCHEMA},
        "ordering": {"type": "string"},
        "max_deliveries": {"type": "integer"},
        "on_dead": {"type": "string"},
        "lease_ms": {"type": "integer"},
        "begin": {"type": "string"},
        "begin_ms": {"type": ["integer", "null"]},
        "waits": {"type": "boolean"},
        "created_ms": {"type": "integer"},
    },
}
_COUNTS: Final = ("entries", "bytes", "waiting", "in_flight", "parked", "consumers")
_LAG_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": [*_COUNTS, "oldest_ms", "begun"],
    "properties": {
        **{name: {"type": "integer"} for name in _COUNTS},
        "oldest_ms": {"type": ["integer", "null"]},
        "begun": {"type": "boolean"},
    },
}
_KEY_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["key", "position", "deliveries", "error"],
    "properties": {
        "key": BYTES_SCHEMA,
        "position": {"type": "integer"},
        "deliveries": {"type": "integer"},
        "parked": {"type": "boolean"},
        "error": {"type": "string"},
    },
}
_RETRIED: Final = object_of({"key": Field(BYTES, "The parked key.", required=True)})
_SKIPPED: Final = object_of(
    {
        "key": Field(BYTES, "The key.", required=True),
        "through": Field(
            integer(1, INTEGER_MAX),
            "Pass the entries up to this seq, inclusive; without it the next entry alone.",
        ),
        "why": Field(TEXT, "A reason, for the history of the group."),
    }
)


def _row(log: str, info: GroupInfo) -> Row:
    return {"log": log, **info._asdict(), "patterns": list(info.patterns)}


async def _list(asked: Asked) -> web.StreamResponse:
    """Answer with the groups of the next logs. `next` is the name of the last log that was looked
    at: all groups of a log are on one page."""
    given, rows = asked.given, await asked.client.logs()
    names = [given["log"]] if given["log"] is not None else [row["name"] for row in rows]
    names = [name for name in names if given["after"] is None or name > given["after"]]
    found: list[Row] = []
    seen = 0
    while seen < min(len(names), _LOGS_A_PAGE) and len(found) < given["limit"]:
        some = names[seen : seen + _AT_A_TIME]
        listed = await asyncio.gather(*(_of_log(asked, name) for name in some))
        for groups in listed:
            if len(found) >= given["limit"]:
                break
            found += groups
            seen += 1
    following = names[seen - 1] if 0 < seen < len(names) else None
    return await rows_answer(asked.request, "groups", found, {"next": following})


async def _of_log(asked: Asked, name: str) -> list[Row]:
    try:
        return [_row(name, info) for info in await asked.client.log(name).groups()]
    except LogNotFound:
        if asked.given["log"] is not None:
            raise
        return []  # the log was deleted since


def _group(asked: Asked) -> AsyncGroup:
    return asked.client.log(asked.given["log"]).group(asked.given["group"])


async def _lag(asked: Asked) -> web.StreamResponse:
    return small_answer((await _group(asked).lag())._asdict())


async def _parked(asked: Asked) -> web.StreamResponse:
    rows = await _group(asked).parked()
    limit = asked.given["limit"]
    return await rows_answer(
        asked.request, "keys", (row._asdict() for row in rows[:limit]), {"total": len(rows)}
    )


async def _retry(asked: Asked) -> web.StreamResponse:
    await _group(asked).retry(asked.values[0]["key"])
    return web.Response(status=204)


async def _skip(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    through = await _group(asked).skip(
        wanted["key"], wanted.get("through"), why=wanted.get("why", "")
    )
    return small_answer({"through": through})


_PARKED_SCHEMA: Final = listing("keys", _KEY_SCHEMA)
GROUP_ROUTES: Final = (
    Route(
        "GET", "/v1/status/groups", "listGroups",
        "Return the consumer groups of all logs, or of one log, page by page. A page has all "
        "groups of its logs, so it may have some more groups than `limit`, or none.", _list,
        listing("groups", _GROUP_SCHEMA, pages=True),
        (
            parameters.text("log", "Only the groups of this log."),
            parameters.text("after", "Go on behind this log: `next` of the last page."),
            parameters.number("limit", "The groups after which a page ends.", 1, _PAGE_MAX, 100),
        ),
    ),
    Route(
        "GET", "/v1/logs/{log}/groups/{group}/lag", "groupLag",
        "Count exactly what a consumer group has not done. The node reads these entries.", _lag,
        _LAG_SCHEMA, (_LOG, _GROUP),
    ),
    Route(
        "GET", "/v1/logs/{log}/groups/{group}/parked", "listParkedKeys",
        "Return the keys that wait for retry or skip, in order.", _parked,
        {
            **_PARKED_SCHEMA,
            "required": ["keys", "total"],
            "properties": {**_PARKED_SCHEMA["properties"], "total": {"type": "integer"}},
        },
        (_LOG, _GROUP, parameters.number("limit", "The most keys.", 1, _PAGE_MAX, 100)),
    ),
    Route(
        "POST", "/v1/logs/{log}/groups/{group}/retry", "retryParkedKey",
        "Let a parked key go on with the entry at which it stopped.", _retry, None,
        (_LOG, _GROUP), _RETRIED, status=204,
    ),
    Route(
        "POST", "/v1/logs/{log}/groups/{group}/skip", "skipEntries",
        "Pass entries of a key: no consumer of the group gets them. The answer has the last seq.",
        _skip,
        {
            "type": "object",
            "required": ["through"],
            "properties": {"through": {"type": "integer"}},
        },
        (_LOG, _GROUP), _SKIPPED,
    ),
)  # fmt: skip
