"""A cache of decoded parts of segments: blocks, Bloom filters, pieces of the order of seq.

All segments of a node share one, bounded in bytes; what was used least recently goes first.
"""

from collections import OrderedDict
from typing import Any, Protocol

from .turn_limits import Part, Turns


class Cached(Protocol):
    """What the cache keeps."""

    @property
    def size(self) -> int:
        """Bytes of memory."""


class BlockCache:
    """See the module. `bytes_max` bounds the bytes of memory of all parts together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._blocks: OrderedDict[Part, Any] = OrderedDict()
        self.turns: Turns | None = None
        """Of the read that is going on, where it must not decode as much as it likes."""

    def get(self, segment: str, part: bytes, ordinal: int) -> Any | None:
        """The part, if it is here. Raises TurnOver: it is not, and must not be decoded now."""
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
        """Whether the part need not be decoded."""
        key = (segment, part, ordinal)
        return key in self._blocks or (self.turns is not None and key in self.turns.kept)

    def put(self, segment: str, part: bytes, ordinal: int, found: Cached) -> None:
        """Keep a part."""
        if self.turns is not None:
            self.turns.decoded((segment, part, ordinal), found)
        self._blocks[segment, part, ordinal] = found
        self._bytes += found.size
        while self._bytes > self._bytes_max and len(self._blocks) > 1:
            _, old = self._blocks.popitem(last=False)
            self._bytes -= old.size
