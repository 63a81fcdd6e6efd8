"""Operations over HTTP on entries: append, scan, latest, count, keys."""

from typing import Any, Final

from aiohttp import web

from ...client.json_text import printable
from ...client.log import AsyncLog
from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument
from ...client.protocol.kinds import INTEGER_MAX
from ...client.protocol.types import ANY, Ack, Entry, Tail
from . import parameters
from .answers import (
    ACK_SCHEMA,
    ENTRY_SCHEMA,
    ack_row,
    closing,
    entry_row,
    entry_rows,
    lines_answer,
    rows_answer,
    small_answer,
)
from .append_once import IDEMPOTENCY_KEY, append_once
from .json_kinds import (
    BYTES,
    BYTES_SCHEMA,
    EXPECT,
    FLAG,
    Field,
    list_of,
    nullable,
    object_of,
)
from .log_routes import listing
from .route import Asked, Route

_PAGE_ENTRIES_MAX: Final = 1_000
_PAGE_BYTES: Final = limits.MIB
"""Bytes of keys and values after which a page ends."""
_LOG: Final = parameters.text("log", "The name of the log; `/` in a name is `%2F`.", "path")
_KEY: Final = parameters.raw(
    "key", "The key, with percent-encoding; `/` in a key is `%2F`.", "path"
)
_ENTRY: Final = object_of(
    {
        "key": Field(BYTES, "The key.", required=True),
        "value": Field(nullable(BYTES), "The value; null writes a tombstone.", required=True),
        "headers": Field(
            list_of(
                object_of(
                    {
                        "name": Field(BYTES, "The name of the header.", required=True),
                        "value": Field(BYTES, "The value of the header.", required=True),
                    }
                ),
                limits.headers_max,
            ),
            "The headers of the entry.",
        ),
        "expect": Field(
            EXPECT, "The last seq that the key must have, `absent` for a key without entries."
        ),
        "snapshot": Field(FLAG, "Whether the entry is a logical snapshot of its key."),
    }
)


def _record(value: dict[str, Any]) -> tuple[bytes, bytes | None, dict[bytes, bytes] | None]:
    headers = value.get("headers")
    found = None if headers is None else {each["name"]: each["value"] for each in headers}
    if found is not None and len(found) < len(headers or ()):
        raise InvalidArgument("headers has a name twice; give each name once", what="headers")
    return value["key"], value["value"], found


async def _append(asked: Asked) -> web.StreamResponse:
    log, values = asked.client.log(asked.given["log"]), asked.values
    if asked.given["Idempotency-Key"] is not None:
        return await _append_once(asked, log)
    if not asked.many and not asked.given["atomic"]:
        key, value, headers = _record(values[0])
        ack = await log.append(
            key, value, headers=headers, expect=values[0].get("expect", ANY),
            snapshot=values[0].get("snapshot", False),
        )  # fmt: skip
        return small_answer(ack_row(ack))
    if any(value.get("snapshot") for value in values):
        raise InvalidArgument(
            "snapshot is given in a list; append a snapshot with a request of its own",
            what="snapshot",
        )
    records = [_record(value) for value in values]
    expects = [value.get("expect", ANY) for value in values]
    if not asked.given["atomic"]:
        acks = await log.append_many(records, expects=expects)
        return await rows_answer(asked.request, "acks", map(ack_row, acks))
    if any(expect is not ANY for expect in expects):
        raise InvalidArgument(
            "expect is given for an atomic batch; leave out `expect` or `atomic`", what="expect"
        )
    first = await log.append_batch(records)
    rows = (ack_row(_later(first, at)) for at in range(len(records)))
    return await rows_answer(asked.request, "acks", rows)


async def _append_once(asked: Asked, log: AsyncLog) -> web.StreamResponse:
    (value,) = asked.values if len(asked.values) == 1 else (None,)
    if value is None or asked.many or asked.given["atomic"] or "expect" in value:
        raise InvalidArgument(
            "Idempotency-Key is for one entry without `expect`; send an object, or leave the "
            "header out",
            what="Idempotency-Key",
        )
    ack = await append_once(
        log, asked.given["Idempotency-Key"], _record(value), snapshot=value.get("snapshot", False)
    )
    return small_answer(ack_row(ack))


def _later(first: Ack, at: int) -> Ack:
    """Return the ack of a later record of an atomic batch: its seqs have no gaps."""
    return first if first.seq is None else first._replace(seq=first.seq + at)


