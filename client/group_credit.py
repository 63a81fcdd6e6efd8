"""The keys that a consumer of a group has, and the room for more: its credit.

The room is shared evenly between the ranges, so that a range with much work leaves room for the
others. A range is asked again when half of its room is free, or when the caller has nothing left:
a few large requests are cheaper than many small ones.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from .group_held import Held
from .protocol import limits
from .routing import Range


class HeldKeys:
    """The keys of a consumer. `give_back` gives back a key, by its key and token, that the leader
    keeps for the consumer although it is settled."""

    def __init__(
        self, keys_max: int, bytes_max: int, give_back: Callable[[bytes, int], None]
    ) -> None:
        self._keys_max = keys_max
        self._bytes_max = bytes_max
        self._give_back = give_back
        self._of: dict[bytes, Held] = {}
        self._ready: deque[Held] = deque()
        self._news = asyncio.Event()
        """Set when a caller that waits for a batch should look again."""
        self._freed = asyncio.Event()
        """Set when there may be more room."""
        self._shares = 1

    def __len__(self) -> int:
        return len(self._of)

    @property
    def all(self) -> list[Held]:
        """All keys, with their newest batches."""
        return list(self._of.values())

    def share(self, ranges: int) -> None:
        """Share the room between this number of ranges."""
        self._shares = max(1, ranges)
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
                return held
        return None

    async def news(self) -> None:
        """Wait until there may be a batch, or `wake`."""
        self._news.clear()
        await self._news.wait()

    def wake(self) -> None:
        """Let the callers that wait look again."""
        self._news.set()

    def over(self, held: Held, *, lost: bool = False) -> None:
        """Note that the consumer no longer has a key."""
        held.over(lost=lost)
        if self._of.get(held.key) is held:
            del self._of[held.key]
        self._freed.set()

    # For the takes of ranges.

    def holds(self, known: Range) -> list[Held]:
        """Return the keys of the range that the consumer has."""
        return [held for held in self._of.values() if known.contains(held.key)]

    def room(self, known: Range) -> tuple[int, int]:
        """Return for how many keys and bytes of the range there is room; (0, 0): for none now."""
        held = self.holds(known)
        keys, size = (max(1, most // self._shares) for most in (self._keys_max, self._bytes_max))
        keys_left, left = keys - len(held), size - sum(each.size for each in held)
        if keys_left <= 0 or left <= 0 or (self._ready and 2 * keys_left < keys):
            return 0, 0
        return min(keys_left, limits.group_take_keys_max), min(left, limits.page_bytes_max)

    async def more_room(self, known: Range) -> None:
        """Wait until there is room."""
        while not self.room(known)[0]:
            self._freed.clear()
            await self._freed.wait()

    def took(self, found: list[Held]) -> None:
        """Take batches of a range. A key that comes again was lost before."""
        for held in found:
            before = self._of.get(held.key)
            if before is not None:
                before.over(lost=True)
            self._of[held.key] = held
        self._ready += found
        if found:
            self._news.set()

    def lost(self, key: bytes, token: int) -> None:
        """Note that the lease of a key with that token has ended."""
        held = self._of.get(key)
        if held is not None and held.token == token:
            self.over(held, lost=True)

    def unwanted(self, held: Held) -> None:
        """Give back a key that a leader keeps for the consumer, and that is settled."""
        self._give_back(held.key, held.token)
