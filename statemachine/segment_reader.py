"""Reading one segment file: by key through the sparse index, or in the order of seq.

No read transaction outlives a call. Decoded blocks go to a cache that all segments of the node
share, bounded in bytes.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import lmdb
import zstandard

from ..client.errors import CorruptData
from ..client.types import Entry
from . import bloom
from .segment_format import (
    BLOCK,
    BLOOM,
    FOOTER,
    INDEX,
    ORDER,
    ORDINAL,
    POSITION,
    Block,
    Footer,
    decode_block,
    unseal,
)

_BLOCKS_A_STEP = 16
"""Blocks that one call decodes for a read by seq: a few milliseconds."""


class BlockCache:
    """Decoded blocks of all segments, least recently used out first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()

    def get(self, segment: str, ordinal: int) -> Block | None:
        """The block, if it is here."""
        block = self._blocks.get((segment, ordinal))
        if block is not None:
            self._blocks.move_to_end((segment, ordinal))
        return block

    def put(self, segment: str, ordinal: int, block: Block) -> None:
        """Keep a block."""
        self._blocks[segment, ordinal] = block
        self._bytes += block.size
        while self._bytes > self._bytes_max and len(self._blocks) > 1:
            _, old = self._blocks.popitem(last=False)
            self._bytes -= old.size


