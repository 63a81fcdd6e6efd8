"""Sorting a column of keys: 8 bytes of each at a time, as big-endian numbers.

The first 8 bytes sort nearly all keys, or are the same in all. Only keys that are equal so far are
looked at again, 8 bytes further on. A key that ends counts as followed by zeros, and of two keys
that differ in such zeros only, the shorter key is the lesser. Every step is stable, so that equal
keys stay in the order in which they came. A number is sorted 16 bits at a time, from the lowest on,
which numpy does by counting: 64 bits take half the time that comparing them takes. The compiled
module does the same 8 bits at a time, and compares keys where few are equal so far.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .compiled import building
from .strings import Marks, Numbers, Strings, stretches, words

_PARTS: Final = 4
"""The parts of 16 bits of a number."""
_STRETCH: Final = 64
"""The bytes that are compared at once where keys were the same so far."""


def sort_keys(keys: Strings) -> tuple[Numbers, Marks]:
    """Return the positions in the order of keys, and for each whether its key is a new one."""
    if building is not None:
        order, fresh = building.sort_keys(keys.data, keys.starts, keys.lengths)
        return np.frombuffer(order, np.int64), np.frombuffer(fresh, np.bool_)
    sorting = _Sorting(len(keys))
    longest, at = int(keys.lengths.max(initial=0)), 0
    while at < longest and len(sorting.open):
        changed = sorting.split_by(words(keys, sorting.order[sorting.open], at))
        at += 8
        if not changed:
            # As in a long prefix of all keys, or in one long key with many entries.
            while sorting.is_settled(keys, at):
                at += _STRETCH
        if at < longest:
            longest = int(keys.lengths[sorting.order[sorting.open]].max(initial=0))
    if len(sorting.open):
        sorting.split_by(keys.lengths[sorting.order[sorting.open]].astype(np.uint64))
    return sorting.order, sorting.fresh


class _Sorting:
    """Positions in order, as groups of keys that are equal so far."""

    def __init__(self, count: int) -> None:
        self.order: Numbers = np.arange(count)
        self.fresh: Marks = np.zeros(count, np.bool_)
        """Which places in the order begin a group."""
        self.fresh[:1] = True
        self.open: Numbers = np.arange(count)
        """The places of the groups with more than one position."""

    def is_settled(self, keys: Strings, at: int) -> bool:
        """Return whether the keys of each open group are the same in a stretch from `at` on."""
        rows = self.order[self.open]
        if not len(rows) or int(keys.lengths[rows].min()) < at + _STRETCH:
            return False
        found = stretches(keys, rows, at, _STRETCH)
        differ = (found[1:] != found[:-1]).any(axis=1)
        return not (differ & ~self.fresh[self.open][1:]).any()

    def split_by(self, column: NDArray[np.uint64]) -> bool:
        """Sort each open group by a column over the open places, and split the groups.

        Return whether a group was split.
        """
        places, begins = self.open, self.fresh[self.open]
        changes = column[1:] != column[:-1]
        changes &= ~begins[1:]
        if not changes.any():
            self.open = places[_in_groups(begins)]
            return False
        groups = np.cumsum(begins) - 1
        if groups[-1] == 0:
            order = _stable_order(column)
        else:
            mixed = np.zeros(groups[-1] + 1, np.bool_)
            mixed[groups[1:][changes]] = True
            chosen = mixed[groups]
            places, column, groups = places[chosen], column[chosen], groups[chosen]
            order = _stable_order(column)
            order = order[_stable_order(groups[order].astype(np.uint64))]
        column = column[order]
        self.order[places] = self.order[places][order]
        self.fresh[places[1:]] |= column[1:] != column[:-1]
        begins = self.fresh[self.open]
        self.open = self.open[_in_groups(begins)]
        return True


def _stable_order(column: NDArray[np.uint64]) -> Numbers:
    """Return the positions in the order of numbers; equal numbers stay in order."""
    parts = [(column >> np.uint64(16 * at)).astype(np.uint16) for at in range(_PARTS)]
    order: Numbers | None = None
    for part in parts:
        if (part == part[0]).all():
            continue
        if order is None:
            order = np.argsort(part, kind="stable")
        else:
            order = order[np.argsort(part[order], kind="stable")]
    return np.arange(len(column)) if order is None else order


def _in_groups(begins: Marks) -> Marks:
    """Return which places are not a group of their own."""
    ends = np.append(begins[1:], True)
    inside: Marks = ~(begins & ends)
    return inside
