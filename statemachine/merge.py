"""Joining neighbouring segments into one, in bounded memory.

The inputs are read side by side, a block of each at a time. The entries below the least of their
last keys are complete: they are joined, sorted by C code (stable, so that each key's entries stay
in the order of seq) and handed on. The key at that bound may fill any number of blocks, and is
copied by itself, first its numbers and then its values. Entries that no reader may see or that lie
outside the range's span (x8) are dropped; all others keep their seq (promise S6). The same inputs
and rules give the same bytes on every node.

Memory: a few blocks of each input, and four bytes an entry for the order of seq.
"""

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Final

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData
from .block_cache import BlockCache
from .segment_block import Block, Columns
from .segment_format import Bases, SegmentInfo
from .segment_output import SegmentOutput
from .segment_reader import Segment

Kept = Callable[[bytes, list[int], list[int], list[bool], list[bool]], Sequence[int]]
"""(key, seqs, timestamps, which have no value, which are snapshots): the positions to keep."""
_DROPPED: Final = 0xFFFFFFFF
_CACHE_BYTES: Final = 32 * limits.MIB


def merge(
    path: Path,
    inputs: Sequence[tuple[Path, SegmentInfo]],
    *,
    start: bytes,
    end: bytes | None,
    kept: Kept | None,
    on_step: Callable[[], None] = lambda: None,
) -> SegmentInfo | None:
    """Write the kept entries of these neighbours, oldest first, to `path`, synced.

    Returns None when no entry is kept. `kept` None: all entries within [start, end) are kept.
    `on_step` is called now and then. The caller has hashed the inputs. Raises CorruptData, OSError;
    no file is left then.
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
        self.block = segment.block(0)
        self.at = 0
        self.ranks = array("I")
        """The rank in the output of each entry that was read."""

    def skip_to(self, key: bytes) -> None:
        """Begin at the first entry whose key is not below `key`."""
        self.ordinal = self.segment.find(key, 0)
        self.block = self.segment.block(self.ordinal)
        self.at = self.block.span(key)[0]
        self.drop(self.segment.footer.ranks[self.ordinal] + self.at)
        self._advance()

    def drop(self, count: int) -> None:
        """Note that the next `count` entries do not go into the output."""
        self.ranks.extend(array("I", [_DROPPED]) * count)

    def take_to(self, at: int) -> Columns:
        """Take the entries of this block from the present position up to `at`."""
        begin, self.at = self.at, max(self.at, at)
        columns = self.block.columns(begin, self.at, self._bases)
        self._advance()
        return columns

    def _advance(self) -> None:
        if self.at == self.block.count and self.ordinal is not None:
            self.ordinal = self.segment.following(self.ordinal)
            if self.ordinal is not None:
                self.block, self.at = self.segment.block(self.ordinal), 0

    def ahead(self, key: bytes) -> Iterator[tuple[Block, int, int]]:
        """Yield where the key's entries are, from the present position on; take nothing."""
        ordinal, block = self.ordinal, self.block
        while ordinal is not None:
            low, high = block.span(key)
            if low == high:
                return
            yield block, low, high
            if high < block.count:
                return
            ordinal = self.segment.following(ordinal)
            if ordinal is not None:
                block = self.segment.block(ordinal)


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
            bound = min(each.block.keys[-1] for each in live)
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
        parts = [each.take_to(each.block.span(bound)[0]) for each in live]
        lengths = list(map(len, parts))
        joined = parts[0]
        for part in parts[1:]:
            joined.extend(part)
        order: Sequence[int] = sorted(range(len(joined)), key=joined.keys.__getitem__)
        if self._kept is not None:
            order = self._staying(self._kept, joined, order)
        ranks = array("I", [_DROPPED]) * len(joined)
        first = self._output.entries
        deque(map(ranks.__setitem__, order, range(first, first + len(order))), maxlen=0)
        self._output.add(joined.take(order))
        begin = 0
        for each, length in zip(live, lengths, strict=True):
            each.ranks.extend(ranks[begin : begin + length])
            begin += length

    def _staying(self, kept: Kept, columns: Columns, order: Sequence[int]) -> list[int]:
        """Return the positions to keep, from positions sorted by (key, seq)."""
        staying: list[int] = []
        first_seq, first_ms = self._bases.seq, self._bases.timestamp_ms
        begin = 0
        for key, count in Counter(map(columns.keys.__getitem__, order)).items():
            places = order[begin : begin + count]
            begin += count
            chosen = kept(
                key,
                [first_seq + columns.seqs[at] for at in places],
                [first_ms + columns.timestamps[at] for at in places],
                [columns.values[at] is None for at in places],
                [at in columns.snapshots for at in places],
            )
            staying += map(places.__getitem__, chosen)
        return staying

    def _copy_key(self, live: Sequence[_Input], key: bytes) -> None:
        """Copy all entries of a key, input by input, a block at a time."""
        mask = None if self._kept is None else self._mask(self._kept, live, key)
        begin = 0
        for each in live:
            while each.ordinal is not None and each.at < each.block.span(key)[1]:
                columns = each.take_to(each.block.span(key)[1])
                places: Sequence[int] = range(len(columns))
                if mask is not None:
                    places = list(compress(places, mask[begin : begin + len(columns)]))
                begin += len(columns)
                ranks = array("I", [_DROPPED]) * len(columns)
                for rank, at in enumerate(places, self._output.entries):
                    ranks[at] = rank
                each.ranks.extend(ranks)
                self._output.add(columns.take(places))

    def _mask(self, kept: Kept, live: Sequence[_Input], key: bytes) -> bytearray:
        """Return a mask of the key's entries to keep."""
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
        mask = bytearray(len(seqs))
        for at in kept(key, seqs, timestamps, absent, snapshots) if seqs else ():
            mask[at] = 1
        return mask

    def _tell_order(self, each: _Input) -> None:
        """Add the new ranks of an input to the output, in the order of seq."""
        segment = each.segment
        each.drop(segment.footer.entries - len(each.ranks))
        for ordinal in range(len(segment.footer.order_seqs)):
            piece = segment.piece(ordinal)
            ranks = array("I", map(each.ranks.__getitem__, piece.ranks))
            seqs: Sequence[int] = piece.seqs
            if _DROPPED in ranks:
                stays = [rank != _DROPPED for rank in ranks]
                seqs, ranks = list(compress(seqs, stays)), array("I", compress(ranks, stays))
            self._output.order.add(seqs, ranks)
