"""The contents of an export: a series of manifests, each of which names a vector and a directory of
Parquet files.

    OUT/manifests/00000001.json             written last, whole, never over another
    OUT/data/00000001-ATTEMPT/day=.../*.parquet

A directory that no manifest names does not count: it is the rest of a killed export. Each attempt
has its own directory, so it cannot contain files of another attempt.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from lognode.client.protocol.errors import CorruptData, InvalidArgument
from lognode.client.spark.jobs.place import Place
from lognode.client.vector import Vector

_VERSION: Final = 1
_FOLDER: Final = "manifests"
_DATA: Final = "data"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export: the entries of `snapshot` that the previous manifest's snapshot does not have."""

    export: str
    """The id of the export, the same in all manifests of a place."""
    number: int
    """Counts from 1, without gaps."""
    data: str
    """The directory of the Parquet files, relative to the place."""
    entries: int
    snapshot: Vector
    schema: str = ""
    """The declared schema of the typed columns, as JSON; empty: no typed columns."""

    def to_json(self) -> str:
        """Return the JSON for `from_json`."""
        body = asdict(self) | {"v": _VERSION, "snapshot": self.snapshot.to_document()}
        return json.dumps(body, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """Undo `to_json`. Raises CorruptData."""
        try:
            body: dict[str, Any] = json.loads(text)
            if body.pop("v") != _VERSION:
                raise ValueError("the manifest has another version")
            body["snapshot"] = Vector.from_json(json.dumps(body["snapshot"]))
            return cls(**body)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidArgument) as error:
            raise CorruptData(f"{name} is not a manifest of an export: {error}") from None


def all_of(place: Place) -> list[Manifest]:
    """Return the manifests in order. Raises CorruptData for an invalid manifest and for gaps."""
    found = []
    for name in place.names(_FOLDER):
        if name.startswith("."):
            continue
        whole = f"{_FOLDER}/{name}"
        found.append(Manifest.from_json(place.read(whole), place.path(whole)))
        if found[-1].number != len(found) or found[-1].export != found[0].export:
            raise CorruptData(
                f"{place.path(whole)} does not follow the manifest before it; a manifest is missing"
            )
    return found


def attempt(number: int, mark: str) -> str:
    """Return the directory of one attempt at the export."""
    return f"{_DATA}/{number:08}-{mark}"


def rejected_of(data: str) -> str:
    """Return the directory of the entries that do not fit the schema, beside the directory `data`
    of the entries that fit."""
    return f"{data}-rejected"


def commit(place: Place, made: Manifest) -> None:
    """Publish the export. Raises Conflict when another export was first."""
    place.create(f"{_FOLDER}/{made.number:08}.json", made.to_json())


def tidy(place: Place, manifests: Sequence[Manifest]) -> int:
    """Remove the remains of attempts at these exports; attempts at later exports stay."""
    named = {name for made in manifests for name in (made.data, rejected_of(made.data))}
    left = [
        f"{_DATA}/{name}" for name in place.names(_DATA)
        if f"{_DATA}/{name}" not in named and name[:8].isdigit() and int(name[:8]) <= len(manifests)
    ]  # fmt: skip
    for name in left:
        place.remove(name)
    return len(left)
