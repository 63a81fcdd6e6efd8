"""The rows of a group: keys with a position of their own, and decisions.

Rows are never changed, only replaced: a copy of the table of a base is a copy of references (x16).
"""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple


class Row(NamedTuple):
    """A key with a position of its own, and what is known of its next entry."""

    done: int
    """The position: the next seq wanted."""
    deliveries: int = 0
    """Failed deliveries of the next entry."""
    parked: bool = False
    """Whether the key is delivered to nobody until somebody says retry or skip."""
    error: str = ""
    """The last error of a consumer."""
    producer: int = 0
    """The producer of the copies of the next entry, which is at `done`; see `number`."""
    number: int = 0
    """The number of the copies in the log of dead letters, which so applies one of them (S8). 0:
    the next entry is not a dead letter."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the position is known."""
        return not (self.deliveries or self.parked or self.error)


def plain_rows(done: Iterable[int]) -> Iterator[Row]:
    """Yield rows of keys of which nothing but the position is known. C makes them."""
    fields = zip(done, *map(repeat, Row._field_defaults.values()), strict=False)
    return map(tuple.__new__, repeat(Row), fields)


class Decision(NamedTuple):
    """Something that was decided about keys, other than an acknowledgement."""

    at_ms: int
    """Log time."""
    what: int
    """One of `forms.DECISIONS`."""
    who: str
    """Who decided; empty for the range itself."""
    start: bytes
    end: bytes | None
    """The keys in [start, end); a single key ends at itself and a zero byte."""
    begin: int
    through: int
    """The seqs in [begin, through) are concerned."""
    why: str
