"""Spans of keys: half-open; without an end where that is None."""

Span = tuple[bytes, bytes | None]


def common(one: Span, other: Span) -> Span | None:
    """The keys that are in both spans; None when there is none."""
    start = max(one[0], other[0])
    end = min((end for end in (one[1], other[1]) if end is not None), default=None)
    return None if end is not None and start >= end else (start, end)


def has(span: Span, key: bytes) -> bool:
    """Whether the key is in the span."""
    return key >= span[0] and (span[1] is None or key < span[1])
