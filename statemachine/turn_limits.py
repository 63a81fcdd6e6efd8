"""How much is done in one turn of the caller's loop before others run.

A read that meets what has to be made ready first ends with one of these exceptions, having changed
nothing. It is begun again, in a later turn, against what the range holds then: no transaction, no
file and no manifest is held meanwhile, and its answer is that of one moment (S5, S7).
"""

from typing import Any, Final

from ..client.protocol import limits

ENTRIES_A_TURN: Final = 1_024
"""Entries or keys that one call puts into a page."""
LOOKUP_COST: Final = 8 * limits.KIB
"""Of finding a key whose blocks are in memory, about 20 us."""
_BYTES_A_TURN: Final = limits.MIB
"""Decoded: about 2 ms."""
_PART_COST: Final = 64 * limits.KIB
"""The least that decoding a part counts for."""
Part = tuple[str, bytes, int]
"""Segment, kind and ordinal; of a memtable, no segment."""


class TurnOver(Exception):
    """Enough was decoded in this turn. What was is kept, so that the next one gets further."""


class NotPrepared(Exception):
    """A file has to be read as a whole before it is opened: something for a thread."""

    def __init__(self, content_id: str) -> None:
        super().__init__(content_id)
        self.content_id = content_id


class Turns:
    """Of one read, over all the turns that it takes.

    What it decoded is held here until it gets somewhere, whatever room the cache has: it comes to
    an end however many others read.
    """

    def __init__(self) -> None:
        self.kept: dict[Part, Any] = {}
        self._left = 0

    def begin(self) -> None:
        """Another turn."""
        self._left = _BYTES_A_TURN

    def check(self) -> None:
        """Something is about to be decoded or looked up. Raises TurnOver."""
        if self._left <= 0:
            raise TurnOver

    def decoded(self, part: Part, found: Any, *, cost_min: int = _PART_COST) -> None:
        """Keep what was decoded, which counts for its size and at least for `cost_min`."""
        self.kept[part] = found
        self.spend(max(found.size, cost_min))

    def spend(self, cost: int) -> None:
        """So much was done, in bytes decoded."""
        self._left -= cost
