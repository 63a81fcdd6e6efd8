"""The content of a segment file, format 3: an LMDB environment with five databases, built once.

    index   dupsort: key = the raw key of a block's first entry, value = its seq u64 and the
            block's ordinal u32, big-endian. Key and seq are never joined into one LMDB key:
            variable-length keys would sort wrongly.
    block   integerkey: ordinal to block (`segment_block`)
    bloom   integerkey: ordinal to a Bloom filter over a stretch of the keys
    order   integerkey: ordinal to a piece of the order of seq (`segment_order`)
    footer  `footer` to the footer, `dictionary` to what the values are compressed with, if any

Every value begins with the crc32c of its place and of the rest. LMDB's own pages have none, so LMDB
only writes a file, and `segment_pages` reads the file. Filters and orders are in pieces, so that
neither a reader nor a merge holds one of a whole file. Numbers in columns are in the machine's
order, as LMDB's own are.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import google_crc32c
import msgpack
import numpy as np

from ..client.protocol.errors import CorruptData
from .spans import EVERYTHING, Span, common, covers

VERSION: Final = 3
INDEX: Final = b"index"
BLOCK: Final = b"block"
BLOOM: Final = b"bloom"
ORDER: Final = b"order"
FOOTER: Final = b"footer"
DICTIONARY: Final = b"dictionary"
POSITION: Final = struct.Struct(">QI")
ORDINAL: Final = struct.Struct("@I")
"""An integerkey is a C unsigned int in the machine's order."""
_CRC: Final = struct.Struct(">I")
Stored = bytes | memoryview
"""A value of a file, with its checksum."""


class Bases(NamedTuple):
    """The bases from which a segment counts seqs and timestamps, and the widths of columns."""

    seq: int
    timestamp_ms: int
    seq_code: str
    timestamp_code: str

    @classmethod
    def of(cls, first_seq: int, end_seq: int, min_ms: int, max_ms: int) -> "Bases":
        """Return the bases of these bounds, with four bytes a number where they are enough."""
        seqs = "I" if end_seq - first_seq <= 1 << 32 else "Q"
        return cls(first_seq, min_ms, seqs, "I" if max_ms - min_ms < 1 << 32 else "Q")


_FILE_FIELDS: Final = 9
"""The fields of a manifest row before its clip."""


class SegmentInfo(NamedTuple):
    """A row of a manifest. The content id of a finished file is the SHA-256 of its bytes, in hex.

    Only the keys of the file in [start, end), its clip, are the range's: all keys, unless the range
    was merged. Their entries have seqs in [first_seq, end_seq), which no other row of the same keys
    covers. After a merge of segments some of these seqs are absent. Rows whose clips share no key
    may have the same seqs, and may name the same file.
    """

    content_id: str
    size: int
    entries: int
    first_seq: int
    end_seq: int
    min_key: bytes
    max_key: bytes
    min_timestamp_ms: int
    max_timestamp_ms: int
    start: bytes = b""
    end: bytes | None = None

    def to_wire(self) -> list[Any]:
        """Return the row as it is stored and sent; a row without a clip has no fields for it."""
        return list(self.file if self.clip == EVERYTHING else self)

    @classmethod
    def from_wire(cls, fields: Sequence[Any]) -> "SegmentInfo":
        """Undo `to_wire`. The id becomes a file's name. Raises ValueError, TypeError."""
        if len(fields) not in (_FILE_FIELDS, len(cls._fields)):
            raise ValueError(f"a segment's row has {len(fields)} fields")
        info = cls(*fields)
        kinds = list(cls.__annotations__.values())[:_FILE_FIELDS]
        for value, kind in zip(info.file, kinds, strict=True):
            if type(value) is not kind:
                raise ValueError(f"{value!r} in a segment's row is not {kind.__name__}")
        if type(info.start) is not bytes or (info.end is not None and type(info.end) is not bytes):
            raise ValueError(f"{info.clip!r} in a segment's row is not a span")
        if common(info.clip, EVERYTHING) is None:
            raise ValueError(f"{info.clip!r} in a segment's row has no keys")
        if not (info.content_id.isascii() and info.content_id.isalnum()):
            raise ValueError(f"{info.content_id!r} is not a content id")
        return info

    @property
    def file(self) -> tuple[Any, ...]:
        """The part of the row that is the same in every manifest that names the file."""
        return self[:_FILE_FIELDS]

    @property
    def clip(self) -> Span:
        """The keys that are the range's, limited by the range's own span."""
        return self.start, self.end

    def within(self, span: Span) -> Span | None:
        """Return the keys of the span that may be here and are the range's, or None without any.

        The file may end before the last of them.
        """
        own = common(self.clip, span)
        if own is None or self.max_key < own[0] or (own[1] is not None and self.min_key >= own[1]):
            return None
        return max(own[0], self.min_key), own[1]

    def clipped(self, span: Span) -> "SegmentInfo | None":
        """Return the row of the keys in a span, or None if it has none of them."""
        own = common(self.clip, span)
        if own is None or self.within(span) is None:
            return None
        return self._replace(start=own[0], end=own[1])

    def of_range(self, span: Span) -> "SegmentInfo":
        """Return the row as a range of that span stores it: a clip of the whole span is dropped."""
        if not covers(self.clip, span):
            return self
        return self._replace(start=EVERYTHING[0], end=EVERYTHING[1])


