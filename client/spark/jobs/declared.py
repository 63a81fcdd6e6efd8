"""Typed columns from a declared JSON schema: which values fit, and their columns. No Spark.

The schema is a JSON Schema of an object, of which each property is a column. A keyword that this
module does not check is refused, so that no value counts as checked that is not. A value that does
not fit raises nothing: the caller gets a reason, which names the property and the kinds, and never
text of the value.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NoReturn

import pyarrow as pa

from lognode.client.protocol.errors import InvalidArgument

columns_max: Final = 1_000
depth_max: Final = 16
schema_bytes_max: Final = 1 << 20
_RESERVED: Final = (
    "key", "value", "seq", "timestamp", "headers", "snapshot", "day", "reason", "file", "first",
    "of",
)  # fmt: skip
"""The columns of the export itself, and of its removals."""
_NOTES: Final = (
    "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated",
    "readOnly", "writeOnly",
)  # fmt: skip
"""Keywords that say nothing about which values fit."""
_KEYWORDS: Final = {
    "string": ("format",), "integer": (), "number": (), "boolean": (), "array": ("items",),
    "object": ("properties", "required", "additionalProperties"),
}  # fmt: skip
_KINDS: Final = {
    str: "a string", int: "an integer", float: "a number", bool: "a boolean", list: "an array",
    dict: "an object", type(None): "null",
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
Convert = Callable[[Any], Any]
"""Returns the value of a column. Raises Unfit."""


class Unfit(Exception):
    """A value does not fit the schema; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a property may be."""

    type: pa.DataType
    convert: Convert


@dataclass(frozen=True, slots=True)
class Declared:
    """The columns of a schema, in order."""

    text: str
    """The schema, as `declared` takes it."""
    schema: pa.Schema
    convert: Convert

    def fit(self, value: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        """Return the columns of a value, or the reason why the value does not fit. A tombstone
        fits, and has no columns."""
        if value is None:
            return {}, None
        try:
            found: dict[str, Any] = self.convert(_parsed(value))
        except Unfit as error:
            return None, str(error)
        return found, None

    def arrays(self, values: Sequence[bytes | None]) -> tuple[list[pa.Array], list[str | None]]:
        """Return the columns of some values, and the reason of each value that does not fit."""
        rows = [self.fit(value) for value in values]
        arrays = [
            pa.array([None if row is None else row.get(field.name) for row, _ in rows], field.type)
            for field in self.schema
        ]
        return arrays, [reason for _, reason in rows]


def declared(text: str) -> Declared:
    """Return the columns of a schema. Raises InvalidArgument."""
    if len(text) > schema_bytes_max:
        raise _wrong("the schema", f"has {len(text)} characters; the limit is {schema_bytes_max}")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong("the schema", f"is not JSON: {error}") from None
    if not isinstance(body, dict) or body.get("type") != "object":
        raise _wrong("$", 'is not an object; write "type": "object" and "properties"')
    try:
        kind = _object(body, "$", 0, _RESERVED)
    except RecursionError:
        raise _wrong("the schema", f"is nested too deep; the limit is {depth_max}") from None
    schema = pa.schema(list(kind.type))
    if len(schema) > columns_max:
        raise _wrong("$", f"has {len(schema)} properties; the limit is {columns_max}")
    return Declared(json.dumps(body), schema, kind.convert)


def check_follows(before: Declared, after: Declared) -> None:
    """Raise InvalidArgument unless the later schema has all columns of the earlier schema."""
    for field in before.schema:
        at = after.schema.get_field_index(field.name)
        if at < 0:
            raise _wrong(
                "$", f"lacks the column {field.name!r}, which the export has; a later schema may "
                "add columns, and takes none away. Add the property",
            )  # fmt: skip
        if after.schema.field(at).type != field.type:
            raise _wrong(
                "$", f"has {after.schema.field(at).type} for column {field.name!r}; the export "
                f'has {field.type}. Give the new type another column by "x-column"',
            )  # fmt: skip


def _parsed(value: bytes) -> Any:
    try:
        return json.loads(value.decode("utf-8"), parse_constant=_constant)
    except UnicodeDecodeError:
        raise Unfit("the value is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Unfit(f"the value is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Unfit("the value is nested too deep") from None
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise Unfit("the value has a number with too many digits") from None


def _constant(name: str) -> NoReturn:
    raise Unfit(f"the value is not JSON: {name} is not a number of JSON")


# Kinds of properties. `path` names the property in errors.


def _kind(body: Any, path: str, depth: int) -> _Kind:
    """Return the kind of a property, with null where the schema allows null."""
    if not isinstance(body, dict):
        raise _wrong(path, 'is not a schema; write an object with "type"')
    if depth > depth_max:
        raise _wrong(path, f"is nested {depth} deep; the limit is {depth_max}")
    given = body.get("type")
    names = given if isinstance(given, list) else [given]
    others = [name for name in names if name != "null"]
    if len(others) != 1 or not isinstance(others[0], str) or others[0] not in _KEYWORDS:
        raise _wrong(
            path, f"has the type {given!r}; give string, integer, number, boolean, array or "
            'object, or a list of such a type and "null"',
        )  # fmt: skip
    _check_keywords(body, path, others[0])
    if others[0] == "object":
        kind = _object(body, path, depth, ())
    elif others[0] == "array":
        kind = _array(body, path, depth)
    elif others[0] == "string":
        kind = _STRINGS.get(str(body.get("format")), _string)(path)
    else:
        kind = _PLAIN[others[0]](path)
    if "null" not in names:
        return kind
    convert = kind.convert
    return _Kind(kind.type, lambda value: None if value is None else convert(value))


def _check_keywords(body: Mapping[str, Any], path: str, name: str) -> None:
    allowed = ("type", "x-column", *_NOTES, *_KEYWORDS[name])
    for keyword in body:
        if keyword not in allowed:
            raise _wrong(
                path, f"has the keyword {keyword!r}, which is not checked; give "
                f"{', '.join(('type', *_KEYWORDS[name]))} or x-column. Remove the keyword",
            )  # fmt: skip


def _object(body: Mapping[str, Any], path: str, depth: int, reserved: Sequence[str]) -> _Kind:
    _check_keywords(body, path, "object")
    properties, required = body.get("properties"), body.get("required", [])
    others = body.get("additionalProperties", True)
    if not isinstance(properties, dict) or not properties:
        raise _wrong(path, 'has no properties; write "properties": {"name": {"type": "string"}}')
    if not isinstance(required, list) or not all(
        isinstance(name, str) and name in properties for name in required
    ):
        raise _wrong(path, 'has "required" that is not a list of its properties')
    if not isinstance(others, bool):
        raise _wrong(path, 'has "additionalProperties" that is not true or false')
    fields: list[pa.Field] = []
    readers: list[tuple[str, str, Convert, bool]] = []
    taken = {name: f"the export has a column {name!r}" for name in reserved}
    for name, each in properties.items():
        kind = _kind(each, f"{path}.{name}", depth + 1)
        column = each.get("x-column", name)
        _check_column(column, f"{path}.{name}", taken)
        fields.append(pa.field(column, kind.type))
        readers.append((name, column, kind.convert, name in required))
    known = None if others else frozenset(properties)

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _unfit(path, value, "an object")
        if known is not None and not known.issuperset(value):
            raise Unfit(f"{path} has a property that the schema does not have")
        found = {}
        for name, column, read, is_required in readers:
            if name in value:
                found[column] = read(value[name])
            elif is_required:
                raise Unfit(f"{path} lacks the required property {name!r}")
        return found

    return _Kind(pa.struct(fields), convert)


def _check_column(column: Any, path: str, taken: dict[str, str]) -> None:
    """Raise InvalidArgument for a name that Spark or Iceberg could not use. Spark takes names that
    differ only in case for the same name."""
    if not isinstance(column, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", column):
        why = "a name of a column has letters, digits and _, and begins with no digit"
    elif column.lower() in taken:
        why = taken[column.lower()]
    else:
        taken[column.lower()] = f"another property has the column {column!r}"
        return
    raise _wrong(path, f'cannot be the column {column!r}: {why}. Add "x-column": "another_name"')


def _array(body: Mapping[str, Any], path: str, depth: int) -> _Kind:
    item = _kind(body.get("items"), f"{path}[]", depth + 1)
    read = item.convert

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _unfit(path, value, "an array")
        return [read(each) for each in value]

    return _Kind(pa.list_(item.type), convert)


def _string(path: str) -> _Kind:
    def convert(value: Any) -> str:
        if type(value) is not str:
            raise _unfit(path, value, "a string")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise Unfit(f"{path} has half of a surrogate pair") from None
        return value

    return _Kind(pa.string(), convert)


def _moment(path: str) -> _Kind:
    def convert(value: Any) -> int:
        if type(value) is not str:
            raise _unfit(path, value, "a string")
        try:
            return (datetime.fromisoformat(value) - _EPOCH) // _US
        except (ValueError, TypeError, OverflowError):
            raise Unfit(f"{path} is not a time of ISO 8601 with a zone") from None

    return _Kind(pa.timestamp("us", "UTC"), convert)


def _date(path: str) -> _Kind:
    def convert(value: Any) -> date:
        if type(value) is not str:
            raise _unfit(path, value, "a string")
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise Unfit(f"{path} is not a date of ISO 8601") from None

    return _Kind(pa.date32(), convert)


def _integer(path: str) -> _Kind:
    def convert(value: Any) -> int:
        if type(value) is float and value.is_integer():  # 1.0 is an integer of JSON Schema
            value = int(value)
        if type(value) is not int:
            raise _unfit(path, value, "an integer")
        if not -(1 << 63) <= value < 1 << 63:
            raise Unfit(f"{path} is an integer of more than 64 bits")
        return value

    return _Kind(pa.int64(), convert)


def _number(path: str) -> _Kind:
    def convert(value: Any) -> float:
        if type(value) is not float and type(value) is not int:
            raise _unfit(path, value, "a number")
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise Unfit(f"{path} is a number beyond 64 bits")
        return found

    return _Kind(pa.float64(), convert)


def _boolean(path: str) -> _Kind:
    def convert(value: Any) -> bool:
        if type(value) is not bool:
            raise _unfit(path, value, "a boolean")
        return value

    return _Kind(pa.bool_(), convert)


_STRINGS: Final[dict[str, Callable[[str], _Kind]]] = {
    "date-time": _moment, "date": _date
}  # fmt: skip
_PLAIN: Final = {"integer": _integer, "number": _number, "boolean": _boolean}


def _unfit(path: str, value: Any, wanted: str) -> Unfit:
    return Unfit(f"{path} is {_KINDS[type(value)]}; the schema has {wanted}")


def _wrong(path: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"--schema: {path} {why}", what="schema")


def batches(text: str, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the columns of the schema, and with the column `reason`: null for a
    row that fits."""
    made = declared(text)
    for batch in given:
        arrays, reasons = made.arrays(batch.column("value").to_pylist())
        names = [*batch.schema.names, *made.schema.names, "reason"]
        columns = [*batch.columns, *arrays, pa.array(reasons, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=names)
