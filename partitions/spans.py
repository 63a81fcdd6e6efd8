"""What spans of keys have together, and how a key is written where people read it."""

from collections.abc import Iterable

from .model import Span


def union(spans: Iterable[Span]) -> list[Span]:
    """The same keys in as few spans as there can be, in order. Spans that overlap stay apart."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and joined[-1].end == span.start:
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def printable(key: bytes) -> str:
    """Its text in quotes, or its hexadecimal digits where it has none."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return repr(text) if text.isprintable() else f"0x{key.hex()}"
