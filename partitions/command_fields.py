"""Read fields of a metadata command by their types; raise an error that names a wrong field."""

from typing import Any

from ..client.protocol.errors import InvalidArgument

Command = dict[str, Any]


def number(command: Command, name: str) -> int:
    """Return an integer that is not negative, or 0 when absent. Raises InvalidArgument."""
    value = command.get(name) or 0
    if type(value) is not int or value < 0:
        raise InvalidArgument(f"{name} is {value!r}; give an integer", what=name)
    return value


def numbers(command: Command, name: str) -> list[int]:
    """Return a list of integers, empty when absent. Raises InvalidArgument."""
    values = command.get(name) or []
    if type(values) is not list or not all(type(value) is int for value in values):
        raise InvalidArgument(f"{name} is {values!r}; give integers", what=name)
    return values


def text(command: Command, name: str) -> str:
    """Return a text, empty when absent. Raises InvalidArgument."""
    value = command.get(name) or ""
    if type(value) is not str:
        raise InvalidArgument(f"{name} is {value!r}; give a text", what=name)
    return value


def key(command: Command, name: str) -> bytes:
    """Return a key of any length. Raises InvalidArgument."""
    value = command.get(name)
    if type(value) is not bytes:
        raise InvalidArgument(f"{name} is {value!r}; give a key", what=name)
    return value
