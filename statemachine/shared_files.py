"""How much of each segment is a range's own, where a file is shared since a split.

Of such a file a range counts the bytes of the blocks that have the keys of its row. They are found
once for a file and a span, from the index of the file, step by step; until then they are unknown,
which is neither nothing nor the whole file.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from .segment_format import SegmentInfo
from .segment_reader import Segment
from .spans import NOTHING, common, has

_BLOCKS_A_STEP: Final = 256


class Share(NamedTuple):
    """What a range has of a segment."""

    size: int
    """Bytes: of the file, or where that is shared, of its blocks as far as they are the range's."""
    entries: int


class Shares:
    """Of the files of one range of keys [start, end)."""

    def __init__(self, start: bytes, end: bytes | None) -> None:
        self._span = (start, end)
        self._found: dict[Hashable, Share] = {}
        """By file and clip."""
        self._begun: dict[Hashable, tuple[int, int]] = {}
        """Of those of which some blocks are added up: their bytes, and how many blocks."""
        self._complete: Sequence[SegmentInfo] | None = None
        """A manifest of which nothing is unknown."""

    def of(self, info: SegmentInfo) -> Share | None:
        """None while it is unknown."""
        own = common(info.clip, self._span)
        if own is not None and has(own, info.min_key) and has(own, info.max_key):
            return Share(info.size, info.entries)
        return self._found.get(_name(info))

    def look(self, manifest: Sequence[SegmentInfo], segment: Callable[[str], Segment]) -> bool:
        """Do a piece of the work, of a few milliseconds; whether nothing is unknown any more.

        `segment` opens a file. What it and the file raise leaves the work where it was.
        """
        if manifest is self._complete:
            return True
        for info in manifest:
            if self.of(info) is None:
                self._add_up(info, segment(info.content_id))
                return False
        self._complete = manifest
        named = set(map(_name, manifest))
        self._found = {name: share for name, share in self._found.items() if name in named}
        self._begun.clear()
        return True

    def _add_up(self, info: SegmentInfo, segment: Segment) -> None:
        name = _name(info)
        size, done = self._begun.get(name, (0, 0))
        ranks = segment.ranks_of(*(common(info.clip, self._span) or NOTHING))
        ordinals = segment.footer.blocks_of(ranks)
        some = ordinals[done : done + _BLOCKS_A_STEP]
        size += sum(stored for _, stored in segment.stored(some, ranks))
        if some[-1:] != ordinals[-1:]:
            self._begun[name] = (size, done + len(some))
        else:
            self._found[name] = Share(size, len(ranks))


def _name(info: SegmentInfo) -> Hashable:
    return info.content_id, *info.clip
