"""The forms of parts of a command's payload: whether a value from a Raft entry is such a part."""

from typing import Any, Final

from ..client.protocol import limits

NUMBER_MAX: Final = limits.number_max
"""The largest seq or time in a payload: sums and differences of such numbers still pack."""


def are(payload: Any, element: type) -> bool:
    """Whether this is an array of elements of exactly this type."""
    return type(payload) is list and set(map(type, payload)) <= {element}


def is_number(value: Any) -> bool:
    """Whether this is a seq, a time or a count."""
    return type(value) is int and 0 <= value <= NUMBER_MAX


def is_key(value: Any) -> bool:
    """Whether this is a key of an entry."""
    return type(value) is bytes and 1 <= len(value) <= limits.key_bytes_max


def is_span(start: Any, end: Any) -> bool:
    """Whether these are the bounds of a span with room for a key."""
    return (
        type(start) is bytes
        and (end is None or (type(end) is bytes and start < end))
        and max(len(start), len(end or b"")) <= limits.key_bytes_max + 1
    )


def is_text(value: Any, chars_max: int) -> bool:
    """Whether this is a text with at most that many characters."""
    return type(value) is str and len(value) <= chars_max