@dataclass(frozen=True, slots=True)
class Footer:
    """The facts about a segment that need no reading of its blocks."""

    entries: int
    keys: int
    first_seq: int
    end_seq: int
    min_key: bytes
    max_key: bytes
    min_timestamp_ms: int
    max_timestamp_ms: int
    data_bytes: int
    """The bytes of all keys, values and headers, uncompressed."""
    ranks: "array[int]"
    """The number of entries before each block."""
    sizes: "array[int]"
    """The bytes of each block in the file."""
    order_seqs: "array[int]"
    """The first seq of each piece of the order."""
    bloom_keys: list[bytes]
    """The first key of each filter."""

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.ranks)

    def length(self, ordinal: int) -> int:
        """Return how many entries the block has."""
        end = self.ranks[ordinal + 1] if ordinal + 1 < self.blocks else self.entries
        return end - self.ranks[ordinal]

    def block_of(self, rank: int) -> int:
        """Return the ordinal of the block with the entry of this rank."""
        return bisect_right(self.ranks, rank) - 1

    def blocks_of(self, ranks: range) -> range:
        """Return the ordinals of the blocks with the entries of these ranks."""
        if not ranks:
            return range(0)
        return range(self.block_of(ranks[0]), self.block_of(ranks[-1]) + 1)

    def part_bytes(self, ordinal: int, ranks: range) -> int:
        """Return the bytes of a block with entries of these ranks. A block that has others too
        counts in part."""
        begin, count = self.ranks[ordinal], self.length(ordinal)
        wanted = min(begin + count, ranks.stop) - max(begin, ranks.start)
        return self.sizes[ordinal] * wanted // count

    def stored_bytes(self, ranks: range) -> int:
        """Return the bytes of all blocks with entries of these ranks: of the first and the last
        block the part of these entries. A million blocks take a millisecond."""
        ordinals = self.blocks_of(ranks)
        ends = {*ordinals[:1], *ordinals[-1:]}
        within = np.frombuffer(self.sizes, np.uint32)[ordinals[1:-1].start : ordinals[1:-1].stop]
        return int(within.sum(dtype=np.int64)) + sum(self.part_bytes(each, ranks) for each in ends)

    def pack(self) -> bytes:
        """Return the bytes of the footer, with their checksum."""
        packed: bytes = msgpack.packb(
            (
                VERSION, self.entries, self.keys, self.first_seq, self.end_seq, self.min_key,
                self.max_key, self.min_timestamp_ms, self.max_timestamp_ms, self.data_bytes,
                self.ranks.tobytes(), self.sizes.tobytes(), self.order_seqs.tobytes(),
                self.bloom_keys,
            )
        )  # fmt: skip
        return seal(packed, FOOTER)

    @classmethod
    def unpack(cls, data: Stored) -> "Footer":
        """Undo `pack`. Raises CorruptData, which names the format of a file of another format."""
        packed = unseal(data, FOOTER)
        try:
            body = msgpack.unpackb(packed)
            version = body["version"] if isinstance(body, dict) else body[0]  # version 1 was a map
        except Exception as error:  # msgpack raises half a dozen unrelated classes
            raise CorruptData(f"segment footer: {error}") from None
        if version != VERSION:
            raise CorruptData(f"the segment has format {version}; this program reads {VERSION}")
        try:
            _, *fields, ranks, sizes, order_seqs, bloom_keys = body
            columns = array("I", ranks), array("I", sizes), array("Q", order_seqs)
            footer = cls(*[*fields, *columns, bloom_keys])
        except (TypeError, ValueError) as error:
            raise CorruptData(f"segment footer: {error}") from None
        if not footer.ranks or footer.ranks[0] != 0 or not footer.order_seqs:
            raise CorruptData("the segment footer has no blocks")
        if len(footer.sizes) != len(footer.ranks):
            raise CorruptData("the segment footer has columns of different lengths")
        return footer


def seal(data: bytes, name: bytes, ordinal: int = 0, *more: bytes) -> bytes:
    """Return the bytes, and more that follow, after a checksum of the bytes and their place.

    The place is included since a damaged page may lead to another part of the file.
    """
    crc = _checksum(data, name, ordinal)
    for part in more:
        crc = google_crc32c.extend(crc, part)
    return b"".join((_CRC.pack(crc), data, *more))


def unseal(data: Stored, name: bytes, ordinal: int = 0) -> bytes:
    """Return the bytes that were sealed. Raises CorruptData."""
    body = bytes(memoryview(data)[_CRC.size :])
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != _checksum(body, name, ordinal):
        raise CorruptData(f"{name.decode()} has a wrong checksum")
    return body


def _checksum(data: bytes, name: bytes, ordinal: int) -> int:
    crc: int = google_crc32c.extend(google_crc32c.value(name + ORDINAL.pack(ordinal)), data)
    return crc
