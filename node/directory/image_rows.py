"""The rows of meta that hold an image of the metadata: one for each bucket, and one above them.

The row above the buckets says the version and how many bucket rows there are, so that a row that
is missing is found and not taken for an empty bucket (S12). A version before this one stored the
whole image in one row; such a row is still read.
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
    """What of one image is stored under a prefix. Whoever commits the rows has one at a time."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.version = -1
        """That is stored; -1: none."""
        self._stored: set[Bucket] = set()

    def all(self, version: int, packed: Mapping[Bucket, bytes]) -> tuple[Rows, Rows]:
        """The fields of the row above, and the rows of an image that replaces what is stored.

        What is under the prefix has to be deleted in the same transaction."""
        self._stored.clear()
        return self.changed(version, packed)[:2]

    def changed(self, version: int, packed: Mapping[Bucket, bytes]) -> tuple[Rows, Rows, list[str]]:
        """The fields of the row above, the rows of these buckets, and the keys to delete."""
        empty = [bucket for bucket, data in packed.items() if not data]
        gone = self._stored.intersection(empty)
        self._stored.difference_update(gone)
        self._stored.update(packed.keys() - set(empty))
        self.version = version
        rows = {self._key(bucket): data for bucket, data in packed.items() if data}
        head = {_VERSION: version, _BUCKETS: len(self._stored)}
        return head, rows, list(map(self._key, gone))

    def load(self, items: Iterable[tuple[str, Any]], head: Mapping[str, Any]) -> Metadata:
        """The image whose row above is `head`, from the rows under the prefix.

        Raises CorruptData, and KeyError or TypeError for a row above that is none."""
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
                f"{head[_BUCKETS]} were stored"
            )
        metadata.version = metadata.changes.floor = self.version = head[_VERSION]
        return metadata

    def _key(self, bucket: Bucket) -> str:
        return f"{self.prefix}{bucket.table}/{bucket.number:012d}"


def packed_of(parts: Iterable[buckets.Part]) -> dict[Bucket, bytes]:
    """The bytes of parts as they came."""
    return {part.bucket: part.data for part in parts}


def _named(key: str) -> tuple[str, int]:
    table, _, number = key.partition("/")
    if not number.isdigit():
        raise CorruptData(f"meta row of the metadata with the key {key!r}")
    return table, int(number)
