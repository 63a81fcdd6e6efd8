"""Where to split a range by size: a key with about half of the bytes on either side.

Readers that share a range also learn here about how many bytes lie where.

A large segment is weighed by its index. The bytes of each block in the file count for the block's
first key, unless the block goes on with the same key. A small segment is decoded, and a memtable is
sampled. So the key is right to within a few hundredths of the range. The bytes of a single key are
told apart from the bytes after it. Memory is bounded however large the range is.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from ..client.protocol import limits
from .memtable import Memtable
from .range_state import RangeState
from .segment_format import SegmentInfo
from .spans import NOTHING, common, has

_DECODED_BLOCKS: Final = 16
"""The most blocks of the range in a segment that is decoded."""
_BLOCKS_A_STEP: Final = 256
_SAMPLES: Final = 512
"""The entries of a memtable that are sampled."""
_PARTS: Final = 1_024
"""Neighbouring keys are weighed together while they have less than this part of the range."""
_SHOWN_PARTS: Final = 256
"""Neighbouring keys of a layout are joined while they have less than this part of it."""


class Weight(NamedTuple):
    """The bytes from a key on. `alone`: all of them are the key's own."""

    key: bytes
    size: int
    alone: bool


class SplitKey:
    """The search in one range, step by step.

    Call `step` until it returns True (`in_turns(replica, search.step)` of a node, again and again).
    Then `key` is a key inside the range's span, not its start, with entries of the range on both
    sides. It is None if the range has one key or none. The contents of files count when a step
    runs, even if they are hidden.

    A step is a few milliseconds of work within `SegmentStore.on_hand`. When it raises NotPrepared
    or TurnOver, repeating the call makes progress. It raises CorruptData. Between steps anything
    may happen to the range: when its files change, the search begins again.
    """

    def __init__(self, state: RangeState) -> None:
        self.key: bytes | None = None
        self.size = 0
        """About the bytes that the key halves: the bytes of files, and of memtables as files."""
        self._state = state
        self._begin()

    def _begin(self) -> None:
        state = self._state
        self._files = state.manifest
        self._weights: list[Weight] = []
        self._keys: list[bytes] = []
        """Some keys that surely have entries, including the first and the last of each file."""
        self._grain = max(1, sum(info.size for info in state.manifest) // _PARTS)
        self._jobs: deque[Callable[[], None]] = deque()
        for info in state.manifest:
            self._jobs.append(partial(self._weigh, info))
        for memtable in state.memtables():
            count = min(len(memtable), _SAMPLES)
            held = memtable.held(memtable.first_seq, memtable.end_seq)
            for at in range(count):
                seq = held[at * len(memtable) // count]
                size = 1 + memtable.unpacked_bytes // count
                self._jobs.append(partial(self._sample, memtable, seq, size))

    def layout(self, start: bytes, end: bytes | None) -> list[tuple[bytes, int]]:
        """Return keys in [start, end), ascending, each with about the bytes up to the next key.

        Call this when the search is done. A row that begins before `start` is left out.
        """
        rows = sorted(row for row in self._weights if has((start, end), row.key))
        grain = max(1, sum(row.size for row in rows) // _SHOWN_PARTS)
        return [(row.key, row.size) for row in _joined(rows, grain)]

    def step(self) -> bool:
        """Do a step of the work. Return whether it was the last."""
        if self._files is not self._state.manifest:
            self._begin()
        if self._jobs:
            self._jobs[0]()
            self._jobs.popleft()
            self._state.store.moved_on()
        if not self._jobs:
            self.key = _halving(self._weights, self._keys)
            self.size = sum(weight.size for weight in self._weights)
        return not self._jobs

    def _weigh(self, info: SegmentInfo) -> None:
        segment = self._state.store.segment(info.content_id)
        own = common(info.clip, (self._state.start, self._state.end)) or NOTHING
        ranks = segment.ranks_of(*own)
        if not ranks:
            return
        keys = [segment.key_at(ranks[0]), segment.key_at(ranks[-1])]
        ordinals = segment.footer.blocks_of(ranks)
        few = len(ordinals) <= _DECODED_BLOCKS
        weigh, step = (self._decode, 1) if few else (self._walk, _BLOCKS_A_STEP)
        for at in range(0, len(ordinals), step):
            self._jobs.append(partial(weigh, info, ordinals[at : at + step], ranks))
        self._keys += keys

    def _decode(self, info: SegmentInfo, ordinals: range, ranks: range) -> None:
        """Weigh one block, key by key; its bytes in the file are shared out by the keys' sizes."""
        segment = self._state.store.segment(info.content_id)
        ((_, stored),) = segment.stored(ordinals, ranks)
        block, begin = segment.block(ordinals[0]), segment.footer.ranks[ordinals[0]]
        own = block.sizes(max(ranks.start - begin, 0), min(ranks.stop - begin, block.count))
        whole = sum(size for _, size in own) or 1
        self._add(Weight(key, 1 + size * stored // whole, True) for key, size in own)

    def _walk(self, info: SegmentInfo, ordinals: range, ranks: range) -> None:
        """Weigh some blocks; only the first of them is decoded."""
        rows = self._state.store.segment(info.content_id).stored(ordinals, ranks)
        followed = [*(key for key, _ in rows[1:]), None]
        self._add(
            Weight(key, stored, key == following)
            for (key, stored), following in zip(rows, followed, strict=True)
        )

    def _sample(self, memtable: Memtable, seq: int, size: int) -> None:
        key = memtable.key_at(seq)
        self._weights.append(Weight(key, size, True))
        self._keys.append(key)

    def _add(self, weights: Iterable[Weight]) -> None:
        self._weights += _joined(weights, self._grain)


def _joined(weights: Iterable[Weight], grain: int) -> Iterator[Weight]:
    """Yield weights in the order of key, with small ones joined to the weight before them."""
    held: Weight | None = None
    for weight in weights:
        if held is None:
            held = weight
        elif held.key == weight.key:
            held = held._replace(size=held.size + weight.size)
        elif held.size + weight.size <= grain:
            held = Weight(held.key, held.size + weight.size, False)
        else:
            yield held
            held = weight
    if held is not None:
        yield held


def _halving(weights: Iterable[Weight], held: Sequence[bytes]) -> bytes | None:
    """Return the key nearest to half of the weight, with held keys on both sides, or None."""
    first, last = min(held, default=b""), max(held, default=b"")
    places = {last, _next(first)}
    ends: list[tuple[bytes, int]] = []
    for key, size, alone in weights:
        places.add(key)
        ends.append((key if alone else _next(key), size))
    ends.sort()
    sums = list(accumulate((size for _, size in ends), initial=0))

    def unevenness(place: bytes) -> int:
        return abs(2 * sums[bisect_left(ends, (place,))] - sums[-1])

    inside = (place for place in sorted(places) if first < place <= last)
    return min(inside, key=unevenness, default=None)


def _next(key: bytes) -> bytes:
    """Return the next possible key; the last possible key is its own successor.

    A key of the largest length is followed by a shorter key.
    """
    if len(key) < limits.key_bytes_max:
        return key + b"\0"
    stripped = key.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else key
