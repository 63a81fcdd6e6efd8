"""A cache of decoded parts of segments: blocks, Bloom filters, pieces of the order of seq.

All segments of a node share one cache, bounded in bytes. The least recently used part goes first.
"""

from collections import OrderedDict
from typing import Any, Protocol

from .turn_limits import Part, Turns


class Cached(Protocol):
    """A part that the cache keeps."""

    @property
    def size(self) -> int:
        """The bytes of memory of the part."""


class BlockCache:
    """See the module. `bytes_max` bounds the bytes of memory of all parts together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._blocks: OrderedDict[Part, Any] = OrderedDict()
        self.turns: Turns | None = None
        """The turns of the current read, if it is limited in what it may decode."""

    def get(self, segment: str, part: bytes, ordinal: int) -> Any | None:
        """Return the part, or None.

        Raises TurnOver for a missing part that must not be decoded now.
        """
        key = (segment, part, ordinal)
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
        elif self.turns is not None:
            found = self.turns.kept.get(key)
            if found is None:
                self.turns.check()
        return found

    def holds(self, segment: str, part: bytes, ordinal: int) -> bool:
        """Whether the part is here and need not be decoded."""
        key = (segment, part, ordinal)
        return key in self._blocks or (self.turns is not None and key in self.turns.kept)

    def put(self, segment: str, part: bytes, ordinal: int, found: Cached) -> None:
        """Keep a part."""
        if self.turns is not None:
            self.turns.decoded((segment, part, ordinal), found)
        self._blocks[segment, part, ordinal] = found
        self.bytes += found.size
        while self.bytes > self._bytes_max and len(self._blocks) > 1:
            _, old = self._blocks.popitem(last=False)
            self.bytes -= old.size
