"""Operations over HTTP that show one node to people: storage, settings, connections."""

from typing import Any, Final

from aiohttp import web

from ...client.protocol.kinds import INTEGER_MAX
from ...client.protocol.limits import status_page_max
from ...client.protocol.node_reports import CONNECTIONS, SETTINGS, STORAGE
from . import parameters
from .answers import rows_answer
from .json_kinds import Schema
from .route import Asked, Handler, Route
from .status_routes import OFFSET, paged

_ROW: Final[Schema] = {"type": "object"}


def _handler(part: str, name: str) -> Handler:
    """Return the handler of a part, whose rows have this name in the answer."""

    async def show(asked: Asked) -> web.StreamResponse:
        given = asked.given
        first: int = given["offset"]
        page: dict[str, Any] = await asked.client.admin.node_report(
            given["node"], part, offset=first, limit=given["limit"]
        )
        following = first + len(page["rows"])
        more = {
            "node": page["node"],
            "facts": page["facts"],
            "total": page["total"],
            "next": following if page["rows"] and following < page["total"] else None,
        }
        return await rows_answer(asked.request, name, page["rows"], more)

    return show


def _schema(name: str) -> Schema:
    found = paged(name, _ROW)
    found["required"] += ["node", "facts"]
    found["properties"] |= {"node": {"type": "integer"}, "facts": {"type": "object"}}
    return found


_PARAMETERS: Final = (
    parameters.number("node", "The id of the node; without it the node that answers.", 1,
                      INTEGER_MAX),
    OFFSET,
    parameters.number("limit", "The most rows of the page.", 1, status_page_max, 100),
)  # fmt: skip
REPORT_ROUTES: Final = (
    Route(
        "GET", "/v1/status/storage", "getStorage",
        "Return the disk, the WAL and the replicas of a node.", _handler(STORAGE, "replicas"),
        _schema("replicas"), _PARAMETERS,
    ),
    Route(
        "GET", "/v1/status/settings", "getSettings",
        "Return the settings of a node and their sources: flag, environment, file or default.",
        _handler(SETTINGS, "settings"), _schema("settings"), _PARAMETERS,
    ),
    Route(
        "GET", "/v1/status/connections", "listConnections",
        "Return the connections of clients to a node, with their principals.",
        _handler(CONNECTIONS, "connections"), _schema("connections"), _PARAMETERS,
    ),
)  # fmt: skip
