"""Metadata as another node gets it: rows of buckets, packed, read, put together and checked."""

from typing import Any

import msgpack

from lognode.partitions import buckets
from lognode.partitions.metadata import Metadata
from lognode.partitions.received import steps
from lognode.partitions.tables import Bucket

Image = dict[str, Any]
"""`version`, and under `buckets` the rows of each."""


def sent(metadata: Metadata) -> Image:
    """The image of the metadata, unpacked, so that a test may change it."""
    found = {
        bucket: msgpack.unpackb(buckets.pack(metadata, bucket), strict_map_key=False)
        for table in metadata.tables.values()
        for bucket in table.buckets()
    }
    return {"version": metadata.version, "buckets": found}


def rows(image: Image, table: str) -> list[Any]:
    """The rows of the table's first bucket."""
    found: list[Any] = image["buckets"].setdefault(Bucket(table, 0), [])
    return found


def head(image: Image, name: str) -> Any:
    """The value of that name in the head."""
    return dict(map(tuple, rows(image, "head")))[name]


def set_head(image: Image, name: str, value: Any) -> None:
    """Set the value of that name in the head."""
    rows(image, "head")[:] = [pair for pair in rows(image, "head") if pair[0] != name]
    rows(image, "head").append([name, value])


def received(image: Image, known: Metadata) -> Metadata:
    """The metadata, as a node that has `known` takes it. Raises what the node does."""
    metadata = Metadata()
    for bucket, told in image["buckets"].items():
        _put(metadata, bucket, told, image["version"])
    metadata.version = image["version"]
    for _ in steps(metadata, known):
        pass
    return metadata


def received_change(image: Image, known: Metadata) -> Metadata:
    """As `received`, of the buckets alone that differ from what is known."""
    before, metadata = sent(known)["buckets"], buckets.copy(known, buckets.ALL)
    after = image["buckets"]
    changed = [each for each in after | before if after.get(each) != before.get(each)]
    for bucket in changed:
        _put(metadata, bucket, after.get(bucket, []), image["version"])
    metadata.version = image["version"]
    for _ in steps(metadata, known, changed):
        pass
    return metadata


def _put(metadata: Metadata, bucket: Bucket, told: Any, version: int) -> None:
    data = msgpack.packb(told) if told else b""
    buckets.put(metadata, buckets.read(metadata, *bucket, data), version)
