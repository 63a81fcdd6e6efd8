"""Joining neighbouring segments into one, in bounded memory.

The inputs are read side by side, a few blocks of each at a time. The entries below the least of
their last keys are complete: they are joined, sorted as columns (stable, so that each key's entries
stay in the order of seq) and handed on. The key at that bound may fill any number of blocks, and is
copied by itself, first its numbers and then its values. Entries that no reader may see or that lie
outside the range's span (x8) are dropped; all others keep their seq (promise S6). The same inputs
and rules give the same bytes on every node.

Memory: `_AHEAD` blocks or `_AHEAD_BYTES` of each input, and four bytes an entry for the order of
seq.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData
from .block_cache import BlockCache
from .block_entries import EntryBlock
from .entries import Entries, joined
from .key_order import sort_keys
from .segment_block import Block
from .segment_format import Bases, SegmentInfo
from .segment_output import SegmentOutput
from .segment_reader import Segment
from .strings import Marks, Numbers

Kept = Callable[[bytes, list[int], list[int], list[bool], list[bool]], Sequence[int]]
"""(key, seqs, timestamps, which have no value, which are snapshots): the positions to keep."""
_DROPPED: Final = 0xFFFFFFFF
Ranks = NDArray[np.uint32]
_AHEAD: Final = 16
"""The most blocks of an input that are joined at a time."""
_AHEAD_BYTES: Final = limits.MIB
"""Their bytes in the file; a single block may have more."""
_CACHE_BYTES: Final = 32 * limits.MIB


def merge(
    path: Path,
    inputs: Sequence[tuple[Path, SegmentInfo]],
    *,
    start: bytes,
    end: bytes | None,
    kept: Kept | None,
    on_step: Callable[[], None] = lambda: None,
    value_gain: int = limits.value_gain,
) -> SegmentInfo | None:
    """Write the kept entries of these neighbours, oldest first, to `path`, synced.

    Returns None when no entry is kept. `kept` None: all entries within [start, end) are kept.
    `on_step` is called now and then. `value_gain` is that of the range's rules. The caller has
    hashed the inputs. Raises CorruptData, OSError; no file is left then.
    """
    infos = [info for _, info in inputs]
    bases = Bases.of(
        infos[0].first_seq, infos[-1].end_seq,
        min(info.min_timestamp_ms for info in infos), max(info.max_timestamp_ms for info in infos),
    )  # fmt: skip
    cache = BlockCache(_CACHE_BYTES)
    segments: list[Segment] = []
    try:
        for source, info in inputs:
            segments.append(Segment(source, info.content_id, cache))
            if (segments[-1].footer.first_seq, segments[-1].footer.end_seq) != info[3:5]:
                raise CorruptData(
                    f"segment {info.content_id} does not match its manifest",
                    segment=info.content_id,
                )
        with SegmentOutput(
            path, bases=bases, entries=sum(info.entries for info in infos),
            data_bytes=sum(map(_data_bytes, segments, infos)),
            sample=[value for segment in segments for value in _sample(segment)],
            value_gain=value_gain,
        ) as output:  # fmt: skip
            _Merge([_Input(segment, bases) for segment in segments], output, bases, kept).run(
                start, end, on_step
            )
            if not output.entries:
                return None
            return output.finish(infos[0].first_seq, infos[-1].end_seq)
    finally:
        for segment in segments:
            segment.close()


def _data_bytes(segment: Segment, info: SegmentInfo) -> int:
    """Return the data bytes of a file; the footers of earlier versions do not count headers."""
    return max(segment.footer.data_bytes, info.size)


def _sample(segment: Segment) -> Iterator[bytes | None]:
    block = segment.block(segment.footer.blocks // 2)
    return map(block.value, range(block.count))


class _Input:
    """One segment, read from its first entry to its last."""

    def __init__(self, segment: Segment, bases: Bases) -> None:
        self.segment = segment
        self._bases = bases
        self.ordinal: int | None = 0
        self._decoded: dict[int, EntryBlock] = {}
        """A block that was decoded before its turn."""
        self.block = self._load(0)
        self.at = 0
        self.ranks: Ranks = np.full(segment.footer.entries, _DROPPED, np.uint32)
        """The rank in the output of each entry; an entry that is left out keeps `_DROPPED`."""
        self.read = 0
        """The number of entries before the present position."""

    def skip_to(self, key: bytes) -> None:
        """Begin at the first entry whose key is not below `key`."""
        self.ordinal = self.segment.find(key, 0)
        self.block = self._load(self.ordinal)
        self.at = self.block.span(key)[0]
        self.read = self.segment.footer.ranks[self.ordinal] + self.at
        self._advance()

    def last_ahead(self) -> bytes:
        """Return the last key of the blocks that are read next."""
        if self.ordinal is None:
            raise ValueError("no block is left")
        sizes, last = self.segment.footer.sizes, self.ordinal
        room = _AHEAD_BYTES - sizes[last]
        while last + 1 < min(self.ordinal + _AHEAD, len(sizes)) and sizes[last + 1] <= room:
            last += 1
            room -= sizes[last]
        if last == self.ordinal:
            return self.block.last[0]
        self._decoded[last] = self._load(last)
        return self._decoded[last].last[0]

    def take_below(self, key: bytes) -> list[Entries]:
        """Take the entries from the present position up to `key`, block by block."""
        parts = []
        while self.ordinal is not None:
            block, end = self.block, self.block.span(key)[0]
            parts.append(self.take_to(end))
            if end < block.count:
                break
        return parts

    def take_to(self, at: int) -> Entries:
        """Take the entries of this block from the present position up to `at`."""
        begin, self.at = self.at, max(self.at, at)
        entries = self.block.entries(begin, self.at, self._bases)
        self.read += len(entries)
        self._advance()
        return entries

    def rank_last(self, ranks: Ranks) -> None:
        """Note the ranks of the entries taken last."""
        self.ranks[self.read - len(ranks) : self.read] = ranks

    def _advance(self) -> None:
        if self.at == self.block.count and self.ordinal is not None:
            after = self.segment.after(self.ordinal, self.block, self._load)
            self.ordinal = None if after is None else self.ordinal + 1
            if after is not None:
                self.block, self.at = after, 0

    def _load(self, ordinal: int) -> EntryBlock:
        found = self._decoded.pop(ordinal, None)
        return found or self.segment.decoded(ordinal, EntryBlock)

    def ahead(self, key: bytes) -> Iterator[tuple[Block, int, int]]:
        """Yield where the key's entries are, from the present position on; take nothing."""
        ordinal = self.ordinal
        while ordinal is not None:
            block = self.segment.block(ordinal)
            low, high = block.span(key)
            if low == high:
                return
            yield block, low, high
            if high < block.count:
                return
            ordinal = self.segment.following(ordinal)


