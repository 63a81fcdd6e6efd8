"""Fields of what a node answers, checked: a client trusts a node no more than a node its clients.

An answer that is not what was asked for raises RemoteProtocolError, where it is read.
"""

from collections.abc import Mapping
from typing import Any

from .columns import all_are
from .errors import RemoteProtocolError

Answer = Mapping[Any, Any]


def integer(answer: Answer, name: str) -> int:
    """An integer of 0 or more that must be there."""
    value = answer.get(name)
    if type(value) is not int or value < 0:
        raise RemoteProtocolError(f"an answer whose {name!r} is not an integer of 0 or more")
    return value


def higher(answer: Answer, name: str, than: int) -> int:
    """An integer above another one: where reading goes on."""
    value = integer(answer, name)
    if value <= than:
        raise RemoteProtocolError(f"an answer whose {name!r} is {value}, and not above {than}")
    return value


def lower(answer: Answer, name: str, than: int | None) -> int:
    """An integer below another one, if there is one: where reading backwards goes on."""
    value = integer(answer, name)
    if than is not None and value >= than:
        raise RemoteProtocolError(f"an answer whose {name!r} is {value}, and not below {than}")
    return value


def end_key(answer: Answer, after: bytes) -> bytes | None:
    """`end_key`: a key above `after`, or None."""
    value = answer.get("end_key")
    if value is not None and (type(value) is not bytes or value <= after):
        raise RemoteProtocolError("an answer up to a key that it cannot end at")
    return value


def integers(answer: Answer, name: str) -> list[int]:
    """A list of integers that must be there."""
    value = answer.get(name)
    if not isinstance(value, list | tuple) or not all_are(int, value):
        raise RemoteProtocolError(f"an answer whose {name!r} is not an array of integers")
    return list(value)


def keys(answer: Answer, name: str) -> list[bytes]:
    """A list of keys that must be there."""
    value = answer.get(name)
    if type(value) is not list or not all_are(bytes, value):
        raise RemoteProtocolError(f"an answer whose {name!r} is not an array of keys")
    return value


def rows(answer: Answer, name: str) -> list[dict[Any, Any]]:
    """A list of maps that must be there."""
    value = answer.get(name)
    if type(value) is not list or not all_are(dict, value):
        raise RemoteProtocolError(f"an answer whose {name!r} is not an array of maps")
    return value


def headers_by_position(value: Any) -> dict[int, dict[bytes, bytes]]:
    """The headers of a page: a map of positions to maps of bytes to bytes; None: an empty one.

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
