"""The last seqs that a leader has read for the conditions of the next entry.

The entries of a key may be in a file that is in the tier only, and the tier may be away when a
member applies an append on a condition. So the leader, which reads them before it proposes the
append, tells them all members by a LOOKED_UP command. No result depends on the command: a member
without it, or with another one, reads the same seqs from its own files.

What the leader has read holds for an entry unless something was appended or removed in between:

- appended entries of the key are in a memtable, or in a segment with seqs from the leader's next
  seq on, and these are read as always (`Held.last_held`);
- after any removal, and in a range with compaction, nothing that the leader said is used: merges
  may have dropped the entry of which it told, and what hid the entry may be forgotten.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from ..client.protocol import limits
from .forms import are, is_key, is_number

_BYTES_MAX: Final = limits.MIB
_ROW_BYTES: Final = 16
"""The most bytes of a row besides its key."""


class LookedUp(NamedTuple):
    """What the leader said."""

    applied: int
    """The index that the leader had applied when it began to read."""
    next_seq: int
    """The next seq of the range then."""
    last_seqs: Mapping[bytes, int]
    """By key, the last seq that was held; 0 without an entry."""

    @classmethod
    def of(cls, payload: Any) -> "LookedUp":
        """Return what a payload says that `fits`."""
        applied, next_seq, rows = payload
        return cls(applied, next_seq, dict(rows))

    def to_wire(self) -> list[Any]:
        """Return the payload."""
        return [self.applied, self.next_seq, [list(row) for row in self.last_seqs.items()]]


NOTHING: Final = LookedUp(0, 0, {})


def union(told: Iterable[LookedUp]) -> LookedUp:
    """Return one of all that have read something, at most what fits a command."""
    some = [each for each in told if each.last_seqs]
    if not some:
        return NOTHING
    last_seqs: dict[bytes, int] = {}
    size = 0
    for key, seq in chain.from_iterable(each.last_seqs.items() for each in some):
        size += len(key) + _ROW_BYTES
        if size > _BYTES_MAX or len(last_seqs) >= limits.batch_records_max:
            break
        last_seqs[key] = seq
    applied = min(each.applied for each in some)
    return LookedUp(applied, min(each.next_seq for each in some), last_seqs)


class Told:
    """The last that a leader has said. `index`: from there on it is known what was removed."""

    __slots__ = ("_removed", "_said")

    def __init__(self, index: int) -> None:
        self._removed = index
        self._said = NOTHING

    def takes(self, payload: Any) -> None:
        """Apply a LOOKED_UP command."""
        self._said = LookedUp.of(payload)

    def removed(self, index: int) -> None:
        """Note that the entry at this index may have removed entries."""
        self._removed = index

    @property
    def now(self) -> LookedUp:
        """What may be used for the next entry."""
        return self._said if self._said.applied >= self._removed else NOTHING


def fits(payload: Any) -> bool:
    """Whether this is the payload of a LOOKED_UP command."""
    return (
        type(payload) is list
        and len(payload) == 3
        and all(map(is_number, payload[:2]))
        and are(payload[2], list)
        and len(payload[2]) <= limits.batch_records_max
        and all(len(row) == 2 and is_key(row[0]) and is_number(row[1]) for row in payload[2])
    )
