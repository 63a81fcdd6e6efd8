"""The keys that a consumer of a group has, and the room for more: its credit.

The keys that wait for the caller follow its pace (`group_pace`). All room is shared evenly between
the ranges, so that a range with much work leaves room for the others. A range is asked again when
half of its room is free, or when the caller has nothing left: a few large requests are cheaper than
many small ones.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection

from .group_held import Held, Unit
from .group_pace import Pace
from .protocol import limits
from .routing import Range


class _Share:
    """The room of a range, and what of it is taken."""

    __slots__ = ("keys", "known", "size", "waiting")

    def __init__(self, known: Range) -> None:
        self.known = known
        self.keys = 0
        self.waiting = 0
        """The keys that no caller has taken yet."""
        self.size = 0


class HeldKeys:
    """The keys of a consumer, or the entries in a group without an order. `give_back` gives back a
    unit, by its token, that the leader keeps for the consumer although it is settled. `clock`
    returns seconds."""

    def __init__(
        self,
        keys_max: int,
        bytes_max: int,
        give_back: Callable[[Unit, int], None],
        clock: Callable[[], float],
    ) -> None:
        self._keys_max = keys_max
        self._clock = clock
        self._pace = Pace(keys_max, clock)
        self._bytes_max = bytes_max
        self._give_back = give_back
        self._of: dict[Unit, Held] = {}
        self._ready: deque[Held] = deque()
        self._news = asyncio.Event()
        """Set when a caller that waits for a batch should look again."""
        self._freed = asyncio.Event()
        """Set when there may be more room."""
        self._shares: dict[int, _Share] = {}
        """By the ids of the ranges."""
        self._in_order: list[_Share] = []
        self._share_of: dict[Unit, _Share] = {}
        """Where each key counts that lies in one of the ranges."""

    def __len__(self) -> int:
        return len(self._of)

    @property
    def all(self) -> list[Held]:
        """All keys, with their newest batches."""
        return list(self._of.values())

    def share(self, ranges: Collection[Range]) -> None:
        """Share the room between these ranges, which have all keys of the group."""
        self._shares = {known.range_id: _Share(known) for known in ranges}
        self._in_order = sorted(self._shares.values(), key=_start)
        self._share_of.clear()
        for held in self._of.values():
            self._count(held, None)
        self._freed.set()

    # For callers.

    def next_ready(self) -> Held | None:
        """Return a batch that no caller has taken yet, or None."""
        while self._ready:
            held = self._ready.popleft()
            if not self._ready:
                self._freed.set()
            if not held.is_ended:
                held.is_handed = True
                self._pace.took()
                share = self._share_of.get(held.unit)
                if share is not None:
                    share.waiting -= 1
                return held
        return None

    async def news(self) -> None:
        """Wait until there may be a batch, or `wake`."""
        since = self._clock()
        self._news.clear()
        await self._news.wait()
        self._pace.rested(since)

    def wake(self) -> None:
        """Let the callers that wait look again."""
        self._news.set()

    def over(self, held: Held, *, lost: bool = False) -> None:
        """Note that the consumer no longer has a key."""
        held.over(lost=lost)
        if self._of.get(held.unit) is held:
            self._drop(held)
        self._freed.set()

    # For the takes of ranges.

    def holds(self, known: Range) -> list[Held]:
        """Return the keys of the range that the consumer has."""
        return [held for held in self._of.values() if known.contains(held.key)]

    def room(self, known: Range) -> tuple[int, int]:
        """Return for how many keys and bytes of the range there is room; (0, 0): for none now."""
        share = self._shares.get(known.range_id)
        if share is None:
            return 0, 0
        wanted = self._keys_max, self._pace.keys, self._bytes_max
        keys, waiting, size = (max(1, most // len(self._shares)) for most in wanted)
        keys_left = min(keys - share.keys, waiting - share.waiting)
        left = size - share.size
        if keys_left <= 0 or left <= 0 or (self._ready and 2 * keys_left < min(keys, waiting)):
            return 0, 0
        return min(keys_left, limits.group_take_keys_max), min(left, limits.page_bytes_max)

    async def more_room(self, known: Range) -> None:
        """Wait until there is room."""
        while not self.room(known)[0]:
            self._freed.clear()
            await self._freed.wait()

    def took(self, known: Range, found: list[Held]) -> None:
        """Take batches of a range. A key that comes again was lost before."""
        share = self._shares.get(known.range_id)
        if share is not None and found:
            keys = [held.key for held in found]
            if not (share.known.contains(min(keys)) and share.known.contains(max(keys))):
                share = None
        for held in found:
            before = self._of.get(held.unit)
            if before is not None:
                before.over(lost=True)
                self._drop(before)
            self._of[held.unit] = held
            self._count(held, share)
        self._ready += found
        if found:
            self._news.set()

    def has(self, unit: Unit, token: int) -> bool:
        """Whether the consumer has the unit by that token."""
        held = self._of.get(unit)
        return held is not None and held.token == token

    def lost(self, unit: Unit, token: int) -> None:
        """Note that the lease of a unit with that token has ended."""
        if self.has(unit, token):
            self.over(self._of[unit], lost=True)

    def unwanted(self, held: Held) -> None:
        """Give back a key that a leader keeps for the consumer, and that is settled."""
        self._give_back(held.unit, held.token)

    def _count(self, held: Held, share: _Share | None) -> None:
        """Let a key take room of its range. `share` is that of the range, or None."""
        if share is None:
            at = bisect_right(self._in_order, held.key, key=_start) - 1
            share = self._in_order[at] if at >= 0 else None
            if share is None or not share.known.contains(held.key):
                return  # the range has ended, and another is not known yet
        self._share_of[held.unit] = share
        share.keys += 1
        share.waiting += not held.is_handed
        share.size += held.size

    def _drop(self, held: Held) -> None:
        """Forget a key, which no longer takes room."""
        del self._of[held.unit]
        share = self._share_of.pop(held.unit, None)
        if share is not None:
            share.keys -= 1
            share.waiting -= not held.is_handed
            share.size -= held.size


def _start(share: _Share) -> bytes:
    return share.known.start
