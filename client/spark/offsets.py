"""Offsets of a stream: the position of each span, and the end of a micro-batch. Pure.

An offset is a vector without a lease. The micro-batch between two offsets has the entries of each
key with seqs above the first and up to the second offset. The second offset may also have cuts:
keys at which a task ends and another begins. A micro-batch depends on nothing else, so one that
runs again has the same tasks with the same entries.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from ..json_text import bytes_of, printable
from ..protocol.errors import InvalidArgument
from ..protocol.patterns import Patterns
from ..span_pages import Span
from ..span_positions import Position, overlay
from ..vector import Part, Vector
from .planning import KeySpan, Piece, Task, Weight, overlaps, plan_batch, positions

Offset = dict[str, Any]
_CUTS: Final = "cuts"


class Area(NamedTuple):
    """Keys, with the first seq that a stream has not read and the next seq of their range."""

    start: bytes
    end: bytes | None
    next: int
    latest: int
    is_wanted: bool
    of_range: bytes
    """The start of the keys' range."""


class Unread(NamedTuple):
    """A span of keys with entries that a stream has not read yet."""

    start: bytes
    end: bytes | None
    next: int
    seqs: int


def offset(of: Vector, positions: Iterable[Position]) -> Offset:
    """Return the offset of a stream that has read each span below its seq."""
    parts = tuple(Part(start, end, seq - 1) for start, end, seq in positions)
    return Vector(of.cluster, of.log, of.log_id, "", 0, parts).to_document()


def vector(given: Mapping[str, Any]) -> Vector:
    """Undo `offset`. Raises InvalidArgument."""
    return Vector.from_json(json.dumps(given))


def with_cuts(
    end: Offset, start: Vector, wanted: Sequence[KeySpan], weights: Sequence[Weight],
    tasks_min: int,
) -> Offset:  # fmt: skip
    """Return the end of a micro-batch from `start` on, with cuts for at least `tasks_min` tasks, as
    far as the weights of keys allow."""
    until = vector(end)
    planned = plan_batch(
        until, wanted, begins=positions(start), weights=weights, partitions_min=tasks_min,
        task_bytes=sys.maxsize, lease=None,
    )  # fmt: skip
    firsts = [task.pieces[0] for task in planned]
    found = [
        after.span.start for before, after in pairwise(firsts)
        if before.range_start == after.range_start
    ]  # fmt: skip
    return {**end, _CUTS: list(map(printable, found))} if found else end


def cuts(end: Offset) -> list[KeySpan]:
    """Return the spans between the cuts of an offset. Raises InvalidArgument."""
    given = end.get(_CUTS, [])
    try:
        keys = [b"", *map(bytes_of, given)] if type(given) is list else []
    except ValueError:
        keys = []
    if not keys or not all(low < high for low, high in pairwise(keys)):
        raise InvalidArgument(
            f"the offset in the checkpoint has the cuts {given!r}, not ascending keys: the "
            "checkpoint is damaged. Give the query a new checkpoint",
            what="checkpointLocation",
        )
    return [*pairwise(keys), (keys[-1], None)]


def joined(positions: Iterable[Position]) -> list[Position]:
    """Join neighbours with the same seq, which hides the bounds of ranges."""
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
    """Return the areas to read, cut at the spans read so far and at the present ranges.

    `edges`: further spans to cut at. Entries in an area within one span of `earliest` have distinct
    seqs; after a merge of ranges, entries of one area may have equal seqs.
    """
    ranges = [(low, high, (low, seq)) for low, high, seq in latest]
    cut = [(low, high, seq) for low, high, seq, _ in overlay(positions(start), edges)]
    return [
        Area(low, high, seq, max(seq, end), overlaps((low, high), wanted), of_range)
        for low, high, seq, (of_range, end) in overlay(cut, ranges)
    ]


def unread(found: Iterable[Area]) -> int:
    """Return the number of seqs that a stream has not read, of the keys that it reads."""
    return sum(area.latest - area.next for area in found if area.is_wanted)


def admitted(available: Sequence[int], most: int) -> list[int]:
    """Share `most` between the available numbers: small numbers are admitted whole, and the rest
    is shared evenly. Admits at least one, if any is available."""
    shares = [0] * len(available)
    order = sorted(range(len(available)), key=available.__getitem__)
    left = max(1, most)
    for done, at in enumerate(order):
        shares[at] = min(available[at], left // (len(order) - done))
        left -= shares[at]
    return shares


def shares(found: Sequence[Area], most: int | None) -> list[int]:
    """Return how many seqs a micro-batch reads of each area, at most `most` in all."""
    available = [area.latest - area.next if area.is_wanted else 0 for area in found]
    return available if most is None else admitted(available, most)


def left(found: Sequence[Area], shares: Sequence[int]) -> list[Unread]:
    """Return what is unread behind a micro-batch of these shares."""
    return [
        Unread(area.start, area.end, area.next + share, area.latest - area.next - share)
        for area, share in zip(found, shares, strict=True)
        if area.is_wanted and area.latest > area.next + share
    ]


def latest(of: Vector, found: Iterable[Area]) -> Offset:
    """Return the offset of a stream that has read everything in these areas."""
    return offset(of, joined((area.start, area.end, area.latest) for area in found))


def advanced(found: Sequence[Area], shares: Sequence[int]) -> list[Position] | None:
    """Return the end of a micro-batch, so many seqs further in each area, or None when there is
    nothing to read.

    Unwanted keys are skipped at no cost. Neighbours in one range that were both read to its end are
    joined.
    """
    if not any(area.latest > area.next for area in found):
        return None
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
    """Return a task's first key, its first seq there, and the seq below which retention may have
    removed entries that the task reads; None: nothing is lost."""
    for task in of:
        wanted = [(piece.span.start, piece.span.end, piece.span.from_seq) for piece in task.pieces]
        for start, _, first, seq in overlay(wanted, earliest):
            if seq > first:
                return start, first, seq
    return None


def tasks(
    start: Vector,
    end: Vector,
    wanted: Sequence[KeySpan],
    patterns: Patterns | None = None,
    between: Sequence[KeySpan] = ((b"", None),),
) -> list[Task]:
    """Return one task for each span of keys that advances from `start` to `end`; with patterns,
    only the matching keys are read. No task has keys of two of the spans `between` the cuts. The
    tasks depend on nothing else, so a micro-batch that runs again has the same tasks with the same
    rows.

    Raises InvalidArgument when the end lies before the start.
    """
    if (start.cluster, start.log, start.log_id) != (end.cluster, end.log, end.log_id):
        raise InvalidArgument(
            "the micro-batch goes from one log to another: the checkpoint is of another log "
            "or cluster. Give each query a checkpoint of its own",
            what="checkpointLocation",
        )
    found = []
    for low, high, first, last in overlay(positions(start), positions(end)):
        if first > last:
            raise InvalidArgument(
                f"the micro-batch goes from seq {first} back to {last}, for keys from "
                f"{low!r} on: the stream now starts later than the micro-batch in its "
                "checkpoint. Give the first start again, or a new checkpoint",
                what="checkpointLocation",
            )
        if first == last:
            continue
        spans = [(begin, until, None) for begin, until in wanted]
        parts = [(begin, until, None) for begin, until in between]
        for of_task in overlay([(low, high, None)], parts):
            pieces = tuple(
                Piece(Span(begin, until, first, last, None, patterns), low)
                for begin, until, _, _ in overlay([(*of_task[:2], None)], spans)
            )
            if pieces:
                found.append(Task(end.cluster, end.log, end.log_id, pieces))
    return found
