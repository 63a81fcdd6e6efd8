"""Half-open spans of keys; an end of None means that the span has no end."""

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

Value = TypeVar("Value")
Span = tuple[bytes, bytes | None]
EVERYTHING: Final[Span] = (b"", None)
NOTHING: Final[Span] = (b"", b"")


def common(one: Span, other: Span) -> Span | None:
    """Return the keys in both spans, or None without a common key."""
    start = max(one[0], other[0])
    end = min((end for end in (one[1], other[1]) if end is not None), default=None)
    return None if end is not None and start >= end else (start, end)


def covers(outer: Span, inner: Span) -> bool:
    """Whether the outer span has all keys of the inner span."""
    return common(outer, inner) == inner


def rows_in(rows: Mapping[bytes, Value], span: Span) -> dict[bytes, Value]:
    """Return the rows whose keys are in the span, in their order: there may be 100,000."""
    start, end = span
    if end is not None:
        return {key: row for key, row in rows.items() if start <= key < end}
    return {key: row for key, row in rows.items() if start <= key} if start else dict(rows)


def has(span: Span, key: bytes) -> bool:
    """Whether the key is in the span."""
    return key >= span[0] and (span[1] is None or key < span[1])


def are_within(span: Span, keys: Collection[bytes]) -> bool:
    """Whether all keys are in the span."""
    return not keys or (min(keys) >= span[0] and (span[1] is None or max(keys) < span[1]))
