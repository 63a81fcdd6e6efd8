"""Operations over HTTP on logs and on the cluster: list, create, delete; ranges, nodes, health."""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from ...client.protocol import limits
from ...client.protocol.kinds import INTEGER_MAX
from . import parameters
from .answers import rows_answer, small_answer
from .json_kinds import (
    BYTES,
    BYTES_SCHEMA,
    FLAG,
    TEXT,
    Field,
    Schema,
    integer,
    list_of,
    nullable,
    object_of,
)
from .route import Asked, Route

_PAGE_MAX: Final = 1_000
_LOG: Final = parameters.text("log", "The name of the log; `/` in a name is `%2F`.", "path")
_NUMBER: Final = nullable(integer(0, INTEGER_MAX))
_CREATED: Final = object_of(
    {
        "name": Field(TEXT, "The name of the log.", required=True),
        "ranges": Field(
            integer(1, limits.ranges_per_log_max), "The number of even ranges to begin with."
        ),
        "split_at": Field(
            list_of(BYTES, limits.ranges_per_log_max - 1), "The keys at which ranges begin."
        ),
        "replicas": Field(integer(1, limits.replicas_max), "Replicas of each range; 3 by default."),
        "retention_ms": Field(_NUMBER, "Entries older than this may be removed."),
        "retention_bytes": Field(_NUMBER, "Bytes of newest segments that each range keeps."),
        "local_retention_bytes": Field(
            _NUMBER, "Bytes of newest segments of each range on the disk of each node with a tier."
        ),
        "cleanup": Field(TEXT, "`delete`, `compact` or `compact,delete`."),
        "delete_retention_ms": Field(_NUMBER, "How long tombstones stay in a compacted log."),
        "hierarchy": Field(BYTES, "The separator of the levels of keys, for patterns."),
        "kafka_partitions": Field(
            integer(1, limits.kafka_partitions_max), "The partitions that Kafka clients see."
        ),
        "exist_ok": Field(FLAG, "Whether a log of this name may exist."),
    }
)
_LOG_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["id", "name", "policy"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "policy": {"type": "object"},
        "hierarchy": {"oneOf": [BYTES_SCHEMA, {"type": "null"}]},
    },
}
RANGE_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["id", "log", "start", "end", "generation", "members", "leader", "state"],
    "properties": {
        "id": {"type": "integer"},
        "log": {"type": "string"},
        "start": BYTES_SCHEMA,
        "end": {"oneOf": [BYTES_SCHEMA, {"type": "null"}]},
        "generation": {"type": "integer"},
        "members": {"type": "array", "items": {"type": "integer"}},
        "leader": {"type": ["integer", "null"]},
        "state": {"type": "string"},
    },
}
NODE_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["id", "address"],
    "properties": {"id": {"type": "integer"}, "address": {"type": "string"}},
}


def listing(name: str, row: Schema, *, pages: bool = False, key: Schema | None = None) -> Schema:
    """Return the schema of an answer with rows; `pages`: and with where the next page begins."""
    found: Schema = {
        "type": "object",
        "required": [name],
        "properties": {name: {"type": "array", "items": row}},
    }
    if pages:
        found["required"].append("next")
        found["properties"]["next"] = {"oneOf": [key or {"type": "string"}, {"type": "null"}]}
    return found


def log_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a log for JSON."""
    return {name: row.get(name) for name in ("id", "name", "policy", "hierarchy")}


async def _list(asked: Asked) -> web.StreamResponse:
    rows = await asked.client.logs()
    after, limit = asked.given["after"] or "", asked.given["limit"]
    found = [row for row in rows if row["name"] > after][: limit + 1]
    more = found[limit - 1]["name"] if len(found) > limit else None
    return await rows_answer(asked.request, "logs", map(log_row, found[:limit]), {"next": more})


async def _create(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    if wanted.get("split_at") == []:
        del wanted["split_at"]
    log = await asked.client.create_log(wanted.pop("name"), **wanted)
    return small_answer(log_row(await log.describe()), 201)


async def _describe(asked: Asked) -> web.StreamResponse:
    return small_answer(log_row(await asked.client.log(asked.given["log"]).describe()))


async def _delete(asked: Asked) -> web.StreamResponse:
    await asked.client.delete_log(asked.given["log"])
    return web.Response(status=204)


async def _ranges(asked: Asked) -> web.StreamResponse:
    rows: Sequence[Any] = await asked.client.admin.ranges(asked.client.log(asked.given["log"]).name)
    return await rows_answer(asked.request, "ranges", rows)


async def _nodes(asked: Asked) -> web.StreamResponse:
    return await rows_answer(asked.request, "nodes", await asked.client.admin.nodes())


async def _health(asked: Asked) -> web.StreamResponse:
    found = await asked.client.health()
    step = found.get("next") or None
    return small_answer({"ok": found["ok"], "reasons": found["reasons"], "next": step})


LOG_ROUTES: Final = (
    Route(
        "GET", "/v1/logs", "listLogs", "Return the logs by name, page by page.", _list,
        listing("logs", _LOG_SCHEMA, pages=True),
        (
            parameters.text("after", "Return the logs after this name: `next` of the last page."),
            parameters.number("limit", "The most logs of the page.", 1, _PAGE_MAX, 100),
        ),
    ),
    Route(
        "POST", "/v1/logs", "createLog", "Create a log.", _create, _LOG_SCHEMA, body=_CREATED,
        status=201,
    ),
    Route(
        "GET", "/v1/logs/{log}", "describeLog", "Return a log.", _describe, _LOG_SCHEMA, (_LOG,)
    ),
    Route(
        "DELETE", "/v1/logs/{log}", "deleteLog", "Delete a log and all its entries.", _delete,
        None, (_LOG,), status=204,
    ),
    Route(
        "GET", "/v1/logs/{log}/ranges", "listRanges", "Return the ranges of a log, by key.",
        _ranges, listing("ranges", RANGE_SCHEMA), (_LOG,),
    ),
    Route(
        "GET", "/v1/nodes", "listNodes", "Return the nodes of the cluster.", _nodes,
        listing("nodes", NODE_SCHEMA),
    ),
    Route(
        "GET", "/v1/cluster", "getHealth",
        "Say whether the cluster is healthy. If it is not, give the reasons and what to do next.",
        _health,
        {
            "type": "object",
            "required": ["ok", "reasons", "next"],
            "properties": {
                "ok": {"type": "boolean"},
                "reasons": {"type": "array", "items": {"type": "string"}},
                "next": {"type": ["string", "null"]},
            },
        },
    ),
)  # fmt: skip
