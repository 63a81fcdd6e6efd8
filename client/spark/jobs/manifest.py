"""The contents of an export: a series of manifests, each of which names a vector and a directory of
Parquet files.

    OUT/manifests/00000001.json             written last, whole, never over another
    OUT/data/00000001-ATTEMPT/day=.../*.parquet

A directory that no manifest names does not count: it is the rest of a killed export. Each attempt
has its own directory, so it cannot contain files of another attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from lognode.client.spark.jobs import series
from lognode.client.spark.jobs.place import Place
from lognode.client.vector import Vector

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
        return series.to_json(self, self.snapshot)

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """Undo `to_json`. Raises CorruptData."""
        return series.from_json(text, name, "manifest", lambda fields: cls(**fields))


def all_of(place: Place) -> list[Manifest]:
    """Return the manifests in order. Raises CorruptData for an invalid manifest and for gaps."""
    names = (
        f"{_FOLDER}/{name}" for name in place.names(_FOLDER)
        if not name.startswith(".")
    )  # fmt: skip
    return series.in_order(place, names, "manifest", Manifest.from_json)


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
