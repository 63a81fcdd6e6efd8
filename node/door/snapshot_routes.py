"""Operations over HTTP on snapshots: take, read, release. A snapshot is a JSON object that the
asker keeps, and with which any node reads the entries."""

from typing import Any, Final

from aiohttp import web

from ...client.protocol import limits
from ...client.protocol.errors import LimitExceeded
from ...client.protocol.kinds import INTEGER_MAX
from ...client.snapshot import AsyncSnapshot
from ...client.vector import Part, Vector
from . import parameters
from .answers import closing, entry_rows, lines_answer, small_answer
from .json_kinds import BYTES, TEXT, Field, Schema, integer, list_of, nullable, object_of
from .route import Asked, Route

_PARTS_MAX: Final = 1_024
"""Parts of a snapshot: a request names all of them, and they are checked in one step."""
_LEASE_S: Final = 600
_LOG: Final = parameters.text("log", "The name of the log; `/` in a name is `%2F`.", "path")
_NUMBER: Final = integer(0, INTEGER_MAX)
_PART: Final = object_of(
    {
        "start": Field(BYTES, "The first key of the part.", required=True),
        "end": Field(nullable(BYTES), "The key after the last; null: all keys.", required=True),
        "through_seq": Field(_NUMBER, "The last seq of the part.", required=True),
    }
)
_SNAPSHOT: Final = object_of(
    {
        "v": Field(integer(1, 1), "The version of this form.", required=True),
        "cluster": Field(TEXT, "The id of the cluster.", required=True),
        "log": Field(TEXT, "The name of the log.", required=True),
        "log_id": Field(_NUMBER, "The id of the log.", required=True),
        "lease": Field(TEXT, "The name of the lease, which keeps the entries.", required=True),
        "expires_ms": Field(_NUMBER, "When the lease ends, in Unix time.", required=True),
        "parts": Field(list_of(_PART, _PARTS_MAX), "The last seq of each span.", required=True),
    }
)
_TAKEN: Final = object_of(
    {
        "lease_s": Field(
            integer(1, limits.lease_ms_max // 1_000),
            f"Seconds for which the snapshot can be read; {_LEASE_S} by default.",
        )
    }
)
_CHOSEN: Final = object_of(
    {
        "snapshot": Field(_SNAPSHOT, "The snapshot as it was taken.", required=True),
        "key": Field(BYTES, "Only the entries of this key."),
        "prefix": Field(BYTES, "Only the keys that begin with these bytes."),
        "pattern": Field(list_of(BYTES, limits.patterns_max), "Only the keys that match one."),
    }
)
_RELEASED: Final = object_of(
    {"snapshot": Field(_SNAPSHOT, "The snapshot as it was taken.", required=True)}
)
_ANSWER: Final[Schema] = {
    "type": "object",
    "required": ["snapshot"],
    "properties": {"snapshot": _SNAPSHOT.schema},
}


async def _take(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    log = asked.client.log(asked.given["log"])
    found = await log.snapshot(lease_s=wanted.get("lease_s", _LEASE_S))
    count = len(found.vector.parts)
    if count > _PARTS_MAX:
        await found.release()
        raise LimitExceeded(
            f"the snapshot has {count} parts; the limit over HTTP is {_PARTS_MAX}. Use the SDK",
            limit="snapshot_parts_max", value=count, allowed=_PARTS_MAX,
        )  # fmt: skip
    return small_answer({"snapshot": found.vector.to_document()}, 201)


async def _opened(asked: Asked) -> AsyncSnapshot:
    """Return the snapshot of a request. Raises InvalidArgument, and the errors of a snapshot of
    another log."""
    body: dict[str, Any] = asked.values[0]["snapshot"]
    given = Vector(
        body["cluster"], body["log"], body["log_id"], body["lease"], body["expires_ms"],
        tuple(Part(part["start"], part["end"], part["through_seq"]) for part in body["parts"]),
    )  # fmt: skip
    log = asked.client.log(asked.given["log"])
    await log.describe()  # the client now knows the id of the cluster and of the log
    return log.open_snapshot(Vector.from_json(given.to_json()))


async def _read(asked: Asked) -> web.StreamResponse:
    (wanted,) = asked.values
    snapshot = await _opened(asked)
    entries = snapshot.read(
        wanted.get("key"), wanted.get("prefix"), pattern=wanted.get("pattern") or None
    )
    async with closing(entries) as found:
        return await lines_answer(asked.request, entry_rows(found))


async def _release(asked: Asked) -> web.StreamResponse:
    await (await _opened(asked)).release()
    return web.Response(status=204)


SNAPSHOT_ROUTES: Final = (
    Route(
        "POST", "/v1/logs/{log}/snapshots", "takeSnapshot",
        "Take a snapshot: every append that was acknowledged before, and perhaps more.",
        _take, _ANSWER, (_LOG,), _TAKEN, status=201,
    ),
    Route(
        "POST", "/v1/logs/{log}/snapshots/read", "readSnapshot",
        "Return the entries of a snapshot as NDJSON, the same every time.",
        _read, None, (_LOG,), _CHOSEN, lines=True,
    ),
    Route(
        "POST", "/v1/logs/{log}/snapshots/release", "releaseSnapshot",
        "End the lease of a snapshot, which then cannot be read.",
        _release, None, (_LOG,), _RELEASED, status=204,
    ),
)  # fmt: skip
