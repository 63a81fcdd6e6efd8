"""Waits for views on one replica: requests that wait until positions are above the seqs of entries.

A wait looks at applied positions alone. An applied command is committed, so a majority has it on
disk, and no change of leader takes it back (G7).

After a command that may have moved positions, all waits of the replica are looked at, soon: a sweep
looks at a bounded number of keys in one turn of the loop, and the sweeps take at most a fifth of
the time of the loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ...client.protocol.errors import LognodeError

Seen = Callable[[bytes, int], bool]
"""Whether a view has acknowledged the entry of a key with this seq."""
_TURN_LOOKS: Final = 512
"""Looks at a key for a view in one turn of the loop, less than a millisecond."""
_PAUSE_S: Final = 0.002
"""The least time between two sweeps."""
_SHARE: Final = 4
"""A pause lasts at least this many times as long as the sweep before."""


class Wait:
    """One request: the entries, and the views that are to acknowledge them.

    The wait is done when `enough` views have acknowledged each entry, or with `together` when
    `enough` views have acknowledged all entries. By default `enough` is the number of the views.
    """

    def __init__(
        self,
        entries: Sequence[tuple[bytes, int]],
        views: Sequence[Seen | None],
        *,
        enough: int | None = None,
        together: bool = False,
    ) -> None:
        """None instead of a view: the view has acknowledged nothing, and nobody waits for it."""
        waited = len(views) - views.count(None)
        self._enough = waited if enough is None else min(enough, waited)
        self._together = together
        self._short = len(entries)
        """How many entries fewer than `enough` views have acknowledged."""
        self._unseen = [len(entries)] * len(views)
        """How many entries each view has not acknowledged."""
        self._entries = entries
        self._views = views
        self._masks = [0] * len(entries)
        self._left = [
            (at, bit) for at in range(len(entries))
            for bit, view in enumerate(views) if view is not None
        ]  # fmt: skip
        self._at = 0
        """Where in `_left` the present sweep looks next."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when enough is seen, and by `end`."""

    @property
    def looks(self) -> int:
        """How many pairs of an entry and a view are not seen yet."""
        return len(self._left)

    @property
    def masks(self) -> list[int]:
        """For each entry, a number whose bit n says that view n has acknowledged the entry."""
        return list(self._masks)

    def begin(self) -> None:
        """Begin a sweep."""
        self._at = 0

    def look(self, count: int) -> int:
        """Look at no more than `count` pairs; return at how many. Fewer: the sweep is over."""
        part = self._left[self._at : self._at + count]
        still = []
        for at, bit in part:
            view = self._views[bit]
            if view is not None and view(*self._entries[at]):
                self._masks[at] |= 1 << bit
                self._short -= self._masks[at].bit_count() == self._enough
                self._unseen[bit] -= 1
            else:
                still.append((at, bit))
        self._left[self._at : self._at + len(part)] = still
        self._at += len(still)
        if self._is_enough() and not self.done.done():
            self.done.set_result(None)
        return len(part)

    def _is_enough(self) -> bool:
        if not self._left:
            return True
        if self._together:
            return self._unseen.count(0) >= self._enough
        return not self._short

    def end(self, error: LognodeError) -> None:
        """End the wait with an error: the replica cannot tell any more."""
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # the waiting request may be gone


class ViewWaits:
    """The waits of a replica. `on_broken` gets the error of a bug."""

    def __init__(self, on_broken: Callable[[BaseException], None]) -> None:
        self._on_broken = on_broken
        self._waits: dict[Wait, None] = {}
        self._changed = False
        self._sweeping: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._waits)

    async def wait(self, wait: Wait, wait_s: float) -> None:
        """Return when enough is seen, or after the time. Raises the error of `end_all`."""
        wait.begin()
        while wait.look(_TURN_LOOKS) == _TURN_LOOKS:  # noqa: ASYNC110  # looks go on
            await asyncio.sleep(0)
        if wait.done.done() or wait_s <= 0:
            return
        self._waits[wait] = None
        self.tell()  # positions may have moved between the turns of the look
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.shield(wait.done)
        except TimeoutError:
            if wait.done.done():
                wait.done.result()
        finally:
            del self._waits[wait]

    def tell(self) -> None:
        """Look at the waits again, soon: positions may have moved."""
        self._changed = True
        if self._waits and self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())
            self._sweeping.add_done_callback(self._swept)

    def end_all(self, error: LognodeError) -> None:
        """End all waits with an error."""
        for wait in self._waits:
            wait.end(error)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while self._changed and self._waits:
            self._changed = False
            took_s = 0.0
            left = _TURN_LOOKS
            began = loop.time()
            for wait in list(self._waits):
                wait.begin()
                while (looked := wait.look(left)) == left:
                    took_s += loop.time() - began
                    await asyncio.sleep(0)
                    left, began = _TURN_LOOKS, loop.time()
                left -= looked
            took_s += loop.time() - began
            await asyncio.sleep(max(_PAUSE_S, _SHARE * took_s))

    def _swept(self, task: "asyncio.Task[None]") -> None:
        self._sweeping = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_broken(error)
        elif self._changed:
            self.tell()
