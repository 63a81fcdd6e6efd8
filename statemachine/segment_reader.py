"""Reading one segment file: by key through the sparse index, or in the order of seq.

No read transaction outlives a call. Decoded blocks go to a cache that all segments of the node
share, bounded in bytes.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import zstandard

from ..client import limits
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
_SEQ_MAX = (1 << 64) - 1


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
    """An open segment. Raises CorruptData wherever the file is not what it should be.

    Every lookup is checked against what the blocks say of themselves and of the block after them:
    the index and the pages of LMDB have no checksum of their own (executions 1.28).
    """

    def __init__(self, path: Path, content_id: str, cache: BlockCache) -> None:
        self.content_id = content_id
        self._cache = cache
        self._order: array[int] | None = None
        with self._reading():
            self._environment = lmdb.open(
                str(path), subdir=False, readonly=True, lock=False, max_dbs=4,
                readahead=False, lib_version=0,
            )  # fmt: skip
        try:
            with self._reading():
                self._index = self._environment.open_db(INDEX, dupsort=True, create=False)
                self._block = self._environment.open_db(BLOCK, integerkey=True, create=False)
                self._footer = self._environment.open_db(FOOTER, create=False)
            self.footer = Footer.unpack(self._named(FOOTER))
            self._bloom = unseal(self._named(BLOOM), "Bloom filter")
        except CorruptData:
            self._environment.close()
            raise

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
        for block, low, high in self._runs_reversed(key, start, end):
            for at in range(high - 1, low - 1, -1):
                yield block.entry(at)

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """How many entries of the key lie in [start, end); decodes the blocks at both ends."""
        if not self.may_hold(key):
            return 0
        return max(0, self._rank(key, end or _SEQ_MAX) - self._rank(key, start))

    def last_seq(self, key: bytes) -> int:
        """The key's last seq here, 0 when it has none."""
        if self.may_hold(key):
            for block, _, high in self._runs_reversed(key, 1, None):
                return block.seqs[high - 1]
        return 0

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Keys with the prefix and above `after`, in order."""
        begin = prefix if after is None or after < prefix else after
        ordinal: int | None = self._find(begin, 0)
        while ordinal is not None:
            block = self.block(ordinal)
            for key in block.distinct[bisect_left(block.distinct, begin) :]:
                if not key.startswith(prefix) and key > prefix:
                    return
                if key.startswith(prefix) and (after is None or key > after):
                    yield key
            ordinal = self._following(ordinal)

    def _runs(self, key: bytes, start: int, end: int | None) -> Iterator[tuple[Block, int, int]]:
        """Blocks with entries of the key in [start, end), and where in the block they are."""
        ordinal: int | None = self._find(key, start)
        while ordinal is not None:
            block = self.block(ordinal)
            low, high = block.slice(key, start, end)
            if low < high:
                yield block, low, high
            if high < len(block.keys) or block.next_first_key != key:
                return
            ordinal = self._following(ordinal)

    def _runs_reversed(
        self, key: bytes, start: int, end: int | None
    ) -> Iterator[tuple[Block, int, int]]:
        """The same, from the last to the first."""
        ordinal = self._find(key, _SEQ_MAX if end is None else end)
        while True:
            block = self.block(ordinal)
            low, high = block.slice(key, start, end)
            if low < high:
                yield block, low, high
            if low > 0 or ordinal == 0:
                return
            ordinal -= 1
            self._following(ordinal)

    def _rank(self, key: bytes, seq: int) -> int:
        """How many entries are below (key, seq)."""
        ordinal = self._find(key, seq)
        low, _ = self.block(ordinal).slice(key, seq, None)
        return self.footer.ranks[ordinal] + low

    def _find(self, key: bytes, seq: int) -> int:
        """The last block that begins at or below (key, seq), or the first block of all."""
        ordinal = self._locate(key, seq)
        block = self.block(ordinal)
        if ordinal and (block.first_key, block.seqs[0]) > (key, seq):
            raise self._damage(f"the index leads to block {ordinal}, behind what is looked for")
        following = block.next_first_key
        if following is not None and following <= key:
            after = self._following(ordinal)
            if after is None or (following, self.block(after).seqs[0]) <= (key, seq):
                raise self._damage(f"the index leads to block {ordinal}, before what is looked for")
        return ordinal

    def _locate(self, key: bytes, seq: int) -> int:
        """What the index says: to be believed only once it is checked."""
        if not key:
            return 0
        if len(key) > limits.key_bytes_max:
            key, seq = key[: limits.key_bytes_max], _SEQ_MAX  # LMDB takes no longer ones
        probe = POSITION.pack(seq, 0xFFFFFFFF)
        with (
            self._reading(),
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
            value = bytes(cursor.value()) if found else POSITION.pack(0, 0)
        if len(value) != POSITION.size:
            raise self._damage("an index entry of another size")
        ordinal: int = POSITION.unpack(value)[1]
        return ordinal

    def _following(self, ordinal: int) -> int | None:
        """The ordinal of the next block, None behind the last; the two must fit."""
        block = self.block(ordinal)
        if block.next_first_key is None:
            if ordinal + 1 != self.footer.blocks:
                raise self._damage(f"block {ordinal} of {self.footer.blocks} says it is the last")
            return None
        after = self.block(ordinal + 1)
        if after.first_key != block.next_first_key or (block.keys[-1], block.seqs[-1]) >= (
            after.first_key, after.seqs[0],
        ):  # fmt: skip
            raise self._damage(f"block {ordinal + 1} does not follow block {ordinal}")
        return ordinal + 1

    # By seq.

    def entry_at_seq(self, seq: int) -> Entry:
        """The entry of a seq that is held."""
        ordinal, at = self._place(seq)
        block = self.block(ordinal)
        if block.seqs[at] != seq:
            raise self._damage(f"seq {block.seqs[at]} stands in the place of {seq}")
        return block.entry(at)

    def warm(self, seqs: range) -> int:
        """Decode some of the blocks that these seqs are in; of how many seqs, counted from the
        first, the block is decoded: at least one.

        A read in the order of seq touches blocks in any order; this lets the caller spread the
        decoding over several turns of its loop, and go on even when the cache cannot hold them.
        """
        seen: set[int] = set()
        cold = 0
        for ready, seq in enumerate(seqs):
            ordinal = self._place(seq)[0]
            if ordinal in seen:
                continue
            if self._cache.get(self.content_id, ordinal) is None:
                if cold == _BLOCKS_A_STEP:
                    return ready
                cold += 1
                self.block(ordinal)
            seen.add(ordinal)
        return len(seqs)

    def _place(self, seq: int) -> tuple[int, int]:
        if self._order is None:
            self._order = self._read_order()
        rank = self._order[seq - self.footer.first_seq]
        ordinal = bisect_right(self.footer.ranks, rank) - 1
        return ordinal, rank - self.footer.ranks[ordinal]

    def _read_order(self) -> "array[int]":
        packed = unseal(self._named(ORDER), "seq order")
        order = array("I")
        try:
            size = order.itemsize * self.footer.entries
            order.frombytes(zstandard.ZstdDecompressor().decompress(packed, size))
        except (zstandard.ZstdError, ValueError) as error:
            raise self._damage(f"its seq order does not decode: {error}") from None
        if len(order) != self.footer.entries or max(order) >= len(order):
            raise self._damage("its seq order is of another length")
        return order

    # Blocks.

    def block(self, ordinal: int) -> Block:
        """A decoded block."""
        block = self._cache.get(self.content_id, ordinal)
        if block is None:
            with self._reading(), self._environment.begin(db=self._block) as transaction:
                data = transaction.get(ORDINAL.pack(ordinal))
            if data is None:
                raise self._damage(f"block {ordinal} is missing")
            block = decode_block(data)
            if ordinal >= self.footer.blocks or len(block.keys) != self.footer.length(ordinal):
                raise self._damage(f"block {ordinal} has {len(block.keys)} entries")
            self._cache.put(self.content_id, ordinal, block)
        return block

    def check(self) -> None:
        """Read everything, a block at a time: each follows the one before it, is where the index
        leads, and its entries are where their seqs say. Raises CorruptData."""
        footer, order = self.footer, self._read_order()
        ordinal: int | None = 0
        while ordinal is not None:
            block = self.block(ordinal)
            if self._find(block.first_key, block.seqs[0]) != ordinal:
                raise self._damage(f"the index does not lead to block {ordinal}")
            if not all(map(self.may_hold, block.distinct)):
                raise self._damage(f"its Bloom filter denies a key of block {ordinal}")
            for rank, seq in enumerate(block.seqs, footer.ranks[ordinal]):
                if not footer.first_seq <= seq < footer.end_seq or (
                    order[seq - footer.first_seq] != rank
                ):
                    raise self._damage(f"seq {seq} is not where its order says")
            ordinal = self._following(ordinal)

    def _named(self, name: bytes) -> bytes:
        with self._reading(), self._environment.begin(db=self._footer) as transaction:
            data = transaction.get(name)
        if data is None:
            raise self._damage(f"its {name.decode()} is missing")
        return bytes(data)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise self._damage(str(error)) from None

    def _damage(self, what: str) -> CorruptData:
        return CorruptData(f"segment {self.content_id} is damaged: {what}")
