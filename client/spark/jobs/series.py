"""A series in a place: records as JSON files that count from 1 without gaps, each written once."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lognode.client.protocol.errors import CorruptData, InvalidArgument
from lognode.client.spark.jobs.place import Place
from lognode.client.vector import Vector

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_VERSION: Final = 1
_WRONG: Final = (ValueError, KeyError, TypeError, AttributeError, InvalidArgument)


class Numbered(Protocol):
    """A record of a series."""

    @property
    def export(self) -> str:
        """The id of the export, the same in all records."""
        ...

    @property
    def number(self) -> int:
        """Counts from 1."""
        ...


Made = TypeVar("Made")
Record = TypeVar("Record", bound=Numbered)


def to_json(record: "DataclassInstance", snapshot: Vector) -> str:
    """Return the JSON of a record with its snapshot, for `from_json`."""
    body = asdict(record) | {"v": _VERSION, "snapshot": snapshot.to_document()}
    return json.dumps(body, ensure_ascii=False, indent=2) + "\n"


def from_json(text: str, name: str, what: str, make: Callable[[dict[str, Any]], Made]) -> Made:
    """Undo `to_json`: `make` gets the fields. `what` is the kind of the record. Raises CorruptData,
    which names the file."""
    try:
        body: dict[str, Any] = json.loads(text)
        if body.pop("v") != _VERSION:
            raise ValueError(f"the {what} has another version")
        body["snapshot"] = Vector.from_json(json.dumps(body["snapshot"]))
        return make(body)
    except _WRONG as error:
        raise CorruptData(f"{name} is not a {what} of an export: {error}") from None


def in_order(
    place: Place, names: Iterable[str], what: str, parse: Callable[[str, str], Record]
) -> list[Record]:
    """Return the records of these files. `parse` gets a text and the path.

    Raises CorruptData for an invalid record and for gaps.
    """
    found: list[Record] = []
    for name in names:
        found.append(parse(place.read(name), place.path(name)))
        if found[-1].number != len(found) or found[-1].export != found[0].export:
            raise CorruptData(
                f"{place.path(name)} does not follow the {what} before it; a {what} is missing"
            )
    return found
