"""The rows of the manifests of two merging neighbours, as one manifest.

A row keeps the clip of its parent's span, since the other parent may have given the same seqs to
other keys. Two kinds of rows need no clip. Dropping their clips lets a split and a later merge
leave the manifest as it was, and keeps the runs that segment merges join. First: rows of both
parents for one file, on either side of their border, become one row. Second: a file with keys of
one parent alone, whose seqs and timestamps no row of the other parent has, keeps its place before
and after all others, clipped or not.
"""

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum, auto
from heapq import merge
from itertools import accumulate
from math import inf
from typing import NamedTuple

from .segment_format import SegmentInfo
from .spans import Span, has


class Rows(NamedTuple):
    """The rows of a range with that span, all clipped to it."""

    span: Span
    rows: Sequence[SegmentInfo]


class _Side(Enum):
    LEFT = auto()
    RIGHT = auto()
    BOTH = auto()


_Placed = tuple[_Side, SegmentInfo]


def beside(left: Rows, right: Rows) -> Rows:
    """Return the rows of both, each in its own order: the rows that have a key rise in seq."""
    span = left.span[0], right.span[1]
    placed = list(_interleaved(left.rows, right.rows))
    spans = {_Side.LEFT: left.span, _Side.RIGHT: right.span, _Side.BOTH: span}
    found: list[SegmentInfo] = []
    waiting: dict[_Side, list[SegmentInfo]] = {_Side.LEFT: [], _Side.RIGHT: []}
    for (side, info), apart in zip(placed, _apart(placed), strict=True):
        whole = info.clip == spans[side] and has(info.clip, info.min_key)
        if side is not _Side.BOTH and not (whole and apart and has(info.clip, info.max_key)):
            waiting[side].append(info)
            continue
        for rows in waiting.values():  # rows of one clip side by side: they may be joined
            found += rows
            rows.clear()
        if side is not _Side.BOTH:
            info = info._replace(start=span[0], end=span[1])
        found.append(info)
    return Rows(span, [*found, *waiting[_Side.LEFT], *waiting[_Side.RIGHT]])


def common_places(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of common elements, in an order that both sequences share.

    The elements of each sequence are distinct.
    """
    places = {name: at for at, name in enumerate(left)}
    found: list[tuple[int, int]] = []
    begin = 0
    for other, name in enumerate(right):
        at = places.get(name, -1)
        if at >= begin:
            found.append((at, other))
            begin = at + 1
    return found


def _interleaved(left: Sequence[SegmentInfo], right: Sequence[SegmentInfo]) -> Iterator[_Placed]:
    """Yield all rows: rows of both sides as one, and the rows between two of these by seq."""
    shared = common_places(
        [(info.content_id, info.end) for info in left],
        [(info.content_id, info.start) for info in right],
    )
    begin, other_begin = 0, 0
    for at, other in [*shared, (len(left), len(right))]:
        yield from merge(
            ((_Side.LEFT, info) for info in left[begin:at]),
            ((_Side.RIGHT, info) for info in right[other_begin:other]),
            key=lambda placed: placed[1].first_seq,
        )
        if at < len(left):
            yield _Side.BOTH, left[at]._replace(end=right[other].end)
        begin, other_begin = at + 1, other + 1


def _apart(placed: Sequence[_Placed]) -> list[bool]:
    """Return for each row whether it lies apart from all others in seqs and in time.

    Such a row begins after all earlier rows end, and ends before all later rows begin.
    """
    rows = [info for _, info in placed]
    back = rows[:0:-1]
    ends = accumulate((info.end_seq for info in rows), max, initial=0)
    newest = accumulate((info.max_timestamp_ms for info in rows), max, initial=0)
    begins = accumulate((info.first_seq for info in back), min, initial=inf)
    oldest = accumulate((info.min_timestamp_ms for info in back), min, initial=inf)
    return [
        end <= info.first_seq and newest_ms <= info.min_timestamp_ms
        and info.end_seq <= begin and info.max_timestamp_ms <= oldest_ms
        for info, end, newest_ms, begin, oldest_ms in zip(
            rows, ends, newest, [*begins][::-1], [*oldest][::-1], strict=False
        )
    ]  # fmt: skip
