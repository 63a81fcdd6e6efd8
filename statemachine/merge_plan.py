"""Which neighbouring segments of a range to join: a function of manifest and rules alone.

The plan joins eight neighbours of one size at a time, so that each byte is written again once for
every eightfold growth. Small segments, which a range with little traffic makes by age, are joined
at once. Full segments are left alone until they exceed the bound on a range's segments. Where
compaction marks let superseded entries go, the oldest segments are joined as soon as the later ones
together have the size of the first: so at most about half of a compacted range's bytes on disk are
superseded. Every member with the same manifest and rules decides the same.

After a merge of ranges the plan treats each run of rows with the same clip by itself: rows of two
parents may have the same seqs, which one file cannot hold. Superseded entries of an older run stay
until the whole run is removed.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import Final

from ..client.protocol import limits
from .segment_format import SegmentInfo
from .visibility import Rules

_JOINED: Final = 8
_SMALLEST_BYTES: Final = limits.MIB
"""Segments below this size count as one size."""
_FULL_BYTES: Final = 32 * limits.MIB
"""Segments from this size on are as large as a memtable makes them: only the bound joins them."""
_SEGMENTS_MAX: Final = 32
"""Above this number full segments are joined, too."""
_SEGMENTS_HARD_MAX: Final = 40
"""Above this number the eight neighbours with the least bytes are joined, whatever their sizes."""


def plan(
    manifest: Sequence[SegmentInfo], rules: Rules,
    stays: Callable[[str], bool] = lambda _: True,
) -> tuple[int, int] | None:  # fmt: skip
    """Return the slice of the manifest to join into one segment, or None.

    All of its rows have the same clip, and their files stay on the disk, by content id.
    """
    begin = 0
    for (_, stay), rows in groupby(manifest, lambda row: (row.clip, stays(row.content_id))):
        run = list(rows)
        found = _plan_run(run, rules) if stay else None
        if found is not None:
            return begin + found[0], begin + found[1]
        begin += len(run)
    return None


def is_oldest(manifest: Sequence[SegmentInfo], begin: int) -> bool:
    """Whether no earlier row has a key of this row's clip."""
    clip = manifest[begin].clip
    return all(info.within(clip) is None for info in manifest[:begin])


def _plan_run(run: Sequence[SegmentInfo], rules: Rules) -> tuple[int, int] | None:
    sizes = [info.size for info in run]
    compacted = len(list(takewhile(rules.compacts, run)))
    if compacted > 1 and sum(sizes[1:compacted]) >= sizes[0]:
        return 0, compacted
    found = min(_runs_of_small(sizes), default=None)
    if found is None and len(sizes) > _SEGMENTS_MAX:
        found = min(_runs(list(map(_tier, sizes)), 0), default=None)
    if found is None and len(sizes) > _SEGMENTS_HARD_MAX:
        starts = range(len(sizes) - _JOINED + 1)
        found = min((sum(sizes[at : at + _JOINED]), at) for at in starts)
    return None if found is None else (found[1], found[1] + _JOINED)


def _tier(size: int) -> int:
    """Return how often eight segments of the smallest size were joined."""
    tier = 0
    while size >= _SMALLEST_BYTES:
        size //= _JOINED
        tier += 1
    return tier


def _runs_of_small(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the `_runs` of each stretch of segments that are not full."""
    begin = 0
    for full, stretch in groupby(sizes, key=_FULL_BYTES.__le__):
        tiers = list(map(_tier, stretch))
        if not full:
            yield from _runs(tiers, begin)
        begin += len(tiers)


def _runs(tiers: Sequence[int], offset: int) -> Iterator[tuple[int, int]]:
    """Yield (tier, begin) of eight neighbours of one tier, which may include smaller ones.

    `begin` counts from `offset`. A run ends with the last of the largest remaining segments, as in
    Lucene's log-structured merge policy: a large segment is not rewritten for the small ones after
    it.
    """
    begin = 0
    while begin < len(tiers):
        largest = max(tiers[begin:])
        end = max(at for at in range(begin, len(tiers)) if tiers[at] == largest) + 1
        if end - begin >= _JOINED:
            yield largest, offset + begin
        begin = end
