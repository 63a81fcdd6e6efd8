"""The removals of an export: what the log removed after it was exported leaves the files too.

    OUT/removals/00000001.json              written last, whole, never over another
    OUT/removals/00000001.done              the replaced files are deleted
    OUT/data/removal-00000001-ATTEMPT/of=MANIFEST/day=.../*.parquet
    OUT/tables/UUID, OUT/tables/UUID-00000001   a table that has files of the export, and a removal
                                                after which no snapshot of the table names the
                                                replaced files

A removal names the files that no longer count, and the directory of the files that replace them,
with the remaining entries of each manifest. As with manifests, a directory that no removal names is
the rest of a killed run. The replaced files are deleted after every table has left them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Self

from lognode.client.protocol.errors import Conflict
from lognode.client.spark.jobs import series
from lognode.client.spark.jobs.manifest import rejected_of
from lognode.client.spark.jobs.place import Place
from lognode.client.vector import Vector

_FOLDER: Final = "removals"
_TABLES: Final = "tables"
_DATA: Final = "data"
_ATTEMPT: Final = "removal-"


@dataclass(frozen=True, slots=True)
class Removal:
    """The exported entries that the log does not show in `snapshot`, taken out of the export."""

    export: str
    """The id of the export."""
    number: int
    """Counts from 1, without gaps."""
    gone: tuple[str, ...]
    """The replaced files, relative to the place."""
    data: str
    """The directory of the files that replace them, relative to the place."""
    entries: int
    """How many entries were removed."""
    unix_s: int
    """When the replaced files ceased to count."""
    snapshot: Vector

    def to_json(self) -> str:
        """Return the JSON for `from_json`."""
        return series.to_json(self, self.snapshot)

    @classmethod
    def from_json(cls, text: str, name: str) -> Self:
        """Undo `to_json`. Raises CorruptData."""
        return series.from_json(
            text, name, "removal", lambda fields: cls(**fields | {"gone": tuple(fields["gone"])})
        )


def all_of(place: Place) -> list[Removal]:
    """Return the removals in order. Raises CorruptData for an invalid removal and for gaps."""
    names = (
        f"{_FOLDER}/{name}" for name in place.names(_FOLDER)
        if name.endswith(".json") and not name.startswith(".")
    )  # fmt: skip
    return series.in_order(place, names, "removal", Removal.from_json)


def attempt(number: int, mark: str) -> str:
    """Return the directory of one attempt at the removal."""
    return f"{_DATA}/{_ATTEMPT}{number:08}-{mark}"


def commit(place: Place, made: Removal) -> None:
    """Publish the removal. Raises Conflict when another removal was first."""
    place.create(f"{_FOLDER}/{made.number:08}.json", made.to_json())


def tidy(place: Place, removals: Sequence[Removal]) -> None:
    """Remove the remains of attempts at these removals; attempts at later removals stay."""
    named = {name for made in removals for name in (made.data, rejected_of(made.data))}
    for name in place.names(_DATA):
        number = name.removeprefix(_ATTEMPT)[:8]
        if name.startswith(_ATTEMPT) and number.isdigit() and int(number) <= len(removals) and (
            f"{_DATA}/{name}" not in named
        ):  # fmt: skip
            place.remove(f"{_DATA}/{name}")


def due(place: Place, removals: Sequence[Removal], now_s: float, keep_s: float) -> list[Removal]:
    """Return the removals whose replaced files are still there, and were replaced `keep_s` ago."""
    names = set(place.names(_FOLDER))
    return [
        made for made in removals
        if f"{made.number:08}.done" not in names and made.unix_s + keep_s <= now_s
    ]  # fmt: skip


def register(place: Place, name: str, uuid: str) -> None:
    """Record a table that is about to get files of the export."""
    if uuid not in place.names(_TABLES):
        _created(place, f"{_TABLES}/{uuid}", name)


def left(place: Place, uuid: str, made: Removal) -> None:
    """Record that no snapshot of the table names the files that the removal replaced."""
    if f"{uuid}-{made.number:08}" not in place.names(_TABLES):
        _created(place, f"{_TABLES}/{uuid}-{made.number:08}", "")


def delete(place: Place, made: Removal) -> list[str]:
    """Delete the files that the removal replaced, unless a table may name them; return such tables.

    A run that was killed in between is repeated.
    """
    names = set(place.names(_TABLES))
    behind = [uuid for uuid in _uuids(names) if f"{uuid}-{made.number:08}" not in names]
    if behind:
        return [f"{place.read(f'{_TABLES}/{uuid}').strip()} ({uuid})" for uuid in behind]
    for name in made.gone:
        place.remove(name)
    _created(place, f"{_FOLDER}/{made.number:08}.done", "")
    return []


def _uuids(names: Collection[str]) -> list[str]:
    """Return the names of the tables themselves: a UUID has 36 characters."""
    return sorted(name for name in names if len(name) == 36 and not name.startswith("."))


def _created(place: Place, name: str, text: str) -> None:
    try:
        place.create(name, text + "\n")
    except Conflict:
        return  # another run recorded the same
