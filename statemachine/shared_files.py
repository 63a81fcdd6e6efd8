"""The range's own part of each segment, where a file is shared since a split.

A range counts the bytes of those blocks of a shared file that have the keys of its row. The blocks
are found once for a file and a span, a file at a time: by the index the first and the last block,
and in the footer the sizes. Until then the share is unknown, which is neither nothing nor the whole
file.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from .segment_format import SegmentInfo
from .segment_reader import Segment
from .spans import NOTHING, common, has


class Share(NamedTuple):
    """A range's share of a segment."""

    size: int
    """The bytes of the file, or the range's part of its blocks where the file is shared."""
    entries: int


class Shares:
    """The shares of the files of one range of keys [start, end)."""

    def __init__(self, start: bytes, end: bytes | None) -> None:
        self._span = (start, end)
        self._found: dict[Hashable, Share] = {}
        """Shares by file and clip."""
        self._complete: Sequence[SegmentInfo] | None = None
        """A manifest whose shares are all known."""

    def of(self, info: SegmentInfo) -> Share | None:
        """Return the share of a row, or None while it is unknown."""
        own = common(info.clip, self._span)
        if own is not None and has(own, info.min_key) and has(own, info.max_key):
            return Share(info.size, info.entries)
        return self._found.get(_name(info))

    def are_known(self, manifest: Sequence[SegmentInfo]) -> bool:
        """Whether `look` has found the shares of all files of this manifest."""
        return manifest is self._complete

    def look(self, manifest: Sequence[SegmentInfo], segment: Callable[[str], Segment]) -> bool:
        """Look at one more file. Return whether all shares are known.

        `segment` opens a file. An exception of `segment` or of the file loses no work.
        """
        if self.are_known(manifest):
            return True
        for info in manifest:
            if self.of(info) is None:
                self._add_up(info, segment(info.content_id))
                return False
        self._complete = manifest
        named = set(map(_name, manifest))
        self._found = {name: share for name, share in self._found.items() if name in named}
        return True

    def _add_up(self, info: SegmentInfo, segment: Segment) -> None:
        ranks = segment.ranks_of(*(common(info.clip, self._span) or NOTHING))
        self._found[_name(info)] = Share(segment.footer.stored_bytes(ranks), len(ranks))


def _name(info: SegmentInfo) -> Hashable:
    return info.content_id, *info.clip
