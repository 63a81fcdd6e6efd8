"""The fields of a message one by one, with their inner fields, for the reference.

A path names a field: `page.keys` is the field `keys` of the map `page`, `ranges[].id` is the field
`id` of each element of `ranges`, and `leaders{}.term` the same of each value of a map of any names.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .kinds import Array, Kind, Later, Nullable, OneOf, Row, Table
from .record import OMIT, Optional, Record


class Field(NamedTuple):
    """A field. `need` says when the field is present, or gives its position in its array."""

    path: str
    need: str
    kind: Kind


def fields(record: Record) -> Iterator[Field]:
    """Return all fields of a record, each before its inner fields."""
    yield from _named(record.shape, "")


def positions(row: Row, before: str = "") -> Iterator[Field]:
    """Return the elements of a row, each before its inner fields."""
    for at, (name, kind) in enumerate(row.kinds.items()):
        path = f"{before}{name}"
        yield Field(path, f"at {at}", kind)
        yield from _inside(kind, path)


def _named(shape: Mapping[str, Kind | Optional], before: str) -> Iterator[Field]:
    for name, field in shape.items():
        path = f"{before}{name}"
        if isinstance(field, Optional):
            kind, need = field.kind, _need(field)
        else:
            kind, need = field, "required"
        yield Field(path, need, kind)
        yield from _inside(kind, path)


def _inside(kind: Kind, path: str) -> Iterator[Field]:
    if isinstance(kind, Record):
        yield from _named(kind.shape, f"{path}.")
    elif isinstance(kind, Row):
        yield from positions(kind, f"{path}.")
    elif isinstance(kind, Array):
        yield from _inside(kind.kind, f"{path}[]")
    elif isinstance(kind, Table):
        yield from _inside(kind.values, f"{path}{{}}")
    elif isinstance(kind, Nullable | Later):
        yield from _inside(kind.kind, path)
    elif isinstance(kind, OneOf):
        for each in kind.kinds:
            yield from _inside(each, path)


def _need(field: Optional) -> str:
    if field.default is OMIT and type(None) in field.kind.types:
        return "optional; may be nil"
    if field.default is OMIT or field.default in (None, ()):
        return "optional"
    return f"default {_shown(field.default)}"


def _shown(value: Any) -> str:
    """Return the value in the notation of most languages."""
    if isinstance(value, bytes):
        return "empty bytes" if not value else value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty text"
    return f"{value:,}" if isinstance(value, int) else repr(value)
