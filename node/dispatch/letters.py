"""Names for the copies of dead letters, without I/O.

A copy is an append of a producer that the leader names: a hash of the group, the generation and
the fence, which no other leader has. The leader numbers its letters from 1 on, and the group's
state keeps producer and number with the parked key (GROUP_LETTER). Each later leader repeats the
copy with the same number, and the log of dead letters applies one of them (S8).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ...client.protocol import limits
from ...partitions.producers import own_id
from ...raft.types import GroupId
from ...statemachine.groups.row import Row

EPOCH: Final = 1
_NUMBERS_MAX: Final = limits.producer_window_max // 4
"""Numbers of one producer. So even a number from a leader of long ago is within the window."""


class Letters:
    """The letters that one leader numbers."""

    def __init__(self, group_id: int, gid: GroupId, fence: int) -> None:
        self._told = f"dead letters\0{group_id}\0{gid.range_id}\0{gid.generation}\0{fence}"
        self._part = 0
        self._last = 0
        self.producer = own_id(self._told)
        self._open: dict[int, bytes] = {}
        """The numbers that may be sent, ascending, with their keys."""

    def draw(self, keys: Iterable[bytes]) -> tuple[int, list[int]]:
        """Return the producer and the numbers of new letters of these keys."""
        if self._last >= _NUMBERS_MAX:
            self._part, self._last, self._open = self._part + 1, 0, {}
            self.producer = own_id(f"{self._told}\0{self._part}")
        numbers = []
        for key in keys:
            self._last += 1
            self._open[self._last] = key
            numbers.append(self._last)
        return self.producer, numbers

    def low(self, producer: int) -> int:
        """Return the number below which no letter of the producer is ever sent again.

        Only the leader that gave the numbers knows: after a split, letters of another leader may be
        in several ranges.
        """
        return next(iter(self._open), self._last + 1) if producer == self.producer else 1

    def ended(self, producer: int, numbers: Iterable[int]) -> None:
        """Forget letters that are not sent again."""
        if producer == self.producer:
            for number in numbers:
                self._open.pop(number, None)

    def look(self, rows: Mapping[bytes, Row]) -> None:
        """Forget the letters of keys that an operator moved. No letter may be proposed now."""
        for number, key in list(self._open.items()):
            row = rows.get(key)
            if row is None or (row.producer, row.number) != (self.producer, number):
                del self._open[number]
