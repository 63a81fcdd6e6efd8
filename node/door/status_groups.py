"""Operation of the console on the consumer groups of all logs."""

import asyncio
from typing import Any, Final

from aiohttp import web

from ...client.protocol.errors import LogNotFound
from . import parameters
from .answers import rows_answer
from .group_routes import GROUP_SCHEMA, group_row
from .json_kinds import Schema
from .log_routes import listing
from .route import Asked, Route

Row = dict[str, Any]
_PAGE_MAX: Final = 1_000
_LOGS_A_PAGE: Final = 256
"""Logs that one page looks at: logs without groups cost requests too."""
_AT_A_TIME: Final = 16
_SCHEMA: Final[Schema] = {
    **GROUP_SCHEMA,
    "required": ["log", *GROUP_SCHEMA["required"]],
    "properties": {"log": {"type": "string"}, **GROUP_SCHEMA["properties"]},
}


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
        found = await asked.client.log(name).groups()
        return [{"log": name, **group_row(info)} for info in found]
    except LogNotFound:
        if asked.given["log"] is not None:
            raise
        return []  # the log was deleted since


STATUS_GROUPS: Final = Route(
    "GET", "/v1/status/groups", "listAllGroups",
    "Return the consumer groups of all logs, or of one log, page by page. A page has all groups "
    "of its logs, so it may have some more groups than `limit`, or none.", _list,
    listing("groups", _SCHEMA, pages=True),
    (
        parameters.text("log", "Only the groups of this log."),
        parameters.text("after", "Go on behind this log: `next` of the last page."),
        parameters.number("limit", "The groups after which a page ends.", 1, _PAGE_MAX, 100),
    ),
)  # fmt: skip
