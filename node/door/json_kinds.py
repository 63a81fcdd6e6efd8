"""The kinds of JSON values in requests: each checks a value, and describes itself for OpenAPI.

Bytes are text where they are UTF-8, else `{"b64": "..."}`, in requests and in answers.
"""

import binascii
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument
from ...client.protocol.types import ABSENT, ANY

Schema = dict[str, Any]
_SHOWN_MAX: Final = 100
_B64_MAX: Final = (limits.value_bytes_max + 2) // 3 * 4
"""The characters of the largest value."""
BYTES_SCHEMA: Final[Schema] = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "required": ["b64"],
            "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
            "additionalProperties": False,
        },
    ],
    "description": 'Text, or `{"b64": ...}` for bytes that are not UTF-8.',
}


class Kind(NamedTuple):
    """A kind of value. `take` gets a JSON value and its name, and returns the value for the SDK; it
    raises InvalidArgument."""

    schema: Schema
    take: Callable[[Any, str], Any]


class Field(NamedTuple):
    """A field of an object."""

    kind: Kind
    about: str
    required: bool = False


def refused(name: str, value: Any, wanted: str) -> InvalidArgument:
    """Return the error for a value that does not fit."""
    shown = "an array" if type(value) is list else "an object"
    if not isinstance(value, list | dict):
        # The text of a long value takes long to make.
        if isinstance(value, bytes):
            value = value[:_SHOWN_MAX].decode("utf-8", "backslashreplace")
        told = repr(value[:_SHOWN_MAX] if isinstance(value, str) else value)
        shown = told if len(told) <= _SHOWN_MAX else f"{told[:_SHOWN_MAX]}..."
    return InvalidArgument(f"{name} is {shown}; give {wanted}", what=name)


def integer(low: int, high: int) -> Kind:
    """Return the kind of integers from `low` to `high`."""

    def take(value: Any, name: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise refused(name, value, f"an integer from {low} to {high}")
        return value

    return Kind({"type": "integer", "minimum": low, "maximum": high}, take)


def _flag(value: Any, name: str) -> bool:
    if type(value) is not bool:
        raise refused(name, value, "true or false")
    return value


def _bytes(value: Any, name: str) -> bytes:
    try:
        if type(value) is str:
            return value.encode()
        if type(value) is dict and value.keys() == {"b64"} and type(value["b64"]) is str:
            if len(value["b64"]) > _B64_MAX:
                raise refused(name, value["b64"], f"at most {_B64_MAX} characters of base64")
            return binascii.a2b_base64(value["b64"], strict_mode=True)
    except UnicodeEncodeError:
        raise refused(name, value, 'text without lone surrogates, or {"b64": "..."}') from None
    except (binascii.Error, ValueError):
        raise refused(name, value, "base64 with its padding") from None
    raise refused(name, value, 'text, or {"b64": "..."}')


def _text(value: Any, name: str) -> str:
    if type(value) is not str:
        raise refused(name, value, "text")
    _bytes(value, name)
    return value


def _expect(value: Any, name: str) -> Any:
    if value == "any" or value == "absent":
        return ANY if value == "any" else ABSENT
    if type(value) is not int or not 1 <= value <= (1 << 63) - 1:
        raise refused(name, value, 'a seq, "absent" or "any"')
    return value


FLAG: Final = Kind({"type": "boolean"}, _flag)
TEXT: Final = Kind({"type": "string"}, _text)
BYTES: Final = Kind(BYTES_SCHEMA, _bytes)
EXPECT: Final = Kind(
    {
        "oneOf": [
            {"type": "integer", "minimum": 1, "maximum": (1 << 63) - 1},
            {"enum": ["absent", "any"]},
        ]
    },
    _expect,
)


def nullable(kind: Kind) -> Kind:
    """Return the kind of the values of another kind, and null."""

    def take(value: Any, name: str) -> Any:
        return None if value is None else kind.take(value, name)

    return Kind({"oneOf": [kind.schema, {"type": "null"}]}, take)


def list_of(kind: Kind, most: int) -> Kind:
    """Return the kind of lists of at most so many values."""

    def take(value: Any, name: str) -> list[Any]:
        if type(value) is not list or len(value) > most:
            raise refused(name, value, f"a list of at most {most} values")
        return [kind.take(each, f"{name}[{at}]") for at, each in enumerate(value)]

    return Kind({"type": "array", "maxItems": most, "items": kind.schema}, take)


def object_of(fields: Mapping[str, Field]) -> Kind:
    """Return the kind of objects with these fields and no others."""
    required = [name for name, field in fields.items() if field.required]

    def take(value: Any, name: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise refused(name, value, "an object")
        unknown = sorted(map(str, value.keys() - fields.keys()))
        if unknown:
            raise InvalidArgument(
                f"{name} has the field {unknown[0][:_SHOWN_MAX]!r}; give only {', '.join(fields)}",
                what=name,
            )
        missing = [each for each in required if each not in value]
        if missing:
            raise InvalidArgument(f"{name} has no field {missing[0]!r}; give it", what=missing[0])
        return {each: fields[each].kind.take(part, each) for each, part in value.items()}

    schema = {
        "type": "object",
        "properties": {
            name: field.kind.schema | {"description": field.about} for name, field in fields.items()
        },
        "required": required,
        "additionalProperties": False,
    }
    return Kind(schema, take)
