"""Entries as columns over numpy, on their way into a segment."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import scattered, strings
from .scattered import Scattered
from .strings import Marks, Numbers, Strings

Column = NDArray[np.unsignedinteger[Any]]
"""Numbers of four or eight bytes, as the segment's `Bases` say."""


@dataclass(slots=True)
class Entries:
    """Entries in any order. Headers and snapshots are by position."""

    keys: Strings
    seqs: Column
    """Seqs less the segment's first."""
    timestamps: Column
    """Timestamps less the segment's first."""
    values: Scattered
    absent: Marks | None
    """Which entries have no value; None: all have one. The length of an absent value is 0."""
    headers: Mapping[int, Any]
    snapshots: Set[int]

    def __len__(self) -> int:
        return len(self.keys)

    def held(self, places: Numbers, values: bytes) -> "Entries":
        """Return the entries at these positions, which have these values side by side.

        Nothing else of these columns stays in memory.
        """
        headers: dict[int, Any] = {}
        snapshots: set[int] = set()
        if self.headers or self.snapshots:
            for at, place in enumerate(places.tolist()):
                if place in self.headers:
                    headers[at] = self.headers[place]
                if place in self.snapshots:
                    snapshots.add(at)
        return Entries(
            self.keys.take(places), self.seqs[places], self.timestamps[places],
            Scattered.side_by_side(values, self.values.lengths[places]),
            None if self.absent is None else self.absent[places], headers, snapshots,
        )  # fmt: skip


def joined(parts: Sequence[Entries]) -> Entries:
    """Return the entries of all parts, at least one, one part after the other."""
    headers: dict[int, Any] = {}
    snapshots: set[int] = set()
    absent: Marks | None = None
    begin = 0
    if any(part.absent is not None for part in parts):
        absent = np.concatenate(
            [np.zeros(len(part), np.bool_) if part.absent is None else part.absent
             for part in parts]
        )  # fmt: skip
    for part in parts:
        headers.update((begin + at, found) for at, found in part.headers.items())
        snapshots.update(map(begin.__add__, part.snapshots))
        begin += len(part)
    return Entries(
        strings.joined([part.keys for part in parts]),
        np.concatenate([part.seqs for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        scattered.joined([part.values for part in parts]),
        absent, headers, snapshots,
    )  # fmt: skip
