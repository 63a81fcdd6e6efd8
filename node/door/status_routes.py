"""Operations over HTTP that show the cluster to people: overview, nodes, ranges, hot keys.

The rows are those of `lognode status`, with the rights of the asker's token. The answers are pages,
which the node sorts in slices: a cluster has up to 12,288 ranges.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from aiohttp import web

from ...client.protocol.errors import LognodeError
from ...client.status_rows import NodeLoads, Totals, hot_keys_of, ranges_of
from ..runtime.slices import in_slices, one_by_one
from . import parameters
from .answers import rows_answer, small_answer
from .json_kinds import BYTES_SCHEMA, Schema, refused
from .log_routes import NODE_SCHEMA, RANGE_SCHEMA, listing
from .parameters import Parameter
from .route import Asked, Route

Row = dict[str, Any]
_PAGE_MAX: Final = 1_000
_OFFSET_MAX: Final = 1_000_000
_SORTED_AT_ONCE: Final = 1_000
"""Rows that are sorted in one step, which takes less than a millisecond."""
_COUNT: Final[Schema] = {"type": "integer"}
_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_INTEGER: Final[Schema] = {"type": ["integer", "null"]}
_TEXT: Final[Schema] = {"type": ["string", "null"]}
_OBJECT: Final[Schema] = {"type": ["object", "null"]}


def _changed_at(row: Row) -> int:
    if row["running_operation"] is not None:
        return 1 << 62
    return (row["last_operation"] or {}).get("ended_at_ms") or 0


_SORTS: Final[dict[str, Callable[[Row], Any]]] = {
    "key": lambda row: (row["log"], row.get("start") or b"", row["id"]),
    "appends": lambda row: (-(row["records_per_s"] or 0), row["id"]),
    "reads": lambda row: (-(row["reads_per_s"] or 0), row["id"]),
    "size": lambda row: (-(row["bytes"] or 0), row["id"]),
    "changed": lambda row: (-_changed_at(row), row["id"]),
}
"""The orders of ranges: by log and key, or the largest or the latest first."""


def _read_sort(value: bytes, name: str) -> str:
    text = value.decode("utf-8", "replace")
    if text not in _SORTS:
        raise refused(name, value, ", ".join(_SORTS))
    return text


async def sorted_part(
    rows: list[Row], key: Callable[[Row], Any], first: int, count: int
) -> list[Row]:
    """Return `count` rows from the row number `first` on, in order, without holding the loop."""
    runs: list[list[Row]] = []

    def chunks() -> Iterator[None]:
        for at in range(0, len(rows), _SORTED_AT_ONCE):
            runs.append(sorted(rows[at : at + _SORTED_AT_ONCE], key=key))
            yield None

    await in_slices(chunks())
    merged = await in_slices(islice(heapq.merge(*runs, key=key), first + count))
    return merged[first:]


async def _counted(rows: Iterable[Row], *counters: Any) -> None:
    async for row in one_by_one(rows):
        for counter in counters:
            counter.add(row)


async def _overview(asked: Asked) -> web.StreamResponse:
    status = await asked.looks.status(asked.client)
    try:
        health = await asked.client.health()
    except LognodeError as error:
        health = {"ok": False, "reasons": [error.message]}
    totals = Totals()
    await _counted(status["ranges"], totals)
    answer = {
        "ok": health["ok"],
        "reasons": health["reasons"],
        "next": health.get("next"),
        "cluster": status["cluster"],
        "nodes": sum(node["state"] != "REMOVED" for node in status["nodes"]),
        "nodes_active": sum(node["state"] == "ACTIVE" for node in status["nodes"]),
        "logs": len(status["logs"]),
        "ranges": len(status["ranges"]),
        "operations": len(status["operations"]),
        "damaged": len(status["damaged"]),
        **totals.row(),
    }
    return small_answer(answer)


async def _nodes(asked: Asked) -> web.StreamResponse:
    status = await asked.looks.status(asked.client)
    loads = NodeLoads()
    await _counted(status["ranges"], loads)
    return await rows_answer(asked.request, "nodes", list(loads.rows(status)))


async def _ranges(asked: Asked) -> web.StreamResponse:
    given = asked.given
    status = await asked.looks.status(asked.client)
    rows = await in_slices(ranges_of(status, given["log"]))
    first, limit = given["offset"], given["limit"]
    part = await sorted_part(rows, _SORTS[given["sort"]], first, limit)
    more = {"total": len(rows), "next": first + limit if first + limit < len(rows) else None}
    return await rows_answer(asked.request, "ranges", part, more)


async def _hot_keys(asked: Asked) -> web.StreamResponse:
    found = hot_keys_of(await asked.looks.status(asked.client))
    return await rows_answer(
        asked.request, "hot_keys", found[: asked.given["limit"]], {"total": len(found)}
    )


def paged(name: str, row: Schema) -> Schema:
    """Return the schema of a page of rows: with where the next page begins, and how many rows there
    are in all."""
    found = listing(name, row, pages=True, key=_COUNT)
    found["required"].append("total")
    found["properties"]["total"] = _COUNT
    return found


def with_more(base: Schema, more: dict[str, Schema]) -> Schema:
    """Return the schema of a row that has further fields."""
    return {**base, "properties": {**base["properties"], **more}}


_RATES: Final = dict.fromkeys(("records_per_s", "bytes_per_s", "reads_per_s"), _NUMBER)
_OVERVIEW_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["ok", "reasons", "cluster", "nodes", "logs", "ranges", "operations", "damaged"],
    "properties": {
        "ok": {"type": "boolean"},
        "reasons": {"type": "array", "items": {"type": "string"}},
        "next": _TEXT,
        "cluster": {"type": "object"},
        **dict.fromkeys(
            ("nodes", "nodes_active", "logs", "ranges", "operations", "damaged", "leaderless",
             "hot"),
            _COUNT,
        ),
        **_RATES,
        "segment_bytes": _NUMBER,
        "entries_held": _NUMBER,
        "states": {"type": "object"},
    },
}  # fmt: skip
_HOT_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["log", "key", "share", "range"],
    "properties": {
        "log": {"type": "string"},
        "key": BYTES_SCHEMA,
        "share": {"type": "number"},
        "per_s": {"type": "number"},
        "range": _COUNT,
        "leader": _INTEGER,
        **_RATES,
    },
}
_LOADED_NODE: Final = with_more(
    NODE_SCHEMA,
    {"state": {"type": "string"}, "leads": _COUNT, "controller": _TEXT, **_RATES},
)
_LOADED_RANGE: Final[Schema] = {
    **with_more(
        RANGE_SCHEMA,
        {"bytes": _NUMBER, "entries_held": _NUMBER, **_RATES, "running_operation": _OBJECT,
         "last_operation": _OBJECT, "hot_key": _OBJECT},
    ),
    # A token that may not read a log sees its ranges without their bounds.
    "required": ["id", "log", "generation", "members", "leader", "state"],
}  # fmt: skip
OFFSET: Final = parameters.number(
    "offset", "The rows to leave out: `next` of the last page.", 0, _OFFSET_MAX, 0
)

STATUS_ROUTES: Final = (
    Route(
        "GET", "/v1/status/overview", "getOverview",
        "Say whether the cluster is healthy and what to do next, with counts and sums over all "
        "ranges. Rates are over the last minute.", _overview, _OVERVIEW_SCHEMA,
    ),
    Route(
        "GET", "/v1/status/nodes", "listNodeLoads",
        "Return the nodes with the number of ranges that they lead, and the load of these.",
        _nodes, listing("nodes", _LOADED_NODE),
    ),
    Route(
        "GET", "/v1/status/ranges", "listRangeLoads",
        "Return ranges with size, rates, hot key, the operation under way and the last one, page "
        "by page.", _ranges, paged("ranges", _LOADED_RANGE),
        (
            parameters.text("log", "Only the ranges of this log."),
            Parameter(
                "sort", "query",
                "The order: `key` (by log and key), or the largest first by `appends`, `reads` or "
                "`size`, or the latest change first (`changed`).",
                {"enum": list(_SORTS), "default": "key"}, _read_sort, default="key",
            ),
            OFFSET,
            parameters.number("limit", "The most ranges of the page.", 1, _PAGE_MAX, 100),
        ),
    ),
    Route(
        "GET", "/v1/status/hot-keys", "listHotKeys",
        "Return the keys that take a large part of the load of their ranges, the busiest first.",
        _hot_keys,
        {**listing("hot_keys", _HOT_SCHEMA), "required": ["hot_keys", "total"]},
        (parameters.number("limit", "The most keys.", 1, _PAGE_MAX, 100),),
    ),
)  # fmt: skip
