"""Fields of request bodies, checked before anything is done with them.

A body is what somebody sent: any field may be missing or of any type that msgpack knows. What is
wrong is answered with InvalidArgument and changes nothing.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..client import checks, limits
from ..client.errors import InvalidArgument, LimitExceeded
from ..client.wire import field
from ..raft.types import GroupId
from ..statemachine.band_reads import Band, Position

_BANDS_MAX: Final = 1_024
T = TypeVar("T")
Body = dict[Any, Any]


def integer(body: Body, name: str, default: int | None = None) -> int:
    """An integer from 0 to 2^63 - 1; `default` where the field is missing or nil."""
    value = body.get(name)
    if value is None and default is not None:
        return default
    return checks.number(value, name)


def integers(body: Body, name: str, count: int) -> tuple[int, ...]:
    """So many integers from 0 to 2^63 - 1."""
    found = body.get(name)
    if not isinstance(found, list | tuple) or list(map(type, found)) != [int] * count:
        raise invalid(name)
    if min(found) < 0 or max(found) > limits.number_max:
        raise invalid(name)
    return tuple(found)


def optional_integer(body: Body, name: str) -> int | None:
    """An integer from 0 to 2^63 - 1, or None."""
    return None if body.get(name) is None else integer(body, name)


def optional_text(body: Body, name: str) -> str | None:
    """A string, or None."""
    value: str | None = field(body, name, str, type(None))
    return value


def group(body: Body) -> GroupId:
    """The generation that a request names."""
    return GroupId(integer(body, "range"), integer(body, "generation"))


def key(body: Body, name: str = "key") -> bytes:
    """A key. Raises LimitExceeded too."""
    value: bytes = field(body, name, bytes)
    if not 1 <= len(value) <= limits.key_bytes_max:
        raise LimitExceeded(
            f"`{name}` of {len(value)} bytes; a key has 1 to {limits.key_bytes_max}",
            limit="key_bytes_max", value=len(value), allowed=limits.key_bytes_max,
        )  # fmt: skip
    return value


def optional_key(body: Body, name: str) -> bytes | None:
    """A key, or None where the field is missing or nil."""
    return None if body.get(name) is None else key(body, name)


def bound(body: Body, name: str) -> bytes:
    """Where a span of keys begins; missing, nil or empty: at the first key."""
    return b"" if body.get(name) in (None, b"") else key(body, name)


def removals(body: Body) -> list[tuple[bytes, int]]:
    """`keys`: one to `removal_keys_max` keys, each with the seq below which its entries go."""
    found = body.get("keys")
    if type(found) is not list or not found:
        raise InvalidArgument("`keys` must be an array of [key, before]", what="keys")
    if len(found) > limits.removal_keys_max:
        raise LimitExceeded(
            f"{len(found)} keys at once; at most {limits.removal_keys_max} are allowed: send them "
            "in parts",
            limit="removal_keys_max", value=len(found), allowed=limits.removal_keys_max,
        )  # fmt: skip
    if any(type(pair) is not list or len(pair) != 2 for pair in found):
        raise invalid("keys")
    pairs = [{"key": pair[0], "before": pair[1]} for pair in found]
    return [(key(pair), integer(pair, "before")) for pair in pairs]


def page_limit(body: Body, allowed: int) -> int:
    """`limit` elements of a page, at least 1."""
    value = optional_integer(body, "limit")
    return allowed if value is None else max(1, min(value, allowed))


def page_bytes(body: Body) -> int:
    """`bytes` of a page, at least 1."""
    value = integer(body, "bytes", limits.page_bytes_default)
    return max(1, min(value, limits.page_bytes_max))


def invalid(name: str) -> InvalidArgument:
    """The error of a field whose elements are not what they should be."""
    return InvalidArgument(f"`{name}` holds something else than it should", what=name)


def parsed(what: str, parse: Callable[[Any], T], value: Any) -> T:
    """What `parse` makes of a nested record of a peer. Raises InvalidArgument."""
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InvalidArgument(f"{what} that is none: {error!r}", what=what) from None


def position(body: Body) -> Position:
    """`position` of an export; nil: the beginning."""
    value = body.get("position")
    if value is None:
        return Position()
    if type(value) is not list or len(value) != 2 or type(value[0]) is not list:
        raise invalid("position")
    if len(value[0]) > _BANDS_MAX:
        raise invalid("position")
    (following,) = integers({"position": value[1:]}, "position", 1)
    return Position(tuple(map(_band, value[0])), following)


def _band(row: Any) -> Band:
    if type(row) is not list or len(row) != 4:
        raise invalid("position")
    first, end, seq = integers({"position": [row[0], row[1], row[3]]}, "position", 3)
    if type(row[2]) is not bytes:
        raise invalid("position")
    return Band(first, end, row[2], seq)