class _Merge:
    """The merge of the inputs into the output."""

    def __init__(
        self, inputs: Sequence[_Input], output: SegmentOutput, bases: Bases, kept: Kept | None
    ) -> None:
        self._inputs = inputs
        self._output = output
        self._bases = bases
        self._kept = kept

    def run(self, start: bytes, end: bytes | None, on_step: Callable[[], None]) -> None:
        """Merge all entries, and then write the order of seq."""
        for each in self._inputs:
            each.skip_to(start)
        while live := [each for each in self._inputs if each.ordinal is not None]:
            on_step()
            bound = min(each.last_ahead() for each in live)
            if end is not None and bound >= end:
                self._join(live, end)
                break
            self._join(live, bound)
            self._copy_key([each for each in live if each.ordinal is not None], bound)
        for each in self._inputs:
            self._tell_order(each)
            on_step()

    def _join(self, live: Sequence[_Input], bound: bytes) -> None:
        """Join the entries below the bound, whose keys are complete."""
        taken = [each.take_below(bound) for each in live]
        entries = joined([part for parts in taken for part in parts])
        order, fresh = sort_keys(entries.keys)
        if self._kept is not None:
            stays = self._staying(self._kept, entries, order, fresh)
            groups = np.cumsum(fresh)[stays]
            order, fresh = order[stays], np.diff(groups, prepend=0) != 0
        ranks: Ranks = np.full(len(entries), _DROPPED, np.uint32)
        ranks[order] = np.arange(len(order), dtype=np.uint32) + self._output.entries
        if len(order):
            self._output.add(entries, order, fresh)
        begin = 0
        for each, parts in zip(live, taken, strict=True):
            count = sum(map(len, parts))
            each.rank_last(ranks[begin : begin + count])
            begin += count

    def _staying(self, kept: Kept, entries: Entries, order: Numbers, fresh: Marks) -> Numbers:
        """Return which places of the order to keep."""
        staying: list[int] = []
        first_seq, first_ms = self._bases.seq, self._bases.timestamp_ms
        places, begins = order.tolist(), np.flatnonzero(fresh).tolist()
        seqs = [first_seq + seq for seq in entries.seqs[order].tolist()]
        stamps = [first_ms + stamp for stamp in entries.timestamps[order].tolist()]
        absent = [False] * len(order)
        if entries.absent is not None:
            absent = entries.absent[order].tolist()
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=False):
            chosen = kept(
                entries.keys[places[begin]], seqs[begin:end], stamps[begin:end],
                absent[begin:end], [at in entries.snapshots for at in places[begin:end]],
            )  # fmt: skip
            staying += map(begin.__add__, chosen)
        return np.array(staying, np.int64)

    def _copy_key(self, live: Sequence[_Input], key: bytes) -> None:
        """Copy all entries of a key, input by input, a block at a time."""
        mask = None if self._kept is None else self._mask(self._kept, live, key)
        begin = 0
        for each in live:
            while each.ordinal is not None and each.at < each.block.span(key)[1]:
                entries = each.take_to(each.block.span(key)[1])
                places = np.arange(len(entries))
                if mask is not None:
                    places = np.flatnonzero(mask[begin : begin + len(entries)])
                begin += len(entries)
                ranks: Ranks = np.full(len(entries), _DROPPED, np.uint32)
                ranks[places] = np.arange(len(places), dtype=np.uint32) + self._output.entries
                each.rank_last(ranks)
                if len(places):
                    self._output.add(entries, places, np.zeros(len(places), np.bool_))

    def _mask(self, kept: Kept, live: Sequence[_Input], key: bytes) -> Marks:
        """Return which of the key's entries to keep."""
        seqs: list[int] = []
        timestamps: list[int] = []
        absent: list[bool] = []
        snapshots: list[bool] = []
        for each in live:
            for block, low, high in each.ahead(key):
                for column, more in zip(
                    (seqs, timestamps, absent, snapshots), block.numbers(low, high), strict=True
                ):
                    column.extend(more)  # type: ignore[attr-defined]  # lists of several types
        mask: Marks = np.zeros(len(seqs), np.bool_)
        if seqs:
            mask[list(kept(key, seqs, timestamps, absent, snapshots))] = True
        return mask

    def _tell_order(self, each: _Input) -> None:
        """Add the new ranks of an input to the output, in the order of seq."""
        segment = each.segment
        for ordinal in range(len(segment.footer.order_seqs)):
            piece = segment.piece(ordinal)
            ranks = each.ranks[np.frombuffer(piece.ranks, np.uint32)]
            stays = ranks != _DROPPED
            self._output.order.add(piece.seq_numbers()[stays], ranks[stays])
