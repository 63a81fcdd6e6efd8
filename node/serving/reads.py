"""Serve each read from a replica's state, without sockets, at most one page.

A page keeps to the rule of `statemachine.room`, so every answer here fits a frame.

Each function takes the replica and the request's body. The caller has waited until the replica may
serve the read at the requested consistency. Each function raises InvalidArgument,
GenerationMismatch for a key of another range, NotFound if the lease in `as_of` has ended,
CorruptData if a file of the replica is damaged, and NotLeader when the replica stops.

A read takes as many turns of the loop as it needs, and its answer is that of one moment. Most reads
start again until a turn is enough. A page is made of parts, one in each turn, and all parts show
what was applied at the first part. When something is removed meanwhile, that moment cannot be read
any more: the page ends, and the next page continues.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from ...client.protocol import Operation, limits
from ...client.protocol.appends import PRODUCER_NUMBER
from ...client.protocol.errors import GenerationMismatch, InvalidArgument
from ...client.protocol.frame import Spliced
from ...client.protocol.patterns import Patterns
from ...client.protocol.reads import (
    COUNT_ENTRIES,
    EXPORT,
    KEYS,
    LATEST,
    LAYOUT,
    READ_SPAN,
    RESOLVE,
    SCAN,
)
from ...partitions.model import Span
from ...statemachine.band_reads import Position
from ...statemachine.block_slices import Portion
from ...statemachine.page import Page
from ...statemachine.split_key import SplitKey
from ...statemachine.turn_limits import ENTRIES_A_TURN
from ..replicas.range_replica import RangeReplica
from ..replicas.read_turns import Readable, in_turns
from ..runtime import fields

_PARTS_MAX: Final = 32
"""The most parts of a page. In a narrow span a part may pass many entries and find none, and the
entries of a key may lie in as many batches, each of which takes a turn to decode."""
_KEY_HEAD_BYTES: Final = 3
_KEY_BYTES: Final = limits.key_bytes_max + _KEY_HEAD_BYTES
"""The most bytes of a key in a frame."""

Body = dict[str, Any]
Read = Callable[[Readable, Body], Awaitable[Body]]


async def scan(replica: Readable, body: Body) -> Body:
    """Return a page of a key's entries."""
    key, state = _own_key(replica, body), replica.state
    start, end = body["start"], body["end"]
    reverse, as_of = body["reverse"], body["as_of"]
    page = Page(next=start, limit=body["limit"], bytes_max=body["bytes"])
    parts = 0

    def part(end_seq: int) -> bool:
        nonlocal parts
        parts += 1
        low, high = page.next, end_seq if end is None else min(end, end_seq)
        if reverse:
            low, high = start, page.next if page.seqs else high
        page.extend(
            state.scan(
                key, low, high, limit=min(page.entries_left, ENTRIES_A_TURN),
                bytes_max=page.bytes_left, begun=page.begun, reverse=reverse, as_of=as_of,
            )
        )  # fmt: skip
        return page.full or not page.more or parts >= _PARTS_MAX

    applied = await _in_parts(replica, part)
    return {**page.to_wire(), "applied": applied}


async def latest(replica: Readable, body: Body) -> Body:
    """Return a page with the key's last entry, or an empty page."""
    read = partial(
        replica.state.scan, _own_key(replica, body), 1, None,
        limit=1, bytes_max=limits.page_bytes_max, reverse=True,
        as_of=body["as_of"],
    )  # fmt: skip
    return (await in_turns(replica, read)).to_wire()


async def count(replica: Readable, body: Body) -> Body:
    """Return how many entries of the key lie in [start, end)."""
    read = partial(
        replica.state.count, _own_key(replica, body), body["start"], body["end"],
        as_of=body["as_of"],
    )  # fmt: skip
    return {"count": await in_turns(replica, read)}


