"""Entries as columns over numpy, on their way into a segment: first as they come, then sorted."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..client.protocol.chunks import ABSENT
from . import strings
from .strings import Marks, Numbers, Strings, side_by_side

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
    values: Strings
    absent: Marks | None
    """Which entries have no value; None: all have one. The length of an absent value is 0."""
    headers: Mapping[int, Any]
    snapshots: Set[int]

    def __len__(self) -> int:
        return len(self.keys)

    def sorted(self, places: Numbers, fresh: Marks) -> "SortedEntries":
        """Return the entries at these positions, in this order, which is by (key, seq).

        `fresh` tells which of them have another key than the entry before.
        """
        starts = np.flatnonzero(fresh)
        if not len(starts) or starts[0]:
            starts = np.concatenate(([0], starts))
        values = self.values.take(places)
        lengths = values.lengths.astype(np.uint32)
        if self.absent is not None:
            lengths[self.absent[places]] = ABSENT
        headers: dict[int, Any] = {}
        snapshots: set[int] = set()
        if self.headers or self.snapshots:
            for at, place in enumerate(places.tolist()):
                if place in self.headers:
                    headers[at] = self.headers[place]
                if place in self.snapshots:
                    snapshots.add(at)
        return SortedEntries(
            self.keys.take(places[starts]), starts, self.seqs[places], self.timestamps[places],
            lengths, values, headers, snapshots,
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
        strings.joined([part.values for part in parts]),
        absent, headers, snapshots,
    )  # fmt: skip


@dataclass(slots=True)
class SortedEntries:
    """Entries sorted by (key, seq). The keys, and the values, lie side by side in their buffers."""

    keys: Strings
    """The distinct keys."""
    starts: Numbers
    """The position of the first entry of each key."""
    seqs: Column
    timestamps: Column
    lengths: NDArray[np.uint32]
    """The bytes of each value, or ABSENT."""
    values: Strings
    headers: dict[int, Any]
    snapshots: set[int]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def key_counts(self) -> Numbers:
        """The number of entries of each key."""
        return np.diff(self.starts, append=len(self))

    def from_(self, begin: int) -> "SortedEntries":
        """Return the entries from a position on, at least one, with positions counted anew."""
        key = int(np.searchsorted(self.starts, begin, "right")) - 1
        starts = self.starts[key:] - begin
        starts[0] = 0
        keys, values = self.keys.slice(key, len(self.keys)), self.values.slice(begin, len(self))
        return SortedEntries(
            side_by_side([keys]), starts, self.seqs[begin:], self.timestamps[begin:],
            self.lengths[begin:], side_by_side([values]),
            {at - begin: found for at, found in self.headers.items() if at >= begin},
            {at - begin for at in self.snapshots if at >= begin},
        )  # fmt: skip

    def followed_by(self, more: "SortedEntries") -> "SortedEntries":
        """Return these entries and more entries that follow."""
        at = len(self)
        keys, starts = more.keys, more.starts + at
        if self.keys[len(self.keys) - 1] == keys[0]:
            keys, starts = keys.slice(1, len(keys)), starts[1:]
        return SortedEntries(
            side_by_side([self.keys, keys]),
            np.concatenate((self.starts, starts)),
            np.concatenate((self.seqs, more.seqs)),
            np.concatenate((self.timestamps, more.timestamps)),
            np.concatenate((self.lengths, more.lengths)),
            side_by_side([self.values, more.values]),
            {**self.headers, **{at + place: found for place, found in more.headers.items()}},
            self.snapshots | {at + place for place in more.snapshots},
        )  # fmt: skip
