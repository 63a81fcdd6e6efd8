"""The keys that a principal may use, as spans in the order of keys."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

Span = tuple[bytes, bytes | None]
"""From the first key up to, but not including, the second key; None: to the end of all keys."""
EVERY_KEY: Final[Span] = (b"", None)


class KeySpans:
    """Disjoint spans of keys. Spans that meet or overlap are united."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, spans: Iterable[Span]) -> None:
        self._starts: list[bytes] = []
        self._ends: list[bytes | None] = []
        for start, end in sorted(spans, key=lambda span: span[0]):
            if self._ends and (self._ends[-1] is None or start <= self._ends[-1]):
                last = self._ends[-1]
                self._ends[-1] = None if last is None or end is None else max(last, end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    @property
    def rows(self) -> list[Span]:
        """The spans in the order of keys."""
        return list(zip(self._starts, self._ends, strict=True))

    @property
    def has_every_key(self) -> bool:
        """Whether the spans have every key."""
        return self.covers(*EVERY_KEY)

    def covers(self, start: bytes, end: bytes | None) -> bool:
        """Return whether every key from `start` on and below `end` lies in one span."""
        if end is not None and end <= start:
            return True
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return False
        last = self._ends[at]
        return last is None or (end is not None and end <= last)

    def clipped(self, start: bytes, end: bytes | None) -> Span | None:
        """Return the smallest span with every key that is in `[start, end)` and in these spans.

        Each bound of the answer is a bound of these spans, or a key in one of them. None: no key is
        in both. When `[start, end)` meets several of these spans, the answer includes the gaps
        between them.
        """
        if end is not None and end <= start:
            return None
        first = max(0, bisect_right(self._starts, start) - 1)
        if first < len(self._starts):
            until = self._ends[first]
            first += until is not None and until <= start
        last = (len(self._starts) if end is None else bisect_left(self._starts, end)) - 1
        if first > last:
            return None
        until = self._ends[last]
        if until is None or (end is not None and end < until):
            until = end
        return max(start, self._starts[first]), until

    def has(self, key: bytes) -> bool:
        """Return whether the key lies in one of the spans."""
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return False
        end = self._ends[at]
        return end is None or key < end

    def has_all(self, keys: Sequence[bytes]) -> bool:
        """Return whether every key lies in one of the spans.

        Two passes in C decide this when the lowest and the highest key lie in one span, or when
        there is only one span; otherwise each key is checked, in about 0.3 us.
        """
        if not keys or self.covers(min(keys), max(keys) + b"\0"):
            return True
        return len(self._starts) > 1 and all(map(self.has, keys))


def prefix_span(prefix: bytes) -> Span:
    """Return the span of all keys that begin with the prefix."""
    stripped = prefix.rstrip(b"\xff")
    return prefix, stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
