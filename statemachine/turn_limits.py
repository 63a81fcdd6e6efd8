"""How much one turn of the caller's loop does before others run.

A read that needs something to be made ready first ends with one of these exceptions, having changed
nothing. It begins again in a later turn, on the range's state of that time: it holds no
transaction, file or manifest meanwhile, and its answer is that of one moment (S5, S7).
"""

from typing import Any, Final, NamedTuple

from ..client.protocol import limits

ENTRIES_A_TURN: Final = 1_024
"""The entries or keys that one call puts into a page."""
LOOKUP_COST: Final = 8 * limits.KIB
"""The cost of finding a key whose blocks are in memory, about 20 us."""
_BYTES_A_TURN: Final = limits.MIB
"""The bytes decoded in a turn: about 2 ms."""
_PART_COST: Final = 64 * limits.KIB
"""The least cost of decoding a part."""
Part = tuple[str, bytes, int]
"""Segment, kind and ordinal; the parts of a memtable have no segment."""


class TurnOver(Exception):
    """This turn has decoded enough.

    The decoded parts are kept, so that the next turn gets further.
    """


class Place(NamedTuple):
    """Some bytes of a segment file."""

    content_id: str
    offset: int
    size: int


class NotPrepared(Exception):
    """A thread must first open a file, or read a place of the file that only the disk has."""

    def __init__(self, content_id: str, place: Place | None = None) -> None:
        super().__init__(content_id, place)
        self.content_id = content_id
        self.place = place


class Turns:
    """The turns of one read.

    It keeps decoded parts until the read makes progress, whatever room the cache has: the read
    finishes however many others read.
    """

    def __init__(self) -> None:
        self.kept: dict[Part, Any] = {}
        self.fetched: dict[Place, memoryview | None] = {}
        """The places that a thread has read for this read, and the bytes of a file that is not on
        this machine. None: a local file. If the kernel has dropped its bytes again, the read waits
        for the disk, so that it finishes however short memory is."""
        self._left = 0

    def begin(self) -> None:
        """Begin another turn."""
        self._left = _BYTES_A_TURN

    def check(self) -> None:
        """Check before decoding or looking up. Raises TurnOver."""
        if self._left <= 0:
            raise TurnOver

    def decoded(self, part: Part, found: Any, *, cost_min: int = _PART_COST) -> None:
        """Keep a decoded part, which costs its size and at least `cost_min`."""
        self.kept[part] = found
        self.spend(max(found.size, cost_min))

    def spend(self, cost: int) -> None:
        """Charge `cost` to the turn, in bytes decoded."""
        self._left -= cost
