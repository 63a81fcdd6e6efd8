"""Reading one segment file: by key through the sparse index, or in the order of seq.

Decoded blocks, filters and pieces of the order go to the `block_cache`.
"""

import errno
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress, islice
from pathlib import Path
from typing import Final, Protocol, TypeVar

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData, Overloaded
from ..client.protocol.types import Entry
from . import bloom
from .block_cache import BlockCache
from .segment_block import PLAIN, WITH_DICTIONARY, Block, Codec
from .segment_file import SegmentBytes, SegmentFile
from .segment_format import (
    BLOCK,
    BLOOM,
    DICTIONARY,
    FOOTER,
    INDEX,
    ORDER,
    POSITION,
    Footer,
    SegmentInfo,
    Stored,
    unseal,
)
from .segment_order import Piece
from .segment_pages import Pages
from .turn_limits import TurnOver

_BLOCKS_A_STEP: Final = 16
"""Blocks that one call decodes for a read by seq: a few milliseconds."""
_PIECES_A_STEP: Final = 2
"""Pieces of the order of seq that one call searches for some of the keys: about 2 ms."""
_SEQ_MAX: Final = (1 << 64) - 1


class _Ends(Protocol):
    """What is needed of a block to see whether another one follows it."""

    count: int
    next_first_key: bytes | None

    @property
    def first(self) -> tuple[bytes, int]:
        """The key and seq of the first entry."""

    @property
    def last(self) -> tuple[bytes, int]:
        """The key and seq of the last entry."""


Neighbour = TypeVar("Neighbour", bound=_Ends)


class _Filter:
    """A Bloom filter in the cache."""

    __slots__ = ("size", "table")

    def __init__(self, table: bytes) -> None:
        self.table = table
        self.size = len(table)


