"""Turns of the clients that update a key: one client at a time, in the order of their requests.

An update reads the last entry of a key and appends on the condition that no other entry has come
between. When clients read at the same moment, all but one are refused, and a client near the
leader wins most of the time. So the leader answers these reads one after another: the next read
after the next entry of the key, or after `TURN_S` when the client appends nothing.

A turn is a courtesy that the condition of the append does not depend on (S9). Turns are in memory
only: a new leader begins without turns.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from ..runtime.unexpected import OnBroken, guarded

TURN_S: Final = 0.5
"""The longest turn. A client that has died holds the others up for no longer."""
WAIT_S: Final = 1.5
"""The longest wait for a turn, in which a client still counts the node as alive. The read is then
answered out of turn, and the client competes."""
WAITING_MAX: Final = 4_096
"""Waiting clients of a range. Further reads are answered at once."""
_TURNS_MAX: Final = 65_536
"""Keys with a turn. On further keys clients compete."""
_WAKES_A_TURN: Final = 32
"""A woken task takes about 0.1 ms, so the woken tasks take about 3 ms of a turn of the loop."""


class _Turn:
    """The turn of a key: when it ends at the latest, and the clients that wait for the next."""

    __slots__ = ("timer", "until", "waiting")

    def __init__(self, until: float) -> None:
        self.until = until
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.timer: asyncio.TimerHandle | None = None
        """Runs while clients wait."""


class KeyTurns:
    """The turns of one range. `on_broken` ends the node after a bug."""

    def __init__(self, on_broken: OnBroken) -> None:
        self._on_broken = on_broken
        self._turns: dict[bytes, _Turn] = {}
        """By key; the turn that began first comes first."""
        self._waiting = 0
        self._released: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def __len__(self) -> int:
        """Return how many keys have a turn."""
        return len(self._turns)

    @property
    def waiting(self) -> int:
        """The number of clients that wait."""
        return self._waiting

    async def take(self, key: bytes, wait_s: float) -> None:
        """Return when the caller's turn begins, or after `wait_s` without a turn."""
        loop = asyncio.get_running_loop()
        self._forget_ended(loop.time())
        turn = self._turns.get(key)
        if turn is None or (turn.until <= loop.time() and not turn.waiting):
            self._turns.pop(key, None)
            if len(self._turns) < _TURNS_MAX:
                self._turns[key] = _Turn(loop.time() + TURN_S)
            return
        if self._waiting >= WAITING_MAX:
            return
        future: asyncio.Future[None] = loop.create_future()
        turn.waiting.append(future)
        self._set_timer(key, turn)
        self._waiting += 1
        try:
            async with asyncio.timeout(wait_s):
                await future
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if not future.cancelled():  # the turn began, and nobody is there to use it
                self.end(key)
            raise
        finally:
            self._waiting -= 1

    def applied(self, keys: Iterable[bytes]) -> None:
        """End the turns of keys that got entries."""
        if self._turns:
            for key in self._turns.keys() & keys:
                self.end(key)

    def end(self, key: bytes) -> None:
        """End the turn of the key; the turn of the next client begins."""
        turn = self._turns.pop(key, None)
        if turn is None:
            return
        if turn.timer is not None:
            turn.timer.cancel()
            turn.timer = None
        while turn.waiting:
            future = turn.waiting.popleft()
            if not future.done():  # else the client has left
                future.set_result(None)
                turn.until = asyncio.get_running_loop().time() + TURN_S
                self._turns[key] = turn
                self._set_timer(key, turn)
                return

    def end_all(self) -> None:
        """End all turns, and all waits: this member does not lead any more."""
        for turn in self._turns.values():
            if turn.timer is not None:
                turn.timer.cancel()
            self._released += turn.waiting
        self._turns.clear()
        if not self._waking:
            self._wake_some()

    def _wake_some(self) -> None:
        """Wake some of the clients whose waits have ended, in this turn of the loop."""
        for _ in range(min(_WAKES_A_TURN, len(self._released))):
            future = self._released.popleft()
            if not future.done():
                future.set_result(None)
        self._waking = bool(self._released)
        if self._waking:
            asyncio.get_running_loop().call_soon(guarded(self._wake_some, self._on_broken))

    def _set_timer(self, key: bytes, turn: _Turn) -> None:
        if turn.waiting and turn.timer is None:
            ended = guarded(partial(self.end, key), self._on_broken)
            turn.timer = asyncio.get_running_loop().call_at(turn.until, ended)

    def _forget_ended(self, now: float) -> None:
        """Forget turns that ended without an entry and for which nobody waits."""
        while self._turns:
            key, turn = next(iter(self._turns.items()))
            if turn.until > now or turn.waiting:
                return
            del self._turns[key]
