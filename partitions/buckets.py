"""Images of the metadata in buckets: packed, read, and reassembled.

A reader at version V gets all buckets that changed after V, in the order of their last change. With
the last bucket it holds the newest version: a bucket that changes meanwhile moves to the end of the
order and comes again. An image therefore needs no frozen copy, for any number of pages, and a
change of one range costs only the buckets of that range.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple, Self

import msgpack

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData, InvalidArgument
from .metadata import Metadata
from .metadata_state import MetadataState
from .received_rows import ALWAYS, is_row
from .tables import Bucket, bucket_of

PUBLIC: Final = frozenset(
    name for name, table in MetadataState().tables.items() if table.kind.is_public
)
"""The tables that every node gets."""
ALL: Final = frozenset(MetadataState().tables)
_BAD: Final = (
    ArithmeticError, AttributeError, InvalidArgument, LookupError, TypeError, ValueError,
)  # fmt: skip


class Part(NamedTuple):
    """One bucket as received, and its records."""

    bucket: Bucket
    data: bytes
    records: dict[Any, Any]


def pack(state: MetadataState, bucket: Bucket) -> bytes:
    """Return the packed records of the bucket, or b"" for an empty bucket."""
    data = state.changes.packed.get(bucket)
    if data is None:
        table = state.tables[bucket.table]
        write = table.kind.write
        told = [write(key, table[key]) for key in table.keys_of(bucket.number)]
        data = msgpack.packb(told) if told else b""
        state.changes.packed[bucket] = data
    return data


def is_packed(state: MetadataState, bucket: Bucket) -> bool:
    """Whether the packed bytes of the bucket are already kept."""
    return bucket in state.changes.packed


def read(state: MetadataState, name: object, number: object, data: object) -> Part:
    """Read a bucket from another place; `state` only tells which tables exist.

    Raises CorruptData for anything but a bucket.
    """
    table = state.tables.get(name) if isinstance(name, str) else None
    if table is None or type(number) is not int or number < 0 or type(data) is not bytes:
        raise CorruptData("a bucket of the metadata does not name its table, number or bytes")
    if len(data) > limits.bucket_bytes_max:
        raise CorruptData(
            f"a bucket of table {name} has {len(data)} bytes; the limit is "
            f"{limits.bucket_bytes_max}"
        )
    try:
        told = msgpack.unpackb(data, strict_map_key=False) if data else []
        bad = [row for row in told if not is_row(table.kind.name, row)]
        if bad:
            raise ValueError(f"{bad[0]!r:.300}")
        records = dict(map(table.kind.read, told))
        strange = [key for key in records if bucket_of(key) != number]
    except (*_BAD, msgpack.UnpackException) as error:
        raise CorruptData(f"bucket {number} of table {name} is malformed: {error!r}") from None
    missing = ALWAYS.get(table.kind.name, frozenset()) - records.keys()
    if missing:
        raise CorruptData(f"table {name} of the metadata lacks {sorted(missing)[0]}")
    if strange:
        raise CorruptData(f"bucket {number} of table {name} has the key {strange[0]!r}")
    return Part(Bucket(table.kind.name, number), data, records)


def put(state: MetadataState, part: Part, version: int) -> None:
    """Replace the bucket's records by the part's records, which are of that version."""
    table, bucket = state.tables[part.bucket.table], part.bucket
    for key in table.keys_of(bucket.number):
        if key not in part.records:
            table.drop(key)
    for key, value in part.records.items():
        table.put(key, value)
    state.version = version
    state.changes.touched[bucket] = None
    state.settle()
    if part.data:
        state.changes.packed[bucket] = part.data


def copy(state: MetadataState, tables: Collection[str] = PUBLIC) -> Metadata:
    """Return a copy of these tables. The records are shared: records never change in place."""
    found = Metadata()
    for name in tables:
        found.tables[name].take(state.tables[name])
    found.version = state.version
    found.changes.take(state.changes, tables)
    return found


class Staged:
    """Parts under way: they become a state when the last part is there."""

    def __init__(self) -> None:
        self.full = False
        """Whether the parts are the whole state, and not only the changes."""
        self.parts: dict[Bucket, Part] = {}
        self.size = 0

    def begin(self, *, full: bool) -> Self:
        """Forget the parts so far."""
        self.full, self.parts, self.size = full, {}, 0
        return self

    def add(self, part: Part) -> None:
        """Take a bucket; the newest bucket of a name counts.

        Raises CorruptData beyond the bound.
        """
        before = self.parts.pop(part.bucket, None)
        self.size += len(part.data) - (0 if before is None else len(before.data))
        if self.size > limits.image_bytes_max:
            raise CorruptData(f"an image of the metadata has over {limits.image_bytes_max} bytes")
        self.parts[part.bucket] = part
