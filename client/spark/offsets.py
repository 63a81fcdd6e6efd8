"""Offsets of a stream: how far it has come, span by span, and how far a micro-batch goes. Pure.

An offset is a vector without a lease. The micro-batch between two of them has, of each key, the
entries with seqs above the one and not above the other; which entries that are depends on nothing
else, so a micro-batch that is run again has the same.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..protocol.errors import InvalidArgument
from ..span_pages import Span
from ..vector import Part, Vector
from .planning import KeySpan, Piece, Position, Task, overlaps, overlay, positions

Offset = dict[str, Any]


class Area(NamedTuple):
    """Keys, the seq from which a stream has not read them, and the one that they will have next."""

    start: bytes
    end: bytes | None
    next: int
    latest: int
    is_wanted: bool
    of_range: bytes
    """The start of the keys' range."""


def offset(of: Vector, positions: Iterable[Position]) -> Offset:
    """The offset of a stream that has read, of each span, what is below its seq."""
    parts = tuple(Part(start, end, seq - 1) for start, end, seq in positions)
    return Vector(of.cluster, of.log, of.log_id, "", 0, parts).to_document()


def vector(given: Mapping[str, Any]) -> Vector:
    """Undo `offset`. Raises InvalidArgument."""
    return Vector.from_json(json.dumps(given))


def joined(positions: Iterable[Position]) -> list[Position]:
    """The same, with neighbours of one seq as one: which ranges there are does not show."""
    rows: list[Position] = []
    for start, end, seq in positions:
        if rows and rows[-1][1] == start and rows[-1][2] == seq:
            start = rows.pop()[0]
        rows.append((start, end, seq))
    return rows


def areas(
    start: Vector,
    latest: Sequence[Position],
    wanted: Sequence[KeySpan],
    edges: Iterable[Position] = ((b"", None, 0),),
) -> list[Area]:
    """What there is to read, by where it was read up to and by the ranges of now.

    `edges`: spans by which it is cut too. In an area that lies in one of those that `earliest`
    gives no two entries have the same seq; where ranges were merged they may.
    """
    ranges = [(low, high, (low, seq)) for low, high, seq in latest]
    cut = [(low, high, seq) for low, high, seq, _ in overlay(positions(start), edges)]
    return [
        Area(low, high, seq, max(seq, end), overlaps((low, high), wanted), of_range)
        for low, high, seq, (of_range, end) in overlay(cut, ranges)
    ]


def admitted(available: Sequence[int], most: int) -> list[int]:
    """How many of each, together at most so many: what is little is had whole, the rest is shared
    evenly. At least one of all, if there is any."""
    shares = [0] * len(available)
    order = sorted(range(len(available)), key=available.__getitem__)
    left = max(1, most)
    for done, at in enumerate(order):
        shares[at] = min(available[at], left // (len(order) - done))
        left -= shares[at]
    return shares


def advanced(found: Sequence[Area], most: int | None) -> list[Position] | None:
    """How far a micro-batch goes: at most so many seqs further. None: there is nothing to read.

    Keys that nobody wants are passed at no cost. Neighbours in one range that were both read up to
    its end go on as one.
    """
    if not any(area.latest > area.next for area in found):
        return None
    available = [area.latest - area.next if area.is_wanted else 0 for area in found]
    shares = available if most is None else admitted(available, most)
    rows: list[tuple[Position, Area]] = []
    for area, share in zip(found, shares, strict=True):
        seq = area.next + share if area.is_wanted else area.latest
        if rows:
            (start, _, before), other = rows[-1]
            if other.of_range == area.of_range and before == seq == area.latest == other.latest:
                rows[-1] = (start, area.end, seq), area
                continue
        rows.append(((area.start, area.end, seq), area))
    return [position for position, _ in rows]


def lost(of: Iterable[Task], earliest: Sequence[Position]) -> tuple[bytes, int, int] | None:
    """Of the tasks a key from which on, the seq from which on, and the seq below which retention
    may have removed something that is to be read; None: it has not."""
    for task in of:
        wanted = [(piece.span.start, piece.span.end, piece.span.from_seq) for piece in task.pieces]
        for start, _, first, seq in overlay(wanted, earliest):
            if seq > first:
                return start, first, seq
    return None


def tasks(start: Vector, end: Vector, wanted: Sequence[KeySpan]) -> list[Task]:
    """One for each span of keys that goes on from `start` to `end`, and for nothing else, so that
    a micro-batch that is run again has the same tasks with the same rows.

    Raises InvalidArgument where the end lies before the start.
    """
    if (start.cluster, start.log, start.log_id) != (end.cluster, end.log, end.log_id):
        raise InvalidArgument(
            "a micro-batch from one log to another: the checkpoint is of another log or cluster; "
            "use a checkpoint of its own for each query",
            what="checkpointLocation",
        )
    found = []
    for low, high, first, last in overlay(positions(start), positions(end)):
        if first > last:
            raise InvalidArgument(
                f"a micro-batch from seq {first} back to {last}, for keys from {low!r} on: the "
                "stream was begun again with a later start than the micro-batch that its "
                "checkpoint has begun with; give the start that it had, or a new checkpoint",
                what="checkpointLocation",
            )
        if first == last:
            continue
        spans = ((begin, until, None) for begin, until in wanted)
        pieces = tuple(
            Piece(Span(begin, until, first, last), low)
            for begin, until, _, _ in overlay([(low, high, None)], spans)
        )
        if pieces:
            found.append(Task(end.cluster, end.log, end.log_id, pieces))
    return found
