"""What each read asks of a replica's state: no waiting, no sockets, one page at most.

Each function takes the replica, which may serve the read at the consistency that was asked for,
and the request's body; it raises InvalidArgument, GenerationMismatch for a key of another range,
and CorruptData where the replica's files are not what they should be.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..client import limits
from ..client.errors import GenerationMismatch, InvalidArgument
from ..partitions.model import Span
from . import fields
from .range_replica import RangeReplica

Body = dict[str, Any]
Read = Callable[[RangeReplica, Body], Body]


def scan(replica: RangeReplica, body: Body) -> Body:
    """A page of a key's entries."""
    page = replica.state.scan(
        _own_key(replica, body),
        fields.integer(body, "start", 1),
        fields.optional_integer(body, "end"),
        limit=fields.page_limit(body, limits.page_entries_max),
        bytes_max=fields.page_bytes(body),
        reverse=bool(body.get("reverse")),
    )
    return page.to_wire()


def latest(replica: RangeReplica, body: Body) -> Body:
    """A page with the key's last entry, or an empty one."""
    page = replica.state.scan(
        _own_key(replica, body), 1, None, limit=1, bytes_max=limits.page_bytes_max, reverse=True
    )
    return page.to_wire()


def count(replica: RangeReplica, body: Body) -> Body:
    """How many entries of the key lie in [start, end)."""
    start, end = fields.integer(body, "start", 1), fields.optional_integer(body, "end")
    return {"count": replica.state.count(_own_key(replica, body), start, end)}


def keys(replica: RangeReplica, body: Body) -> Body:
    """A page of the range's keys, in order."""
    limit = fields.page_limit(body, limits.keys_page_max)
    after = fields.optional_key(body, "start_after")
    found = replica.state.keys(fields.bound(body, "prefix"), after, limit=limit)
    return {"keys": found, "more": len(found) == limit}


def read_span(replica: RangeReplica, body: Body) -> Body:
    """A page of the entries of a span of keys, in the order of seq."""
    page = replica.state.read_span(
        fields.bound(body, "start_key"),
        fields.optional_key(body, "end_key"),
        fields.integer(body, "start", 1),
        limit=fields.page_limit(body, limits.page_entries_max),
        bytes_max=fields.page_bytes(body),
    )
    return page.to_wire()


def resolve(replica: RangeReplica, body: Body) -> Body:
    """The seq of a start position: `["ts", ms]`, `["tail", n]` or `"latest"`."""
    key, start = fields.optional_key(body, "key"), body.get("start")
    if start == "latest":
        return {"seq": replica.state.next_seq}
    if type(start) is list and len(start) == 2 and type(start[1]) is int and start[1] >= 0:
        if start[0] == "ts":
            return {"seq": replica.state.seq_at_timestamp(start[1], key)}
        if start[0] == "tail" and key is not None:
            return {"seq": replica.state.tail(key, start[1])}
    raise InvalidArgument(f"resolve does not know the start {start!r}", what="start")


def producer_number(replica: RangeReplica, body: Body) -> Body:
    """Whether a producer's number was applied here, and its seq (executions 1.17)."""
    row = replica.state.producers.rows.get(fields.integer(body, "producer"))
    number = fields.integer(body, "number")
    seq = None if row is None else row.applied.get(number)
    return {"applied": seq is not None or (row is not None and number < row.low), "seq": seq}


READS: Final[Mapping[str, Read]] = {
    "scan": scan,
    "latest": latest,
    "count": count,
    "keys": keys,
    "read_span": read_span,
    "resolve": resolve,
    "producer_number": producer_number,
}


def _own_key(replica: RangeReplica, body: Body) -> bytes:
    key = fields.key(body)
    if key not in Span(replica.state.start, replica.state.end):
        raise GenerationMismatch(
            f"the key is not in range {replica.gid.range_id}",
            ranges=[replica.descriptor.to_wire()],
        )
    return key
