"""The rows of meta that hold an image of the metadata: one row per bucket, and one head row.

The head row says the version and the number of bucket rows, so that a missing row is found and not
taken for an empty bucket (S12). An earlier version stored the whole image in one row; such a row is
still read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...client.protocol.errors import CorruptData
from ...partitions import buckets
from ...partitions.metadata import Metadata
from ...partitions.tables import Bucket

_VERSION: Final = "version"
_BUCKETS: Final = "buckets"
_WHOLE: Final = "image"

Rows = dict[str, Any]


class ImageRows:
    """The stored rows of one image under a prefix. The caller commits one set of rows at a time."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.version = -1
        """The stored version; -1: no image is stored."""
        self._stored: set[Bucket] = set()

    def all(self, version: int, packed: Mapping[Bucket, bytes]) -> tuple[Rows, Rows]:
        """Return the fields of the head row, and the rows of an image that replaces the rest.

        All rows under the prefix must be deleted in the same transaction.
        """
        self._stored.clear()
        return self.changed(version, packed)[:2]

    def changed(self, version: int, packed: Mapping[Bucket, bytes]) -> tuple[Rows, Rows, list[str]]:
        """Return the fields of the head row, the rows of these buckets, and the keys to delete."""
        empty = [bucket for bucket, data in packed.items() if not data]
        gone = self._stored.intersection(empty)
        self._stored.difference_update(gone)
        self._stored.update(packed.keys() - set(empty))
        self.version = version
        rows = {self._key(bucket): data for bucket, data in packed.items() if data}
        head = {_VERSION: version, _BUCKETS: len(self._stored)}
        return head, rows, list(map(self._key, gone))

    def load(self, items: Iterable[tuple[str, Any]], head: Mapping[str, Any]) -> Metadata:
        """Return the image with this head row, from the rows under the prefix.

        Raises CorruptData, and KeyError or TypeError for an invalid head row.
        """
        whole = head.get(_WHOLE, head if "nodes" in head else None)
        if whole is not None:
            return Metadata.from_image(whole)
        metadata = Metadata()
        for key, data in items:
            part = buckets.read(metadata, *_named(key.removeprefix(self.prefix)), data)
            buckets.put(metadata, part, head[_VERSION])
            self._stored.add(part.bucket)
        if len(self._stored) != head[_BUCKETS]:
            raise CorruptData(
                f"meta has {len(self._stored)} rows of the metadata under {self.prefix}; "
                f"the node had stored {head[_BUCKETS]}"
            )
        self.version = head[_VERSION]
        metadata.begin_at(self.version)
        return metadata

    def _key(self, bucket: Bucket) -> str:
        return f"{self.prefix}{bucket.table}/{bucket.number:012d}"


def packed_of(parts: Iterable[buckets.Part]) -> dict[Bucket, bytes]:
    """Return the bytes of parts as they were received."""
    return {part.bucket: part.data for part in parts}


def _named(key: str) -> tuple[str, int]:
    table, _, number = key.partition("/")
    if not number.isdigit():
        raise CorruptData(f"meta has a row of the metadata with the bad key {key!r}")
    return table, int(number)
