"""The content of a segment file: an LMDB environment with three databases, built once.

    index   dupsort: key = the raw key of a block's first entry, value = its seq u64 and the
            block's ordinal u32, big-endian. Key and seq are never joined into one LMDB key:
            variable-length keys would sort wrongly.
    block   integerkey: ordinal to block
    footer  `footer` to the footer, `bloom` to the filter over keys, `order` to the rank of each
            seq in the order of (key, seq)

A block is crc32c u32, then zstandard of the packed array `[first key, first key of the next block
or nil, distinct keys, entries per key, seqs, timestamps, values, headers or nil, snapshots or
nil]`. The two first keys bracket what the block may be asked for, so that an index page that lies
is found out (executions 1.28).
"""

import struct
from bisect import bisect_left, bisect_right
from dataclasses import asdict, dataclass
from itertools import chain, repeat
from typing import Any, Final

import google_crc32c
import msgpack
import zstandard

from ..client.errors import CorruptData
from ..client.types import Entry, Headers

VERSION: Final = 1
INDEX: Final = b"index"
BLOCK: Final = b"block"
FOOTER: Final = b"footer"
BLOOM: Final = b"bloom"
ORDER: Final = b"order"
POSITION: Final = struct.Struct(">QI")
ORDINAL: Final = struct.Struct("@I")
"""An integerkey is a C unsigned int in the machine's order."""
_CRC: Final = struct.Struct(">I")
_ENTRY_OVERHEAD_BYTES: Final = 160
"""Of the Python objects of a decoded entry, beside its bytes."""
_BLOCK_DECODED_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Footer:
    """What is known of a segment without reading its blocks."""

    entries: int
    keys: int
    blocks: int
    first_seq: int
    end_seq: int
    min_key: bytes
    max_key: bytes
    min_timestamp_ms: int
    max_timestamp_ms: int
    ranks: list[int]
    """Per block, the number of entries before it."""
    version: int = VERSION

    def pack(self) -> bytes:
        """The bytes of the footer, with their checksum."""
        packed: bytes = msgpack.packb(asdict(self))
        return seal(packed)

    @classmethod
    def unpack(cls, data: bytes) -> "Footer":
        """Raises CorruptData."""
        body = msgpack.unpackb(unseal(data, "segment footer"))
        if body.get("version") != VERSION:
            raise CorruptData(f"segment of version {body.get('version')}; this program reads 1")
        try:
            footer = cls(**body)
        except TypeError as error:
            raise CorruptData(f"segment footer: {error}") from None
        if len(footer.ranks) != footer.blocks or footer.ranks[0] != 0:
            raise CorruptData("segment footer: ranks and blocks differ")
        return footer

    def length(self, ordinal: int) -> int:
        """How many entries the block has."""
        end = self.ranks[ordinal + 1] if ordinal + 1 < self.blocks else self.entries
        return end - self.ranks[ordinal]


@dataclass(slots=True)
class Block:
    """A decoded block: columns over its entries, sorted by (key, seq)."""

    first_key: bytes
    next_first_key: bytes | None
    distinct: list[bytes]
    counts: list[int]
    keys: list[bytes]
    seqs: list[int]
    timestamps: list[int]
    values: list[bytes | None]
    headers: dict[int, Headers]
    snapshots: frozenset[int]
    size: int

    def slice(self, key: bytes, start: int, end: int | None) -> tuple[int, int]:
        """The positions, half-open, of the key's entries with seq in [start, end)."""
        keys, seqs = self.keys, self.seqs
        low, high = bisect_left(keys, key), bisect_right(keys, key)
        low = bisect_left(seqs, start, low, high)
        if end is not None:
            high = bisect_left(seqs, end, low, high)
        return low, high

    def entry(self, at: int) -> Entry:
        """The entry at a position of the block."""
        return Entry(
            self.keys[at], self.seqs[at], self.timestamps[at], self.headers.get(at),
            self.values[at], at in self.snapshots,
        )  # fmt: skip


def seal(data: bytes) -> bytes:
    """Bytes with their checksum in front."""
    return _CRC.pack(google_crc32c.value(data)) + data


def unseal(data: bytes, what: str) -> bytes:
    """The bytes that were sealed. Raises CorruptData."""
    body = data[_CRC.size :]
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != google_crc32c.value(body):
        raise CorruptData(f"{what} has a wrong checksum")
    return body


def encode_block(entries: "Columns", next_first_key: bytes | None) -> bytes:
    """The bytes of a block of these entries."""
    packed = msgpack.packb(
        (
            entries.distinct[0],
            next_first_key,
            entries.distinct,
            entries.counts,
            entries.seqs,
            entries.timestamps,
            entries.values,
            entries.headers or None,
            entries.snapshots or None,
        )
    )
    return seal(zstandard.ZstdCompressor(level=1).compress(packed))


def decode_block(data: bytes) -> Block:
    """The block of these bytes. Raises CorruptData."""
    body = unseal(data, "segment block")
    try:
        raw = zstandard.ZstdDecompressor().decompress(body, _BLOCK_DECODED_MAX)
        first, following, distinct, counts, seqs, timestamps, values, headers, snapshots = (
            msgpack.unpackb(raw, strict_map_key=False)
        )
        keys = list(chain.from_iterable(map(repeat, distinct, counts)))
    except (zstandard.ZstdError, ValueError, TypeError) as error:
        raise CorruptData(f"segment block does not decode: {error}") from None
    if not len(keys) == len(seqs) == len(timestamps) == len(values) or not keys:
        raise CorruptData("segment block with columns of different lengths")
    return Block(
        first, following, distinct, counts, keys, seqs, timestamps, values, headers or {},
        frozenset(snapshots or ()), len(raw) + _ENTRY_OVERHEAD_BYTES * len(keys),
    )  # fmt: skip


@dataclass(slots=True)
class Columns:
    """The entries of a block before it is encoded."""

    distinct: list[bytes]
    counts: list[int]
    seqs: list[int]
    timestamps: list[int]
    values: list[bytes | None]
    headers: dict[int, Any]
    snapshots: list[int]
