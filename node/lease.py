"""Leases on a range, for whoever reads a snapshot: taken, renewed and released by its leader.

What a lease holds is said by `statemachine/leases.py`; it is a command like any other removal, so
that every member holds the same from the same entry of the log on (executions 1.14).
"""

from typing import Any

from ..client import limits
from ..client.errors import GenerationMismatch, InvalidArgument, from_wire
from ..statemachine import commands
from ..statemachine.spans import common
from . import fields
from .range_replica import RangeReplica

Body = dict[str, Any]


async def take(replica: RangeReplica, body: Body) -> Body:
    """Hold what is visible up to `through` of the keys asked for that are the range's, from
    `start_key` on; `end_key` in the answer says how far they go. The same again renews it; with
    `renew` nothing else does it.

    Raises InvalidArgument, Overloaded, GenerationMismatch: the first key is none of the range's,
    Conflict: the lease holds other entries, NotFound: it is to be renewed, and has ended.
    """
    lease_id, lease_ms = _lease_id(body), fields.integer(body, "lease_ms")
    if not 1 <= lease_ms <= limits.lease_ms_max:
        raise InvalidArgument(
            f"a lease of {lease_ms} ms; 1 to {limits.lease_ms_max} are allowed", what="lease_ms"
        )
    asked = fields.bound(body, "start_key"), fields.optional_key(body, "end_key")
    own = replica.descriptor.span
    span = common(asked, (own.start, own.end))
    if span is None or span[0] != asked[0]:
        raise GenerationMismatch(
            f"the span is not in range {replica.gid.range_id}",
            ranges=[replica.descriptor.to_wire()],
        )
    through = fields.integer(body, "through")
    expires_ms = replica.services.stamp_ms() + lease_ms
    payload = [lease_id, *span, through, expires_ms]
    kind = commands.RENEW_LEASE if body.get("renew") else commands.TAKE_LEASE
    await _propose(replica, kind, payload)
    return {"end_key": span[1], "expires_ms": expires_ms, "applied": replica.applied_index}


async def release(replica: RangeReplica, body: Body) -> Body:
    """End a lease on all of the range's keys. Doing it twice is doing it once."""
    await _propose(replica, commands.RELEASE_LEASE, [_lease_id(body)])
    return {}


async def _propose(replica: RangeReplica, kind: int, payload: list[Any]) -> None:
    reply = await replica.propose_and_wait(kind, payload)
    if reply.get("status") == "error":
        raise from_wire(reply["error"])


def _lease_id(body: Body) -> str:
    value = fields.optional_text(body, "lease")
    if not value or len(value) > limits.lease_id_chars_max:
        raise InvalidArgument(
            f"`lease` must have 1 to {limits.lease_id_chars_max} characters, not {value!r}",
            what="lease",
        )
    return value