class Segment:
    """An open segment. Raises CorruptData wherever the file is not what it should be."""

    def __init__(self, path: Path, content_id: str, cache: BlockCache) -> None:
        self.content_id = content_id
        self._cache = cache
        try:
            self._environment = lmdb.open(
                str(path), subdir=False, readonly=True, lock=False, max_dbs=4,
                readahead=False, lib_version=0,
            )  # fmt: skip
            self._index = self._environment.open_db(INDEX, dupsort=True, create=False)
            self._block = self._environment.open_db(BLOCK, integerkey=True, create=False)
            self._footer = self._environment.open_db(FOOTER, create=False)
        except lmdb.Error as error:
            raise CorruptData(f"segment {content_id} cannot be opened: {error}") from None
        self.footer = Footer.unpack(self._named(FOOTER))
        self._bloom = unseal(self._named(BLOOM), "Bloom filter")
        self._order: array[int] | None = None

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    # By key.

    def may_hold(self, key: bytes) -> bool:
        """False only when the key is surely not here."""
        footer = self.footer
        return footer.min_key <= key <= footer.max_key and bloom.may_contain(self._bloom, key)

    def entries(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """The key's entries with seq in [start, end), ascending."""
        if not self.may_hold(key):
            return
        for block, low, high in self._runs(key, start, end):
            for at in range(low, high):
                yield block.entry(at)

    def entries_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """The same, descending."""
        if not self.may_hold(key):
            return
        for block, low, high in reversed(list(self._runs(key, start, end))):
            for at in range(high - 1, low - 1, -1):
                yield block.entry(at)

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """How many entries of the key lie in [start, end)."""
        if not self.may_hold(key):
            return 0
        return sum(high - low for _, low, high in self._runs(key, start, end))

    def last_seq(self, key: bytes) -> int:
        """The key's last seq here, 0 when it has none."""
        for entry in self.entries_reversed(key, 1, None):
            return entry.seq
        return 0

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Keys with the prefix and above `after`, in order."""
        begin = prefix if after is None or after < prefix else after
        ordinal = self._locate(begin, 0)
        while ordinal < self.footer.blocks:
            block = self.block(ordinal)
            for key in block.distinct[bisect_left(block.distinct, begin) :]:
                if not key.startswith(prefix) and key > prefix:
                    return
                if key.startswith(prefix) and (after is None or key > after):
                    yield key
            ordinal += 1

    def _runs(self, key: bytes, start: int, end: int | None) -> Iterator[tuple[Block, int, int]]:
        """Blocks with entries of the key in [start, end), and where in the block they are."""
        ordinal = self._locate(key, start)
        while ordinal < self.footer.blocks:
            block = self.block(ordinal)
            if block.first_key > key:
                return
            low, high = bisect_left(block.keys, key), bisect_right(block.keys, key)
            low = bisect_left(block.seqs, start, low, high)
            if end is not None:
                high = bisect_left(block.seqs, end, low, high)
            if low < high:
                yield block, low, high
            if block.next_first_key is None or block.next_first_key > key:
                return
            ordinal += 1

    def _locate(self, key: bytes, start: int) -> int:
        """The ordinal of the first block that may hold an entry at or after (key, start)."""
        if not key:
            return 0
        probe = POSITION.pack(start, 0xFFFFFFFF)
        with (
            self._environment.begin(db=self._index) as transaction,
            transaction.cursor() as cursor,
        ):
            if cursor.set_key(key):
                if cursor.set_range_dup(key, probe):
                    found = cursor.prev()
                else:
                    found = cursor.set_key(key) and cursor.last_dup()
            elif cursor.set_range(key):
                found = cursor.prev()
            else:
                found = cursor.last()
            if not found:
                return 0
            ordinal: int = POSITION.unpack(cursor.value())[1]
        return ordinal

    # By seq.

    def entry_at_seq(self, seq: int) -> Entry:
        """The entry of a seq that is held."""
        ordinal, at = self._place(seq)
        return self.block(ordinal).entry(at)

    def warm(self, seqs: range) -> bool:
        """Decode some of the blocks that these seqs are in; whether all of them are decoded.

        A read in the order of seq touches blocks in any order; this lets the caller spread the
        decoding over several turns of its loop.
        """
        ordinals = {self._place(seq)[0] for seq in seqs}
        cold = [o for o in sorted(ordinals) if self._cache.get(self.content_id, o) is None]
        for ordinal in cold[:_BLOCKS_A_STEP]:
            self.block(ordinal)
        return len(cold) <= _BLOCKS_A_STEP

    def _place(self, seq: int) -> tuple[int, int]:
        if self._order is None:
            packed = unseal(self._named(ORDER), "seq order")
            size = 4 * self.footer.entries
            order = array("I")
            order.frombytes(zstandard.ZstdDecompressor().decompress(packed, size))
            if len(order) != self.footer.entries:
                raise CorruptData(f"segment {self.content_id} has an order of another length")
            self._order = order
        rank = self._order[seq - self.footer.first_seq]
        ordinal = bisect_right(self.footer.ranks, rank) - 1
        return ordinal, rank - self.footer.ranks[ordinal]

    # Blocks.

    def block(self, ordinal: int) -> Block:
        """A decoded block."""
        block = self._cache.get(self.content_id, ordinal)
        if block is None:
            with self._environment.begin(db=self._block) as transaction:
                data = transaction.get(ORDINAL.pack(ordinal))
            if data is None:
                raise CorruptData(f"segment {self.content_id} lacks block {ordinal}")
            block = decode_block(data)
            self._cache.put(self.content_id, ordinal, block)
        return block

    def check(self) -> None:
        """Read everything: each block follows the one before it. Raises CorruptData."""
        entries = 0
        last: tuple[bytes, int] = (b"", 0)
        promised: bytes | None = None
        for ordinal in range(self.footer.blocks):
            block = self.block(ordinal)
            first = (block.keys[0], block.seqs[0])
            if first <= last or (ordinal and block.first_key != promised):
                raise CorruptData(f"segment {self.content_id}: block {ordinal} is out of place")
            entries += len(block.keys)
            last, promised = (block.keys[-1], block.seqs[-1]), block.next_first_key
        if entries != self.footer.entries or promised is not None:
            raise CorruptData(f"segment {self.content_id} has {entries} entries, not "
                              f"{self.footer.entries}")  # fmt: skip

    def _named(self, name: bytes) -> bytes:
        with self._environment.begin(db=self._footer) as transaction:
            data = transaction.get(name)
        if data is None:
            raise CorruptData(f"segment {self.content_id} lacks its {name.decode()}")
        return bytes(data)
