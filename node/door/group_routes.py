"""Operations over HTTP on consumer groups: a work queue for programs without an SDK.

A pull hands out batches, each with a token that settles the batch at any node. Nothing stays in the
node: the lease of a batch ends by itself, and no node extends the lease without a request.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from ...client.consumer import begin_of_group
from ...client.group import create_group, pulls_of
from ...client.group_held import Held, told
from ...client.group_pulls import TICKET_CHARS_MAX, Pulled, Ticket
from ...client.group_settles import ACKS, EXTENDS, REJECTS, RELEASES
from ...client.json_text import printable, to_json
from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument, PartialFailure
from ...client.protocol.groups import BY_ENTRY, BY_KEY
from ...client.protocol.kinds import INTEGER_MAX
from ...client.protocol.types import GroupInfo, GroupKey
from ..runtime.slices import one_by_one
from . import parameters
from .answers import ENTRY_SCHEMA, entry_row, rows_answer, small_answer, text_answer
from .json_kinds import (
    BYTES,
    BYTES_SCHEMA,
    FLAG,
    TEXT,
    Field,
    Kind,
    Schema,
    integer,
    list_of,
    object_of,
    refused,
)
from .log_routes import listing
from .route import Asked, Route

_BATCHES_MAX: Final = 100
_BYTES_MAX: Final = limits.MIB
_WAIT_MS: Final = 10_000
_TIMEOUT_S: Final = 10.0
_ROWS_MAX: Final = 1_000


def _token(value: Any, name: str) -> Ticket:
    if type(value) is not str or not value.isascii():
        raise refused(name, value, "the token of a batch")
    return Ticket.from_text(value)


def _ordering(value: Any, name: str) -> str:
    if value not in (BY_KEY, BY_ENTRY):
        raise refused(name, value, '"key" or "none"')
    return str(value)


def _start(value: Any, name: str) -> Any:
    text = TEXT.take(value, name)
    found = parameters.read_start(text.encode(), name)
    begin_of_group(found)
    return found


_LOG: Final = parameters.text("log", "The name of the log; `/` in a name is `%2F`.", "path")
_GROUP: Final = parameters.text("group", "The name of the group.", "path")
_TOKEN: Final = Kind({"type": "string", "maxLength": TICKET_CHARS_MAX}, _token)
_TOKEN_FIELD: Final = Field(_TOKEN, "The token of the batch.", required=True)
_ERROR_FIELD: Final = Field(TEXT, "Why the work failed; 128 characters are kept.")
_OPTIONS: Final = object_of(
    {
        "prefix": Field(BYTES, "The group has the keys that begin with these bytes."),
        "pattern": Field(list_of(BYTES, limits.patterns_max), "Or the keys that match one."),
        "start": Field(
            Kind({"type": "string"}, _start),
            "Where the group begins: `earliest` (the default), `latest`, `time:MS`, or a time in "
            "ISO 8601.",
        ),
        "ordering": Field(
            Kind({"enum": [BY_KEY, BY_ENTRY]}, _ordering),
            "`key`: the entries of a key come in order, to one consumer at a time. `none`: in any "
            "order, to many.",
        ),
        "lease_ms": Field(
            integer(limits.group_lease_ms_min, limits.group_lease_ms_max),
            "How long a consumer has a batch; 30,000 by default.",
        ),
        "max_deliveries": Field(
            integer(1, limits.group_deliveries_max),
            "Failed deliveries of an entry after which `on_dead` applies; 5 by default.",
        ),
        "on_dead": Field(TEXT, "`park` (the default) or `dead_letter:LOG`."),
        "hold_retention": Field(FLAG, "Whether retention keeps entries that are not done."),
    }
)
_PULL: Final = object_of(
    {
        "max": Field(integer(1, _BATCHES_MAX), "The most batches; 1 by default."),
        "wait_ms": Field(
            integer(0, limits.group_wait_ms_max),
            f"How long to wait for a batch; {_WAIT_MS:,} by default. With 0 the answer may be "
            "empty while the node begins to read.",
        ),
    }
)
_ACK: Final = object_of(
    {
        "token": _TOKEN_FIELD,
        "through": Field(
            integer(1, INTEGER_MAX), "The last entry that is done; all entries by default."
        ),
    }
)
_RELEASE: Final = object_of(
    {
        "token": _TOKEN_FIELD,
        "delay_ms": Field(
            integer(0, limits.group_delay_ms_max), "How long nobody gets the entries; 0 by default."
        ),
        "error": _ERROR_FIELD,
    }
)
_REJECT: Final = object_of({"token": _TOKEN_FIELD, "error": _ERROR_FIELD})
_EXTEND: Final = object_of({"token": _TOKEN_FIELD})
_RETRY: Final = object_of({"key": Field(BYTES, "The parked key.", required=True)})
_SKIP: Final = object_of(
    {
        "key": Field(BYTES, "The key.", required=True),
        "through": Field(
            integer(1, INTEGER_MAX), "The last entry to pass; the next entry by default."
        ),
        "why": Field(TEXT, "The reason, which the history keeps."),
    }
)
GROUP_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["name", "ordering", "lease_ms", "max_deliveries", "on_dead", "start"],
    "properties": {
        "name": {"type": "string"},
        "prefix": BYTES_SCHEMA,
        "pattern": {"type": "array", "items": BYTES_SCHEMA},
        "start": {"type": "string"},
        "ordering": {"enum": [BY_KEY, BY_ENTRY]},
        "lease_ms": {"type": "integer"},
        "max_deliveries": {"type": "integer"},
        "on_dead": {"type": "string"},
        "hold_retention": {"type": "boolean"},
        "created_ms": {"type": "integer"},
    },
}
_BATCH_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["token", "key", "deliveries", "entries"],
    "properties": {
        "token": {"type": "string", "description": "Settles the batch, at any node."},
        "key": BYTES_SCHEMA,
        "deliveries": {
            "type": "integer",
            "description": "Which delivery of the first entry this is: 1, and 1 more after each "
            "failure.",
        },
        "entries": {"type": "array", "items": ENTRY_SCHEMA},
    },
}
_PULL_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["lease_ms", "batches"],
    "properties": {
        "lease_ms": {"type": "integer", "description": "How long the leases of the batches last."},
        "batches": {"type": "array", "items": _BATCH_SCHEMA},
    },
}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_LAG_NAMES: Final = ("entries", "bytes", "waiting", "in_flight", "parked", "consumers")
_LAG_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": [*_LAG_NAMES, "oldest_ms", "begun"],
    "properties": {
        **dict.fromkeys(_LAG_NAMES, _COUNT),
        "oldest_ms": {"type": ["integer", "null"]},
        "begun": {"type": "boolean"},
    },
}
_PARKED_SCHEMA: Final[Schema] = {
    "type": "object",
    "required": ["key", "position", "deliveries", "error"],
    "properties": {
        "key": BYTES_SCHEMA,
        "position": {"type": "integer"},
        "deliveries": {"type": "integer"},
        "error": {"type": "string"},
    },
}


def group_row(info: GroupInfo) -> dict[str, Any]:
    """Return a group for JSON."""
    return {
        "name": info.name,
        "prefix": printable(info.prefix),
        "pattern": [printable(each) for each in info.patterns],
        "start": info.begin if info.begin_ms is None else f"time:{info.begin_ms}",
        "ordering": info.ordering,
        "lease_ms": info.lease_ms,
        "max_deliveries": info.max_deliveries,
        "on_dead": info.on_dead,
        "hold_retention": info.waits,
        "created_ms": info.created_ms,
    }


def _parked_row(row: GroupKey) -> dict[str, Any]:
    return {
        "key": printable(row.key), "position": row.position, "deliveries": row.deliveries,
        "error": row.error,
    }  # fmt: skip


def _group_of(asked: Asked) -> Any:
    return asked.client.log(asked.given["log"]).group(asked.given["group"])


# Operators.


async def _list(asked: Asked) -> web.StreamResponse:
    found = await asked.client.log(asked.given["log"]).groups()
    return await rows_answer(asked.request, "groups", map(group_row, found))


async def _create(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    options = begin_of_group(wanted.get("start"))
    names = {"hold_retention": "waits"}
    for name in ("ordering", "lease_ms", "max_deliveries", "on_dead", "hold_retention"):
        if name in wanted:
            options[names.get(name, name)] = wanted[name]
    info = await create_group(
        _group_of(asked), options, wanted.get("prefix"), wanted.get("pattern") or None
    )
    return small_answer(group_row(info))


async def _describe(asked: Asked) -> web.StreamResponse:
    return small_answer(group_row(await _group_of(asked).describe()))


async def _delete(asked: Asked) -> web.StreamResponse:
    await _group_of(asked).delete()
    return web.Response(status=204)


async def _lag(asked: Asked) -> web.StreamResponse:
    return small_answer((await _group_of(asked).lag())._asdict())


async def _parked(asked: Asked) -> web.StreamResponse:
    found = await _group_of(asked).parked()
    rows = map(_parked_row, found[: asked.given["limit"]])
    return await rows_answer(asked.request, "parked", rows, {"count": len(found)})


async def _retry(asked: Asked) -> web.StreamResponse:
    await _group_of(asked).retry(asked.values[0]["key"])
    return web.Response(status=204)


async def _skip(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    through = await _group_of(asked).skip(
        wanted["key"], wanted.get("through"), why=wanted.get("why", "")
    )
    return small_answer({"through": through})


# Consumers.


async def _pull(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    group = _group_of(asked)
    pulls = pulls_of(group)
    pulled = await pulls.pull(
        group.name, wanted.get("max", 1), _BYTES_MAX, wanted.get("wait_ms", _WAIT_MS) / 1000,
        _TIMEOUT_S,
    )  # fmt: skip
    is_sent = False
    try:
        answer, is_sent = await text_answer(asked.request, _pieces(pulled))
    finally:
        if not is_sent:
            pulls.give_back(pulled.group, pulled.batches)
    return answer


async def _pieces(pulled: Pulled) -> AsyncIterator[str]:
    """Yield the JSON of a pull, an entry at a time."""
    yield f'{{"lease_ms": {pulled.group.lease_ms}, "batches": ['
    for at, held in enumerate(pulled.batches):
        yield (", " if at else "") + _head(pulled, held)
        comma = ""
        async for entry in one_by_one(held.entries):
            yield comma + to_json(entry_row(entry))
            comma = ", "
        yield "]}"
    yield "]}\n"


def _head(pulled: Pulled, held: Held) -> str:
    token = to_json(pulled.ticket(held).to_text())
    key = to_json(printable(held.key))
    return f'{{"token": {token}, "key": {key}, "deliveries": {held.deliveries}, "entries": ['


def _acked(wanted: dict[str, Any]) -> list[Any]:
    ticket: Ticket = wanted["token"]
    through = wanted.get("through", ticket.last)
    if not ticket.first <= through <= ticket.last:
        raise InvalidArgument(
            f"through is {through}; the batch has entries with seqs {ticket.first} to "
            f"{ticket.last}",
            what="through",
        )
    return [through + 1]


def _released(wanted: dict[str, Any]) -> list[Any]:
    error = wanted.get("error")
    text = "" if error is None else told(error) or "failed"
    return [wanted.get("delay_ms", 0), text]


def _rejected(wanted: dict[str, Any]) -> list[Any]:
    return [told(wanted.get("error", "rejected"))]


def _extended(_: dict[str, Any]) -> list[Any]:
    return []


_ROWS: Final[Mapping[str, Callable[[dict[str, Any]], list[Any]]]] = {
    ACKS: _acked, RELEASES: _released, REJECTS: _rejected, EXTENDS: _extended,
}  # fmt: skip
"""What a row of a request has behind the key and the token."""


async def _settle(kind: str, asked: Asked) -> web.StreamResponse:
    group = _group_of(asked)
    rows = [(value["token"], _ROWS[kind](value)) for value in asked.values]
    # An asker that leaves does not cut off what it has asked for.
    errors = await asyncio.shield(
        asyncio.ensure_future(pulls_of(group).settle(group.name, kind, rows, _TIMEOUT_S))
    )
    failed = [error for error in errors if error is not None]
    if failed and not asked.many:
        raise failed[0]
    if failed:
        raise PartialFailure(
            f"{len(failed)} of {len(errors)} batches were not settled; `errors` has the reason "
            "of each",
            errors=errors,
        )
    return small_answer({"settled": len(errors)})


def _settling(name: str, path: str, about: str, kind: str, body: Kind) -> Route:
    schema: Schema = {
        "type": "object", "required": ["settled"], "properties": {"settled": _COUNT},
    }  # fmt: skip
    return Route(
        "POST", f"/v1/logs/{{log}}/groups/{{group}}/{path}", name,
        f"{about} The body is an object, an array of objects, or NDJSON.",
        partial(_settle, kind), schema, (_LOG, _GROUP), body, many=True,
    )  # fmt: skip


_OF_LOG: Final = "/v1/logs/{log}/groups"
_OF_GROUP: Final = f"{_OF_LOG}/{{group}}"
GROUP_ROUTES: Final = (
    Route(
        "GET", _OF_LOG, "listGroups", "Return the consumer groups of a log, by name.", _list,
        listing("groups", GROUP_SCHEMA), (_LOG,),
    ),
    Route(
        "PUT", _OF_GROUP, "createGroup",
        "Create a consumer group, which then begins in all ranges. A group that exists with the "
        "same options stays as it is.", _create, GROUP_SCHEMA, (_LOG, _GROUP), _OPTIONS,
    ),
    Route(
        "GET", _OF_GROUP, "describeGroup", "Return a consumer group.", _describe, GROUP_SCHEMA,
        (_LOG, _GROUP),
    ),
    Route(
        "DELETE", _OF_GROUP, "deleteGroup", "Delete a consumer group with its positions.", _delete,
        None, (_LOG, _GROUP), status=204,
    ),
    Route(
        "POST", f"{_OF_GROUP}/pull", "pull",
        "Hand out batches, each the next entries of a key that no other consumer has, or wait for "
        "a batch. A batch that is not settled before its lease ends has failed, and comes again.",
        _pull, _PULL_SCHEMA, (_LOG, _GROUP), _PULL, waits=True,
    ),
    _settling(
        "ack", "ack", "Note that the entries of batches are done. A majority has stored it when "
        "the answer comes.", ACKS, _ACK,
    ),
    _settling(
        "release", "release", "Give batches back, so that a consumer gets them again. With "
        "`error` the delivery counts as failed.", RELEASES, _RELEASE,
    ),
    _settling(
        "reject", "reject", "Refuse the first entries of batches for good: `on_dead` applies at "
        "once.", REJECTS, _REJECT,
    ),
    _settling("extend", "extend", "Let the leases of batches begin again.", EXTENDS, _EXTEND),
    Route(
        "GET", f"{_OF_GROUP}/lag", "getLag", "Return what a consumer group has not done.", _lag,
        _LAG_SCHEMA, (_LOG, _GROUP),
    ),
    Route(
        "GET", f"{_OF_GROUP}/parked", "listParked",
        "Return the first parked keys with their last errors, and the count of all.", _parked,
        {
            "type": "object",
            "required": ["count", "parked"],
            "properties": {
                "count": _COUNT, "parked": {"type": "array", "items": _PARKED_SCHEMA},
            },
        },
        (_LOG, _GROUP, parameters.number("limit", "The most keys.", 1, _ROWS_MAX, 100)),
    ),
    Route(
        "POST", f"{_OF_GROUP}/retry", "retryKey",
        "Let a parked key go on with the same entry.", _retry, None, (_LOG, _GROUP), _RETRY,
        status=204,
    ),
    Route(
        "POST", f"{_OF_GROUP}/skip", "skipEntries",
        "Pass entries of a key without a consumer. Without an order, pass one entry.", _skip,
        {
            "type": "object", "required": ["through"],
            "properties": {"through": {"type": "integer"}},
        },
        (_LOG, _GROUP), _SKIP,
    ),
)  # fmt: skip
