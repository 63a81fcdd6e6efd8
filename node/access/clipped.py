"""Show the ranges of a log to a client that may not know every key."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import overload

from ...client.protocol.key_spans import KeySpans
from ...partitions.model import Descriptor, Span


def start_of(range_: Descriptor) -> bytes:
    """Return the first key of the range, by which ranges are ordered."""
    return range_.span.start


class Clipped(Sequence[Descriptor]):
    """The ranges that have keys in the spans, with bounds that show no key outside the spans.

    `ranges` are in the order of keys and do not overlap. A range is clipped when it is taken, so
    that a page costs as much as its own ranges. Pages are cut from this sequence, so that the start
    and the end of a page show no other bounds either.
    """

    def __init__(self, ranges: Sequence[Descriptor], spans: KeySpans) -> None:
        self._spans = spans
        self._seen: list[Descriptor] = []
        after = 0
        for start, end in spans.rows:
            first = max(after, bisect_right(ranges, start, key=start_of) - 1)
            if first < len(ranges) and not ranges[first].span.overlaps(Span(start, end)):
                first += 1
            last = len(ranges) if end is None else bisect_left(ranges, end, key=start_of)
            if first < last:
                self._seen += ranges[first:last]
                after = last

    def __len__(self) -> int:
        return len(self._seen)

    @overload
    def __getitem__(self, at: int) -> Descriptor: ...

    @overload
    def __getitem__(self, at: slice) -> list[Descriptor]: ...

    def __getitem__(self, at: int | slice) -> Descriptor | list[Descriptor]:
        if isinstance(at, slice):
            return list(map(self._clip, self._seen[at]))
        return self._clip(self._seen[at])

    def _clip(self, range_: Descriptor) -> Descriptor:
        bounds = self._spans.clipped(*range_.span)
        if bounds == range_.span and not range_.met_at:
            return range_
        return replace(range_, span=Span(*(bounds or range_.span)), met_at=())