async def _scan(asked: Asked) -> web.StreamResponse:
    given = asked.given
    log, reverse, limit = asked.client.log(given["log"]), given["reverse"], given["limit"]
    start, end = given["from"], given["to"]
    if reverse and isinstance(start, Tail):
        raise InvalidArgument(
            "from is tail:COUNT in a reverse scan; give limit=COUNT instead", what="from"
        )
    if given["page"] is not None:
        start, end = (start, given["page"]) if reverse else (given["page"], end)
    if asked.wants_lines:
        every = log.scan(given["key"], start=start, end=end, limit=limit, reverse=reverse)
        async with closing(every) as found:
            return await lines_answer(asked.request, entry_rows(found))
    limit = min(limit or 100, _PAGE_ENTRIES_MAX)
    entries: list[Entry] = []
    size, following = 0, None
    scan = log.scan(given["key"], start=start, end=end, limit=limit + 1, reverse=reverse)
    async with closing(scan) as found:
        async for entry in found:
            if len(entries) == limit or size >= _PAGE_BYTES:
                following = entries[-1].seq if reverse else entry.seq
                break
            entries.append(entry)
            size += len(entry.value or b"") + len(entry.key)
    return await rows_answer(asked.request, "entries", map(entry_row, entries), {"next": following})


async def _latest(asked: Asked) -> web.StreamResponse:
    entry = await asked.client.log(asked.given["log"]).latest(asked.given["key"])
    return await rows_answer(asked.request, "entries", [] if entry is None else [entry_row(entry)])


async def _count(asked: Asked) -> web.StreamResponse:
    given = asked.given
    count = await asked.client.log(given["log"]).count(
        given["key"], start=given["from"], end=given["to"]
    )
    return small_answer({"count": count})


async def _keys(asked: Asked) -> web.StreamResponse:
    given, limit = asked.given, asked.given["limit"]
    found = asked.client.log(given["log"]).keys(
        prefix=given["prefix"] or b"", pattern=given["pattern"] or None,
        start_after=given["after"], limit=limit + 1,
    )  # fmt: skip
    async with closing(found) as keys:
        rows = [key async for key in keys]
    more = printable(rows[limit - 1]) if len(rows) > limit else None
    return await rows_answer(asked.request, "keys", map(printable, rows[:limit]), {"next": more})


_REVERSE: Final = parameters.flag("reverse", "Whether the newest entries come first.")
_LIMIT: Final = parameters.number(
    "limit", "The most entries: 100 by default and 1,000 at most in a page; NDJSON has no bound.",
    1, INTEGER_MAX,
)  # fmt: skip
_PAGE: Final = parameters.number("page", "Where to go on: `next` of the last page.", 1, INTEGER_MAX)

ENTRY_ROUTES: Final = (
    Route(
        "POST", "/v1/logs/{log}/entries", "append",
        "Append one entry (an object), or many (an array, or NDJSON). An answer of many has an ack "
        "for each, in their order.", _append,
        {"oneOf": [ACK_SCHEMA, listing("acks", ACK_SCHEMA)]},
        (
            _LOG, IDEMPOTENCY_KEY,
            parameters.flag(
                "atomic", "Append all entries or none. Their keys must lie in one range."
            ),
        ),
        _ENTRY, many=True,
    ),
    Route(
        "GET", "/v1/logs/{log}/keys/{key}/entries", "scan",
        "Return the entries of a key, oldest or newest first. A page has at most about 1 MiB; with "
        "`Accept: application/x-ndjson` all entries come, a line each.", _scan,
        listing("entries", ENTRY_SCHEMA, pages=True, key={"type": "integer"}),
        (_LOG, _KEY, parameters.START, parameters.END, _LIMIT, _REVERSE, _PAGE), lines=True,
    ),
    Route(
        "GET", "/v1/logs/{log}/keys/{key}/latest", "latest",
        "Return the newest entry of a key in a list, which is empty for a key without entries.",
        _latest, listing("entries", ENTRY_SCHEMA), (_LOG, _KEY),
    ),
    Route(
        "GET", "/v1/logs/{log}/keys/{key}/count", "count",
        "Return the number of the entries of a key.", _count,
        {
            "type": "object",
            "required": ["count"],
            "properties": {"count": {"type": "integer"}},
        },
        (_LOG, _KEY, parameters.START, parameters.END),
    ),
    Route(
        "GET", "/v1/logs/{log}/keys", "listKeys", "Return the keys of a log, in byte order.",
        _keys, listing("keys", BYTES_SCHEMA, pages=True, key=BYTES_SCHEMA),
        (
            _LOG,
            parameters.raw("prefix", "Only the keys that begin with these bytes."),
            parameters.raw("pattern", "Only the keys that match one of these.", repeated=True),
            parameters.raw("after", "Only the keys after this key: `next` of the last page."),
            parameters.number("limit", "The most keys of the page.", 1, _PAGE_ENTRIES_MAX, 100),
        ),
    ),
)  # fmt: skip
