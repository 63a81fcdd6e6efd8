"""Which neighbouring segments of a range are to be joined: a function of manifest and rules alone.

Eight neighbours of one size at a time, so that each byte is written again once for every eightfold
growth. Small segments, which age makes of a range that gets little, are joined at once; full ones
are left alone until there are more than fit the bound on a range's segments. Where marks of
compaction let superseded entries go, the oldest segments are joined as soon as those behind the
first have its size together: so at most about half of what a compacted range keeps on disk is
superseded. Every member that has the same manifest and rules decides the same.

After a merge of ranges that goes for each run of rows with the same clip: rows of two parents may
have the same seqs, which no file can have. What an older run has that is superseded stays until
the whole of it is removed.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile
from operator import attrgetter
from typing import Final

from ..client.protocol import limits
from .segment_format import SegmentInfo
from .visibility import Rules

_CLIP: Final = attrgetter("clip")
_JOINED: Final = 8
_SMALLEST_BYTES: Final = limits.MIB
"""Segments below are of one size."""
_FULL_BYTES: Final = 32 * limits.MIB
"""From here on a segment is what a memtable makes: it is joined only for the sake of the bound."""
_SEGMENTS_MAX: Final = 32
"""Above it full ones are joined too."""
_SEGMENTS_HARD_MAX: Final = 40
"""Above it the eight that are smallest together, whatever their sizes are."""


def plan(manifest: Sequence[SegmentInfo], rules: Rules) -> tuple[int, int] | None:
    """The slice of the manifest that is to become one segment, None where there is none. All of its
    rows have the same clip."""
    begin = 0
    for _, rows in groupby(manifest, _CLIP):
        run = list(rows)
        found = _plan_run(run, rules)
        if found is not None:
            return begin + found[0], begin + found[1]
        begin += len(run)
    return None


def is_oldest(manifest: Sequence[SegmentInfo], begin: int) -> bool:
    """Whether no row before that one has any key of its clip."""
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
    """How often eight segments of the smallest size were joined."""
    tier = 0
    while size >= _SMALLEST_BYTES:
        size //= _JOINED
        tier += 1
    return tier


def _runs_of_small(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """`_runs` of each stretch of segments that are not full."""
    begin = 0
    for full, stretch in groupby(sizes, key=_FULL_BYTES.__le__):
        tiers = list(map(_tier, stretch))
        if not full:
            yield from _runs(tiers, begin)
        begin += len(tiers)


def _runs(tiers: Sequence[int], offset: int) -> Iterator[tuple[int, int]]:
    """Tier and begin, counted from `offset`, of eight neighbours of one tier, smaller among them.

    The largest of what is left begin each time, as in the log-structured merge policy of Lucene:
    a large one with small ones behind it is not written again for their sake.
    """
    begin = 0
    while begin < len(tiers):
        largest = max(tiers[begin:])
        end = max(at for at in range(begin, len(tiers)) if tiers[at] == largest) + 1
        if end - begin >= _JOINED:
            yield largest, offset + begin
        begin = end
