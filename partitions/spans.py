"""The union of spans of keys, and the written form of a key for people."""

from collections.abc import Iterable

from ..client.protocol import characters
from .model import Span


def union(spans: Iterable[Span]) -> list[Span]:
    """Return the same keys in as few spans as possible, in order. Spans that overlap stay apart."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and joined[-1].end == span.start:
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def printable(key: bytes) -> str:
    """Return the key's text in quotes, or its hexadecimal digits if it is not printable text."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return repr(text) if _is_printable(text) else f"0x{key.hex()}"


def is_alike(key: bytes) -> bool:
    """Whether every version of lognode and of Python gives the key this written form.

    Earlier versions ask Python whether the key is printable, and versions of Python differ in the
    characters that Unicode 14 lacks.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return True
    return _is_printable(text) or not characters.is_fit(text.replace(" ", ""))


def _is_printable(text: str) -> bool:
    return characters.is_printable(text.replace(" ", ""))
