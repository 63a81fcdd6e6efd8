"""Where a range is to be split by size: a key that has about half of the bytes on either side.

And for readers that share a range: about how many bytes lie where.

A large segment is weighed by its index: each block by its bytes in the file, all of which count for
the block's first key, but for those that go on with the same key. A small one is decoded, and a
memtable is sampled. So the key is right to within a few hundredths of the range, what a key alone
has is told from what lies behind it, and memory is bounded however large the range is.
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
"""A segment that has no more of the range is decoded."""
_BLOCKS_A_STEP: Final = 256
_SAMPLES: Final = 512
"""Entries of a memtable that are looked at."""
_PARTS: Final = 1_024
"""Neighbouring keys are weighed together while they have less than this part of the range."""
_SHOWN_PARTS: Final = 256
"""The same, of what a layout shows."""


class Weight(NamedTuple):
    """So many bytes from a key on. `alone`: all of them are the key's own."""

    key: bytes
    size: int
    alone: bool


class SplitKey:
    """The search of one range, step by step.

    `step` until it returns True (`in_turns(replica, search.step)` of a node, again and again); then
    `key` is a key inside the range's span, not its start, with entries of the range on both sides,
    or None: there is one key alone, or nothing. What is in files when a step runs counts, though
    it may be hidden.

    A step is a few milliseconds of work within `SegmentStore.on_hand`. When it raises NotPrepared
    or TurnOver, the same call gets further. It raises CorruptData. Between steps anything may
    happen to the range: where its files change the search begins again.
    """

    def __init__(self, state: RangeState) -> None:
        self.key: bytes | None = None
        self.size = 0
        """The bytes that the key halves, about: of files, and of what memtables would make."""
        self._state = state
        self._begin()

    def _begin(self) -> None:
        state = self._state
        self._files = state.manifest
        self._weights: list[Weight] = []
        self._keys: list[bytes] = []
        """Some that surely have entries, the first and the last of each file among them."""
        self._grain = max(1, sum(info.size for info in state.manifest) // _PARTS)
        self._jobs: deque[Callable[[], None]] = deque()
        for info in state.manifest:
            self._jobs.append(partial(self._weigh, info))
        for memtable in state.memtables():
            count = min(len(memtable), _SAMPLES)
            for at in range(count):
                seq = memtable.first_seq + at * len(memtable) // count
                size = 1 + memtable.unpacked_bytes // count
                self._jobs.append(partial(self._sample, memtable, seq, size))

    def layout(self, start: bytes, end: bytes | None) -> list[tuple[bytes, int]]:
        """Once it is done: keys in [start, end), ascending, with about the bytes that lie from each
        on, below the next. What a row that begins before `start` has of the span is not in it."""
        rows = sorted(row for row in self._weights if has((start, end), row.key))
        grain = max(1, sum(row.size for row in rows) // _SHOWN_PARTS)
        return [(row.key, row.size) for row in _joined(rows, grain)]

    def step(self) -> bool:
        """Do a piece of the work; whether that was the last one."""
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
        """One block, key by key; its bytes in the file go to the keys by what they have."""
        segment = self._state.store.segment(info.content_id)
        ((_, stored),) = segment.stored(ordinals, ranks)
        block, begin = segment.block(ordinals[0]), segment.footer.ranks[ordinals[0]]
        own = block.sizes(max(ranks.start - begin, 0), min(ranks.stop - begin, block.count))
        whole = sum(size for _, size in own) or 1
        self._add(Weight(key, 1 + size * stored // whole, True) for key, size in own)

    def _walk(self, info: SegmentInfo, ordinals: range, ranks: range) -> None:
        """Some blocks, none of which is decoded but the first."""
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
    """Weights, in the order of key, with the small ones joined to what is before them."""
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
    """The key with the nearest to half of the weight below it, and keys that are held on both
    sides."""
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
    """The key that follows at once; the longest are followed by shorter ones, the last by none,
    for which it stands itself."""
    if len(key) < limits.key_bytes_max:
        return key + b"\0"
    stripped = key.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else key