async def keys(replica: Readable, body: Body) -> Body:
    """Return some of the range's keys, in order, maybe none; with `more`, go on after `after`.

    The keys of a page have at most `page_bytes_max` bytes in a frame. With patterns a page ends
    after `_PARTS_MAX` parts, so that a client hears of progress where few keys match.
    """
    state, prefix = replica.state, body["prefix"]
    limit, after = body["limit"], body["start_after"]
    patterns = Patterns.from_wire(body["patterns"])
    found: list[bytes] = []
    begun = more = False
    parts = 0
    bytes_left = limits.page_bytes_max

    def part(end_seq: int) -> bool:
        nonlocal begun, more, after, bytes_left, parts
        if begun and state.next_seq != end_seq:
            return True  # these keys and those found before were never visible at one moment
        left, room = limit - len(found), bytes_left // _KEY_BYTES
        if patterns is None:
            some, following = state.keys_page(prefix, after, limit=min(left, room))
        else:
            parts += 1
            some, following = state.keys_page(prefix, after, limit=room)
            some = patterns.matching(some)
            if len(some) > left:
                some = some[:left]
                following = some[-1]
        found.extend(some)
        bytes_left -= sum(map(len, some)) + _KEY_HEAD_BYTES * len(some)
        begun, more = True, following is not None
        after = following or after
        is_full = len(found) >= limit or bytes_left < _KEY_BYTES or parts >= _PARTS_MAX
        return not more or is_full

    applied = await _in_parts(replica, part)
    answer = {"keys": found, "more": more, "after": after, "applied": applied}
    return answer if patterns is None else {**answer, "matched": True}


async def read_span(replica: Readable, body: Body) -> Body:
    """Return a page of the entries of a span of keys, in the order of seq."""
    state, span = replica.state, (body["start_key"], body["end_key"])
    as_of, columns = body["as_of"], bool(body.get("columns"))
    page = Page(next=body["start"], limit=body["limit"], bytes_max=body["bytes"])
    parts = 0

    def part(end_seq: int) -> bool:
        nonlocal parts
        parts += 1
        some = state.read_span(
            span[0], page.end_key or span[1], page.next, end_seq, limit=page.entries_left,
            bytes_max=page.bytes_left, begun=page.begun, as_of=as_of, columns=columns,
        )  # fmt: skip
        page.extend(some)
        return page.full or not page.more or parts >= _PARTS_MAX

    applied = await _in_parts(replica, part)
    if not columns:
        return {**page.to_wire(), "applied": applied}
    state.store.copies.note(state.within(*span)[0], page.reached)
    answer = page.to_chunks()
    answer["applied"] = applied
    return answer


async def export(replica: Readable, body: Body) -> Body:
    """Return a page of the entries of a span of keys, in the order of the files."""
    state, span = replica.state, (body["start_key"], body["end_key"])
    as_of, at = body["as_of"], fields.position(body["position"])
    patterns = Patterns.from_wire(body["patterns"])
    page = Portion(limit=body["limit"], bytes_max=body["bytes"])
    following: Position | None = at
    parts = 0

    def part(end_seq: int) -> bool:
        nonlocal parts, following
        parts += 1
        some, following = state.read_bands(
            span[0], page.end_key or span[1], following or at, end_seq, limit=page.entries_left,
            bytes_max=page.bytes_left, begun=page.begun, as_of=as_of,
        )  # fmt: skip
        page.extend(some if patterns is None else some.matching(patterns, begun=page.begun))
        return page.full or following is None or parts >= _PARTS_MAX

    applied = await _in_parts(replica, part)
    answer = {**page.to_wire(), "position": following, "applied": applied}
    return Spliced(answer if patterns is None else {**answer, "matched": True})


async def resolve(replica: Readable, body: Body) -> Body:
    """Return the seq of a start position: `["ts", ms]`, `["tail", n]`, `"earliest"`, `"latest"` or
    `"snapshot"`."""
    key, start = body["key"], body["start"]
    if key is not None:
        span: tuple[bytes, bytes | None] = (key, key + b"\0")
    else:
        span = body["start_key"], body["end_key"]
    if start == "latest":
        return {"seq": replica.state.next_seq}
    if start == "snapshot":
        return await _snapshot(replica, body)
    if start == "earliest":
        seq, end_key = replica.state.earliest(*span)
        return {"seq": seq} if end_key is None else {"seq": seq, "end_key": end_key}
    how, value = start
    if how == "ts":
        at_time = partial(replica.state.seq_at_timestamp, value, *span)
        seq, end_key = await in_turns(replica, at_time)
        return {"seq": seq} if end_key is None else {"seq": seq, "end_key": end_key}
    if key is None:
        raise InvalidArgument("a tail of a span does not exist; name a `key`", what="start")
    return {"seq": await in_turns(replica, partial(replica.state.tail, key, value))}


