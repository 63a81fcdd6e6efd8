"""Check the fields of a node's answers. A client trusts a node no more than a node trusts a client.

A field of another type, or out of bounds, raises RemoteProtocolError where the client reads it.
"""

from collections.abc import Mapping
from typing import Any

from .columns import all_are
from .errors import RemoteProtocolError

Answer = Mapping[Any, Any]


def integer(answer: Answer, name: str) -> int:
    """Return a field that must be an integer of 0 or more."""
    value = answer.get(name)
    if type(value) is not int or value < 0:
        raise RemoteProtocolError(f"an answer whose {name!r} is not an integer of 0 or more")
    return value


def higher(answer: Answer, name: str, than: int) -> int:
    """Return an integer that must be above `than`: the position where reading goes on."""
    value = integer(answer, name)
    if value <= than:
        raise RemoteProtocolError(f"an answer whose {name!r} is {value}, and not above {than}")
    return value


def lower(answer: Answer, name: str, than: int | None) -> int:
    """Return an integer that must be below `than`: the position where reading backwards goes on."""
    value = integer(answer, name)
    if than is not None and value >= than:
        raise RemoteProtocolError(f"an answer whose {name!r} is {value}, and not below {than}")
    return value


def end_key(answer: Answer, after: bytes) -> bytes | None:
    """Return the field `end_key`, which must be a key above `after`, or None."""
    value = answer.get("end_key")
    if value is not None and (type(value) is not bytes or value <= after):
        raise RemoteProtocolError("an answer that ends at a key where it cannot end")
    return value


def integers(answer: Answer, name: str) -> list[int]:
    """Return a field that must be a list of integers."""
    value = answer.get(name)
    if not isinstance(value, list | tuple) or not all_are(int, value):
        raise RemoteProtocolError(f"an answer whose {name!r} is not an array of integers")
    return list(value)


def keys(answer: Answer, name: str) -> list[bytes]:
    """Return a field that must be a list of keys."""
    value = answer.get(name)
    if type(value) is not list or not all_are(bytes, value):
        raise RemoteProtocolError(f"an answer whose {name!r} is not an array of keys")
    return value


def rows(answer: Answer, name: str) -> list[dict[Any, Any]]:
    """Return a field that must be a list of maps."""
    value = answer.get(name)
    if type(value) is not list or not all_are(dict, value):
        raise RemoteProtocolError(f"an answer whose {name!r} is not an array of maps")
    return value


def headers_by_position(value: Any) -> dict[int, dict[bytes, bytes]]:
    """Return the headers of a page: by position, a map of bytes to bytes. None gives no headers.

    Raises ValueError.
    """
    if value is None:
        return {}
    if type(value) is dict and all_are(int, list(value)):
        maps = list(value.values())
        names = [name for each in maps if type(each) is dict for name in each]
        texts = [text for each in maps if type(each) is dict for text in each.values()]
        if all_are(dict, maps) and all_are(bytes, names) and all_are(bytes, texts):
            return value
    raise ValueError("headers that are not maps of bytes to bytes")
