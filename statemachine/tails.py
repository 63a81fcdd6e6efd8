"""The last seq of each Kafka partition of a range, removed or not.

A partition's keys begin with its number in two bytes (`client.protocol.key_partitions`). Consumers
of Kafka stand still at a high watermark that no entry reaches, so the watermark is the last seq of
the partition, and never falls: not when compaction or retention removes the last entry, and not
when the range splits, merges or moves.

The table is made of the memtables, which every entry passes: the entries that came since the last
look are noted together, with NumPy, before the table is asked or stored. So the rows of a base
follow from its entries alone, and are the same on every member.

A range has the table if its log has partitions. The first base of a range says so, by an empty
table; the bases of later generations take the table over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Self

import numpy as np

from ..client.protocol.key_partitions import prefix
from .memtable import Memtable
from .spans import Span, has

TABLE: Final = "tails"
_BEHIND_MAX: Final = 1 << 14
"""Entries that are noted together: a look takes about a millisecond."""

Rows = Sequence[Sequence[int]]
"""Partitions in order, and the last seq of each; other partitions never had an entry."""


class Tails:
    """See the module. `end`: the rows have all entries below this seq."""

    def __init__(self, rows: Rows, end: int) -> None:
        partitions, seqs = rows
        self._rows = dict(zip(partitions, seqs, strict=True))
        self._end = end

    @classmethod
    def from_wire(cls, tables: Mapping[str, Any]) -> Self | None:
        """Return the table of a base; None: the log of the range has no partitions."""
        rows = tables.get(TABLE)
        return None if rows is None else cls(rows, tables.get("next_seq", 1))

    def keep_up(self, memtables: Iterable[Memtable]) -> None:
        """Note the entries of the memtables if many are not noted yet."""
        held = tuple(memtables)
        if held[-1].end_seq - self._end > _BEHIND_MAX:
            self.now(held)

    def now(self, memtables: Iterable[Memtable]) -> dict[int, int]:
        """Return the rows as of now. The memtables have all entries that are not noted."""
        for memtable in memtables:
            if memtable.end_seq > self._end:
                self._note(memtable)
        return self._rows

    def to_wire(self, memtables: Iterable[Memtable]) -> Rows:
        """Return the table of a base, as of now."""
        return _rows(self.now(memtables))

    def _note(self, memtable: Memtable) -> None:
        prefixes, seqs = memtable.prefixes(max(self._end, memtable.first_seq))
        self._end = memtable.end_seq
        if not len(prefixes):
            return
        newest = np.zeros(int(prefixes.max()) + 1, np.int64)
        newest[prefixes] = seqs  # NumPy assigns the last of several that belong to one place
        found = newest.nonzero()[0]
        self._rows.update(zip(found.tolist(), newest[found].tolist(), strict=True))


def clipped(rows: Rows, span: Span) -> Rows:
    """Return the rows of the partitions in a span, which begins and ends at bounds of
    partitions."""
    return _rows(dict(_within(rows, span)))


def united(parents: Iterable[tuple[Span, Rows]]) -> Rows:
    """Return the rows of a merged range: those of each parent's own partitions."""
    return _rows(dict(chain.from_iterable(_within(rows, span) for span, rows in parents)))


def _within(rows: Rows, span: Span) -> Iterator[tuple[int, int]]:
    partitions, seqs = rows
    for partition, seq in zip(partitions, seqs, strict=True):
        if has(span, prefix(partition)):
            yield partition, seq


def _rows(found: Mapping[int, int]) -> Rows:
    return [sorted(found), [found[partition] for partition in sorted(found)]]


def are_rows(table: Any) -> bool:
    """Whether this is a table of a base: partitions of two bytes, each with a seq."""
    if not isinstance(table, list | tuple) or [type(part) for part in table] != [list, list]:
        return False
    partitions, seqs = table
    return (
        len(partitions) == len(seqs)
        and all(type(each) is int and 0 <= each < 1 << 16 for each in partitions)
        and all(type(each) is int and 0 < each < 1 << 63 for each in seqs)
    )