async def _snapshot(replica: Readable, body: Body) -> Body:
    """Return the key's newest logical snapshot below `end`, within the entries of one turn."""
    read = partial(
        replica.state.scan, _own_key(replica, body), 1, body["end"],
        limit=ENTRIES_A_TURN, bytes_max=limits.page_bytes_default, reverse=True,
    )  # fmt: skip
    page = await in_turns(replica, read)
    if page.snapshots:
        return {"seq": page.seqs[page.snapshots[0]], "more": False}
    return {"seq": page.next if page.more else 1, "more": page.more}


async def layout(replica: Readable, body: Body) -> Body:
    """Return where the bytes of a span of keys lie, so that several readers can share the span."""
    span = body["start_key"], body["end_key"]
    search = SplitKey(replica.state)
    while not await in_turns(replica, search.step):  # noqa: ASYNC110  no event to wait for
        await asyncio.sleep(0)
    return {"weights": [list(row) for row in search.layout(*span)]}


async def producer_number(replica: Readable, body: Body) -> Body:
    """Return whether a producer's number was applied here, and its seq (x17)."""
    row = replica.state.producers.rows.get(body["producer"])
    number = body["number"]
    seq = None if row is None else row.seq_of(number)
    return {"applied": seq is not None or (row is not None and number < row.low), "seq": seq}


READS: Final[Mapping[Operation, Read]] = {
    SCAN: scan,
    LATEST: latest,
    COUNT_ENTRIES: count,
    KEYS: keys,
    READ_SPAN: read_span,
    EXPORT: export,
    RESOLVE: resolve,
    LAYOUT: layout,
    PRODUCER_NUMBER: producer_number,
}


def show(replica: RangeReplica, body: Body) -> None:
    """Add an answered read to the range's sample of its load, if the range has a sample.

    The read was about a key, or at most about the keys of a span. Fields that the read does not use
    may hold anything."""
    if replica.sample is None:
        return
    span = replica.descriptor.span
    key, *begins, end = (
        value if type(value) is bytes else None
        for value in map(body.get, ("key", "start_key", "start_after", "prefix", "end_key"))
    )
    if key is None:
        replica.sample.read(max([span.start, *filter(None, begins)]), end)
    elif key in span:
        replica.sample.read(key, key + b"\0")


async def _in_parts(replica: Readable, part: Callable[[int], bool]) -> int:
    """Call `part`, once in each turn, until it returns True or something was removed since the
    first call. Return the applied index at the first call.

    Each call gets the end of the seqs that were applied at the first call. A `part` that raises
    must have added nothing."""
    state = replica.state
    moment: tuple[int, int, int] | None = None

    def one() -> bool:
        nonlocal moment
        now = (state.applied_index, state.next_seq, state.removal.changes)
        then = moment or now
        if now[2] != then[2]:
            return True
        is_last = part(then[1])
        moment = then
        return is_last

    while not await in_turns(replica, one):  # noqa: ASYNC110  no event to wait for
        await asyncio.sleep(0)
    return state.applied_index if moment is None else moment[0]


def _own_key(replica: Readable, body: Body) -> bytes:
    key: bytes | None = body["key"]
    if key is None:
        raise InvalidArgument("a search for a snapshot needs a `key`; add a `key`", what="key")
    if key not in Span(replica.state.start, replica.state.end):
        raise GenerationMismatch(
            f"the key is outside of range {replica.gid.range_id}",
            ranges=[replica.descriptor.to_wire()],
        )
    return key
