"""The positions of a follow of many keys, at every batch, without a copy for every batch.

Only the newest positions are kept as a table. Each batch has a moment: the keys whose positions the
batch after it has changed, with the positions before, and a reference to the next moment. The
positions of a batch are the newest positions with all later changes undone (a persistent array by
Baker, "Shallow binding makes functional arrays fast"). A moment refers only to later moments, so
that a dropped batch keeps nothing in memory.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakSet

copied_keys_max: Final = 64
"""A table of at most this many keys is copied for every batch, which costs less."""


class Positions:
    """The newest position of each key of a follow. Moments may be read by other threads."""

    def __init__(self, at: Mapping[bytes, int]) -> None:
        self._now = dict(at)
        self._lock = threading.Lock()
        self._newest: _Moment | None = None
        """None for a table that is copied."""
        self._alive: WeakSet[_Moment] | None = None
        """Moments that the caller may still read, without a table of their own."""
        if len(self._now) > copied_keys_max:
            self._newest, self._alive = _Moment(self), WeakSet()
        self._changes = 0
        """The changes since the last time that moments got tables."""

    def advance(self, changes: Iterable[tuple[bytes, int]]) -> None:
        """Set the positions of some keys; keys that the follow did not begin with are left out."""
        with self._lock:
            now = self._now
            undo: dict[bytes, int] = {}
            for key, position in changes:
                before = now.get(key)
                if before is not None:
                    undo.setdefault(key, before)
                    now[key] = position
            if not undo or self._newest is None or self._alive is None:
                return
            last, self._newest = self._newest, _Moment(self)
            if last.table is None:
                last.undo, last.next = undo, self._newest
            self._changes += len(undo)
            if self._changes > len(now):
                # A moment that is kept unread must not keep all later changes.
                self._changes = 0
                for moment in list(self._alive):
                    moment.keep_table()
                self._alive.clear()

    def view(self) -> Mapping[bytes, int]:
        """Return the positions as they are now, for as long as the caller wants."""
        with self._lock:
            if self._newest is None or self._alive is None:
                return dict(self._now)
            self._alive.add(self._newest)
            return View(self._newest)

    def table_of(self, moment: "_Moment") -> dict[bytes, int]:
        """Return the positions at a moment."""
        with self._lock:
            moment.keep_table()
            if self._alive is not None:
                self._alive.discard(moment)
            assert moment.table is not None
            return moment.table

    def _table(self, moment: "_Moment") -> dict[bytes, int]:
        undone: dict[bytes, int] = {}
        at = moment
        while at.table is None and at.next is not None:
            for key, position in at.undo.items():
                undone.setdefault(key, position)
            at = at.next
        return {**(self._now if at.table is None else at.table), **undone}


class _Moment:
    """The positions at a batch. `undo` leads from the next moment to this one."""

    __slots__ = ("__weakref__", "_of", "next", "table", "undo")

    def __init__(self, of: Positions) -> None:
        self._of = of
        self.next: _Moment | None = None
        self.undo: dict[bytes, int] = {}
        self.table: dict[bytes, int] | None = None

    def keep_table(self) -> None:
        """Make the table of this moment, which then keeps no later one. The lock is held."""
        if self.table is None:
            self.table = self._of._table(self)
            self.next, self.undo = None, {}

    def positions(self) -> dict[bytes, int]:
        """Return the positions, not to be changed."""
        return self._of.table_of(self) if self.table is None else self.table


class View(Mapping[bytes, int]):
    """The positions at a batch, as a mapping; they are put together when they are first read."""

    __slots__ = ("_moment",)

    def __init__(self, moment: _Moment) -> None:
        self._moment = moment

    def __getitem__(self, key: bytes) -> int:
        return self._moment.positions()[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._moment.positions())

    def __len__(self) -> int:
        return len(self._moment.positions())

    def __repr__(self) -> str:
        return repr(self._moment.positions())

    def __reduce__(self) -> tuple[type[dict[bytes, int]], tuple[dict[bytes, int]]]:
        return dict, (self._moment.positions(),)
