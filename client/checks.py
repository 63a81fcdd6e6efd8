"""Values that others sent, checked before anything is done with them: pure functions.

Each returns the value, of the type that it should have, or raises InvalidArgument or LimitExceeded
with three things: what was given, what is allowed, what to do. Bounds come from `limits`.
"""

from typing import Final

from . import limits
from .errors import InvalidArgument, LimitExceeded

_SHOWN_CHARS: Final = 60
"""Of a bad value, in an error."""


def number(value: object, what: str, *, least: int = 0, most: int = limits.number_max) -> int:
    """An integer of `least` to `most`, by default of 0 to 2^63 - 1; a bool is none."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgument(
            f"`{what}` must be an integer of {least} or more, and at most {most}, "
            f"not {shown(value)}", what=what,
        )  # fmt: skip
    return value


def numbers(
    value: object, what: str, *, count_max: int, most: int = limits.number_max
) -> list[int]:
    """An array of at most `count_max` integers, each as `number`."""
    if not isinstance(value, list | tuple):
        raise InvalidArgument(
            f"`{what}` must be an array of integers, not {shown(value)}", what=what
        )
    if len(value) > count_max:
        raise InvalidArgument(
            f"`{what}` has {len(value)} integers; give at most {count_max}", what=what
        )
    return [number(each, what, most=most) for each in value]


def text(value: object, what: str, *, bytes_max: int) -> str:
    """A text of at most so many bytes in UTF-8."""
    if type(value) is not str:
        raise InvalidArgument(f"`{what}` must be a text, not {shown(value)}", what=what)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"`{what}` is {shown(value)}, which is not valid Unicode; take its lone surrogates out",
            what=what,
        ) from None
    if size > bytes_max:
        raise LimitExceeded(
            f"`{what}` has {size} bytes; at most {bytes_max} are allowed: shorten it",
            limit=what, value=size, allowed=bytes_max,
        )  # fmt: skip
    return value


def line(value: object, what: str, *, bytes_max: int) -> str:
    """As `text`, without control characters: for what people read in a table or a log line."""
    found = text(value, what, bytes_max=bytes_max)
    if not found.isprintable():
        raise InvalidArgument(
            f"`{what}` is {shown(found)}, with an unprintable character; use letters, digits and "
            "spaces", what=what,
        )  # fmt: skip
    return found


def key(value: object, what: str) -> bytes:
    """A key of 1 to `key_bytes_max` bytes."""
    if type(value) is not bytes:
        raise InvalidArgument(f"`{what}` must be a key, in bytes, not {shown(value)}", what=what)
    if not 1 <= len(value) <= limits.key_bytes_max:
        raise LimitExceeded(
            f"`{what}` of {len(value)} bytes; a key has 1 to {limits.key_bytes_max}",
            limit="key_bytes_max", value=len(value), allowed=limits.key_bytes_max,
        )  # fmt: skip
    return value


def shown(value: object) -> str:
    """The value as an error shows it; of a long one the beginning."""
    if isinstance(value, int | float | bool) or value is None:
        return repr(value)
    if isinstance(value, str | bytes):
        told = repr(value[:_SHOWN_CHARS])
        return told if len(value) <= _SHOWN_CHARS else f"{told}..."
    return f"a value of type {type(value).__name__}"