def check_lack(error: OSError) -> None:
    """Raise Overloaded when the process or the machine has too many files open.

    Such an error is not a sign of damage in the file.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        raise Overloaded(
            "this node has opened too many files to read a segment; try again later, and "
            "raise the limit with `ulimit -n`", retry_after=1.0,
        ) from None  # fmt: skip


class Segment:
    """An open segment. Raises CorruptData wherever the file is damaged.

    Every lookup is checked against the keys of the block found and of the block after it: the index
    and the pages of LMDB have no checksum of their own (x28).
    """

    def __init__(self, source: Path | SegmentBytes, content_id: str, cache: BlockCache) -> None:
        """Open the file and read its footer, a few pages, on any thread: this waits for the disk.

        `source`: the path of the file, or a file that is open. Raises Overloaded when there is no
        descriptor for the file.
        """
        self.content_id = content_id
        self._cache = cache
        with self._reading():
            self._file: SegmentBytes = (
                SegmentFile(source, content_id) if isinstance(source, Path) else source
            )
            pages = self._pages = Pages(self._file)
            named = pages.tree(FOOTER)
            footer, dictionary = pages.get(named, FOOTER), pages.get(named, DICTIONARY)
        if footer is None:
            raise self._damage("the footer is missing")
        with self._decoding(FOOTER, 0):
            self.footer = Footer.unpack(footer)
        with self._reading():
            self._index = pages.tree(INDEX)
            self._trees = {name: pages.tree(name) for name in (BLOCK, BLOOM, ORDER)}
        with self._decoding(DICTIONARY, 0):
            if dictionary is not None:
                dictionary = unseal(dictionary, DICTIONARY)
            self._codec = Codec(WITH_DICTIONARY if dictionary else PLAIN, dictionary)
        self._file.cache = cache

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def check_row(self, info: SegmentInfo) -> None:
        """Check that a manifest's row is of this file. Raises CorruptData."""
        footer = self.footer
        said = (
            self._file.size, footer.entries, footer.first_seq, footer.end_seq, footer.min_key,
            footer.max_key, footer.min_timestamp_ms, footer.max_timestamp_ms,
        )  # fmt: skip
        if said != info.file[1:]:
            raise self._damage("the file does not match its manifest")

    # By key.

    def may_hold(self, key: bytes) -> bool:
        """Return False only when the key is surely not here."""
        footer = self.footer
        if not footer.min_key <= key <= footer.max_key:
            return False
        ordinal = max(0, bisect_right(footer.bloom_keys, key) - 1)
        found = self._cache.get(self.content_id, BLOOM, ordinal)
        if found is None:
            data = self._part(BLOOM, ordinal)
            with self._decoding(BLOOM, ordinal):
                found = _Filter(unseal(data, BLOOM, ordinal))
            self._cache.put(self.content_id, BLOOM, ordinal, found)
        return bloom.may_contain(found.table, key)

    def entries(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """Yield the key's entries with seq in [start, end), ascending."""
        if not self.may_hold(key):
            return
        for block, low, high in self.runs(key, start, end):
            for at in range(low, high):
                yield block.entry(at)

    def entries_reversed(self, key: bytes, start: int, end: int | None) -> Iterator[Entry]:
        """Yield the same entries, descending."""
        if not self.may_hold(key):
            return
        for block, low, high in self._runs_reversed(key, start, end):
            for at in range(high - 1, low - 1, -1):
                yield block.entry(at)

    def count(self, key: bytes, start: int, end: int | None) -> int:
        """Return how many entries of the key lie in [start, end).

        Decodes the blocks at both ends.
        """
        if not self.may_hold(key):
            return 0
        return max(0, self._rank(key, end or _SEQ_MAX) - self._rank(key, start))

    def seq_from_end(self, key: bytes, n: int, end: int | None) -> int:
        """Return the seq of the key's n-th entry below `end`, counted back; it must exist."""
        rank = self._rank(key, end or _SEQ_MAX) - n
        ordinal = self.footer.block_of(rank)
        return self.block(ordinal).seq(rank - self.footer.ranks[ordinal])

    def last_seq(self, key: bytes) -> int:
        """Return the key's last seq here, or 0 without an entry."""
        if self.may_hold(key):
            for block, _, high in self._runs_reversed(key, 1, None):
                return block.seq(high - 1)
        return 0

    def keys_after(self, prefix: bytes, after: bytes | None) -> Iterator[bytes]:
        """Yield the keys with the prefix and above `after`, in order, each once.

        At most the first and the last of a key's blocks are decoded, however many lie between.
        """
        if after is None or after < prefix:
            ordinal: int | None = self.find(prefix, 0)
        else:
            ordinal = self.find(after, _SEQ_MAX)
        while ordinal is not None:
            block = self.block(ordinal)
            for key in block.keys[0 if after is None else bisect_right(block.keys, after) :]:
                if key.startswith(prefix):
                    yield key
                elif key > prefix:
                    return
            after = block.keys[-1]
            goes_on = block.next_first_key == after
            ordinal = self.find(after, _SEQ_MAX) if goes_on else self.following(ordinal)

    def runs(self, key: bytes, start: int, end: int | None) -> Iterator[tuple[Block, int, int]]:
        """Yield blocks with entries of the key in [start, end), and the positions in each."""
        ordinal: int | None = self.find(key, start)
        while ordinal is not None:
            block = self.block(ordinal)
            low, high = block.slice(key, start, end)
            if low < high:
                yield block, low, high
            if high < block.count or block.next_first_key != key:
                return
            ordinal = self.following(ordinal)

    def _runs_reversed(
        self, key: bytes, start: int, end: int | None
    ) -> Iterator[tuple[Block, int, int]]:
        """Yield the same, from the last block to the first."""
        ordinal = self.find(key, _SEQ_MAX if end is None else end)
        while True:
            block = self.block(ordinal)
            low, high = block.slice(key, start, end)
            if low < high:
                yield block, low, high
            if low > 0 or ordinal == 0:
                return
            ordinal -= 1
            self.following(ordinal)

    def _rank(self, key: bytes, seq: int) -> int:
        """Return how many entries are below (key, seq)."""
        ordinal = self.find(key, seq)
        low, _ = self.block(ordinal).slice(key, seq, None)
        return self.footer.ranks[ordinal] + low

    def find(self, key: bytes, seq: int) -> int:
        """Return the last block that begins at or below (key, seq), or the first block of all."""
        ordinal = self._locate(key, seq)
        block = self.block(ordinal)
        if ordinal and block.first > (key, seq):
            raise self._damage(f"the index leads to block {ordinal}, behind the key of the search")
        following = block.next_first_key
        if following is not None and following <= key:
            after = self.following(ordinal)
            if after is None or self.block(after).first <= (key, seq):
                raise self._damage(
                    f"the index leads to block {ordinal}, before the key of the search"
                )
        return ordinal

    def _locate(self, key: bytes, seq: int) -> int:
        """Return the block that the index names, which is not checked yet."""
        if not key:
            return 0
        if len(key) > limits.key_bytes_max:
            key, seq = key[: limits.key_bytes_max], _SEQ_MAX  # LMDB takes no longer keys
        with self._reading():
            return max(0, self._pages.locate(self._index, key, POSITION.pack(seq, 0xFFFFFFFF)))

    def following(self, ordinal: int) -> int | None:
        """Return the ordinal of the next block, or None after the last.

        Raises CorruptData if the two blocks do not fit.
        """
        found = self.after(ordinal, self.block(ordinal), self.block)
        return None if found is None else ordinal + 1

    def after(
        self, ordinal: int, block: Neighbour, load: Callable[[int], Neighbour]
    ) -> Neighbour | None:
        """Return the block after this one, which `load` finds, or None after the last.

        Raises CorruptData if the two blocks do not fit.
        """
        if block.next_first_key is None:
            if ordinal + 1 != self.footer.blocks:
                raise self._damage(
                    f"block {ordinal} of {self.footer.blocks} claims to be the last block"
                )
            return None
        after = load(ordinal + 1)
        if after.first[0] != block.next_first_key or block.last >= after.first:
            raise self._damage(f"block {ordinal + 1} does not follow block {ordinal}")
        return after

    def ranks_of(self, start: bytes, end: bytes | None) -> range:
        """Return the ranks of the entries with keys in [start, end).

        Decodes the blocks at both ends.
        """
        footer = self.footer
        low = 0 if start <= footer.min_key else self._rank(start, 0)
        high = footer.entries if end is None or end > footer.max_key else self._rank(end, 0)
        return range(low, high)

    def key_at(self, rank: int) -> bytes:
        """Return the key of the entry with this rank."""
        ordinal = self.footer.block_of(rank)
        return self.block(ordinal).entry(rank - self.footer.ranks[ordinal]).key

    def stored(self, ordinals: range, ranks: range) -> list[tuple[bytes, int]]:
        """Return the first key of each of these blocks, and its stored bytes for these ranks.

        Only the first block is read. The index has the keys side by side, and the footer the sizes,
        while the pages of blocks may have to come from the disk one by one.
        """
        if not ordinals:
            return []
        key, seq = self.block(ordinals[0]).first
        footer, found = self.footer, []
        with self._reading():
            rows = self._pages.rows(self._index, key, POSITION.pack(seq, ordinals[0]))
            for ordinal, (name, position) in zip(ordinals, rows, strict=False):
                if len(position) != POSITION.size or POSITION.unpack(position)[1] != ordinal:
                    raise CorruptData(f"its index has another block in the place of {ordinal}")
                found.append((name, footer.part_bytes(ordinal, ranks)))
        if len(found) < len(ordinals):
            raise self._damage(f"block {ordinals[len(found)]} is not in its index")
        return found

    # By seq.

    def seqs_within(
        self, start_key: bytes, end_key: bytes | None, start: int, limit: int
    ) -> tuple[Sequence[int], int | None]:
        """Return some seqs from `start` on of entries with keys in a span, and where to go on.

        The seqs are ascending, at most `limit`, maybe none; the keys lie in [start_key, end_key).
        The next seq is None at the end. One call looks at a bounded number of entries, however few
        have such keys.
        """
        ranks = self.ranks_of(start_key, end_key)
        pieces = self.pieces_from(start)
        if not ranks:
            return (), None
        if len(ranks) == self.footer.entries:
            return self._seqs_from(pieces, start, limit)
        found: list[int] = []
        for ordinal in pieces[:_PIECES_A_STEP]:
            piece = self.piece(ordinal)
            at = bisect_left(piece.seqs, start)
            wanted = map(ranks.__contains__, piece.ranks[at:])
            found += islice(compress(piece.seqs[at:], wanted), limit - len(found))
            if len(found) == limit:
                return found, found[-1] + 1
        behind = pieces[_PIECES_A_STEP:]
        return found, self.footer.order_seqs[behind[0]] if behind else None

    def _seqs_from(
        self, pieces: Iterable[int], start: int, limit: int
    ) -> tuple[Sequence[int], int | None]:
        """Return the same where all keys are wanted."""
        for ordinal in pieces:
            seqs = self.piece(ordinal).seqs
            at = bisect_left(seqs, start)
            if at < len(seqs):
                found = seqs[at : at + limit]
                return found, found[-1] + 1
        return (), None

    def entry_at_seq(self, seq: int) -> Entry:
        """Return the entry of a held seq."""
        ordinal, at = self._place(seq)
        block = self.block(ordinal)
        if block.seq(at) != seq:
            raise self._damage(f"seq {block.seq(at)} stands in the place of {seq}")
        return block.entry(at)

    def first_seq_from(self, timestamp_ms: int) -> int:
        """Return the first held seq whose timestamp is not below `timestamp_ms`.

        Returns the end of the covered seqs when there is none.
        """
        starts = self.footer.order_seqs
        low, high = 0, len(starts)  # bisect to the last piece that begins below
        while high - low > 1:
            middle = (low + high) // 2
            if self.entry_at_seq(starts[middle]).timestamp_ms < timestamp_ms:
                low = middle
            else:
                high = middle
        seqs = self.piece(low).seqs
        at = bisect_left(seqs, timestamp_ms, key=lambda s: self.entry_at_seq(s).timestamp_ms)
        if at < len(seqs):
            return seqs[at]
        return starts[low + 1] if low + 1 < len(starts) else self.footer.end_seq

    def warm(self, seqs: Sequence[int]) -> int:
        """Decode some of the blocks of these seqs.

        Returns for how many of the seqs, from the first on, the block is decoded: at least one. A
        read in the order of seq touches blocks in any order. This method lets the caller spread the
        decoding over several turns of its loop, and go on even when the cache cannot hold the
        blocks.
        """
        seen: set[int] = set()
        cold = 0
        for ready, seq in enumerate(seqs):
            ordinal = self._place(seq)[0]
            if ordinal in seen:
                continue
            if not self._cache.holds(self.content_id, BLOCK, ordinal):
                if cold == _BLOCKS_A_STEP:
                    return ready
                cold += 1
                try:
                    self.block(ordinal)
                except TurnOver:
                    if ready:
                        return ready
                    raise
            seen.add(ordinal)
        return len(seqs)

    def piece(self, ordinal: int) -> Piece:
        """Return a piece of the order of seq."""
        found: Piece | None = self._cache.get(self.content_id, ORDER, ordinal)
        if found is None:
            data = self._part(ORDER, ordinal)
            with self._decoding(ORDER, ordinal):
                found = Piece.decode(data, ordinal)
            if found.seqs[0] != self.footer.order_seqs[ordinal]:
                raise self._damage(f"piece {ordinal} of its seq order begins with another seq")
            if max(found.ranks) >= self.footer.entries:
                raise self._damage(f"piece {ordinal} of its seq order has ranks beyond the last")
            self._cache.put(self.content_id, ORDER, ordinal, found)
        return found

    def pieces_from(self, seq: int) -> range:
        """Return the ordinals of the pieces that have the entries from a seq on."""
        return range(self._piece_of(seq), len(self.footer.order_seqs))

    def _piece_of(self, seq: int) -> int:
        return max(0, bisect_right(self.footer.order_seqs, seq) - 1)

    def _place(self, seq: int) -> tuple[int, int]:
        piece = self.piece(self._piece_of(seq))
        at = bisect_left(piece.seqs, seq)
        if at == len(piece.seqs) or piece.seqs[at] != seq:
            raise self._damage(f"the seq order has no seq {seq}")
        rank = piece.ranks[at]
        ordinal = self.footer.block_of(rank)
        return ordinal, rank - self.footer.ranks[ordinal]

    # Blocks.

    def block(self, ordinal: int) -> Block:
        """Return a decoded block."""
        block: Block | None = self._cache.get(self.content_id, BLOCK, ordinal)
        if block is None:
            block = self.decoded(ordinal, Block)
            self._cache.put(self.content_id, BLOCK, ordinal, block)
        return block

    def decoded(self, ordinal: int, decode: Callable[[Stored, Codec, int], Neighbour]) -> Neighbour:
        """Return a block as `decode` decodes it, without the cache."""
        data = self._part(BLOCK, ordinal)
        with self._decoding(BLOCK, ordinal):
            block = decode(data, self._codec, ordinal)
        if ordinal >= self.footer.blocks or block.count != self.footer.length(ordinal):
            raise self._damage(f"block {ordinal} has {block.count} entries")
        return block

    def check(self) -> None:
        """Read and check everything, a block at a time. Raises CorruptData.

        Each block must follow the one before it and be where the index leads, and its entries must
        be where their seqs say. Memory: eight bytes an entry.
        """
        footer, seqs = self.footer, self._seqs_by_rank()
        ordinal: int | None = 0
        while ordinal is not None:
            block = self.block(ordinal)
            if self.find(*block.first) != ordinal:
                raise self._damage(f"the index does not lead to block {ordinal}")
            if not all(map(self.may_hold, block.keys)):
                raise self._damage(f"its Bloom filter denies a key of block {ordinal}")
            begin = footer.ranks[ordinal]
            if list(map(block.seq, range(block.count))) != list(seqs[begin : begin + block.count]):
                raise self._damage(f"the seqs of block {ordinal} are not where its order says")
            ordinal = self.following(ordinal)

    def _seqs_by_rank(self) -> "array[int]":
        footer = self.footer
        seqs = array("Q", bytes(8 * footer.entries))
        before, count = footer.first_seq - 1, 0
        for ordinal in range(len(footer.order_seqs)):
            piece = self.piece(ordinal)
            for seq, rank in zip(piece.seqs, piece.ranks, strict=True):
                if not before < seq < footer.end_seq:
                    raise self._damage(f"seq {seq} in its order is not between its neighbours")
                seqs[rank] = before = seq
            count += len(piece.ranks)
        if count != footer.entries:
            raise self._damage(f"its seq order has {count} of {footer.entries} entries")
        return seqs

    def _part(self, name: bytes, ordinal: int) -> Stored:
        with self._reading():
            data = self._pages.part(self._trees[name], ordinal)
        if data is None:
            raise self._damage(f"{name.decode()} {ordinal} is missing")
        return data

    @contextmanager
    def _decoding(self, part: bytes, ordinal: int) -> Iterator[None]:
        try:
            yield
        except CorruptData as error:
            raise self._damage(f"{part.decode()} {ordinal}: {error.message}") from None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except CorruptData as error:
            raise self._damage(error.message) from None
        except struct.error:
            raise self._damage("a page of a tree ends too early") from None
        except OSError as error:
            check_lack(error)
            what = f"the file cannot be read: {error.strerror or error}"
            raise self._damage(what) from None

    def damage(self, what: str) -> CorruptData:
        """Return the error for damage of this file."""
        return self._damage(what)

    def _damage(self, what: str) -> CorruptData:
        what = f"segment {self.content_id} is damaged: {what}"
        return CorruptData(what, segment=self.content_id)
