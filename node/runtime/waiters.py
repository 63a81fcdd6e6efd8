"""Waiters for a number that grows: each waiter is woken when its own number is reached.

A replica has tens of thousands of waiters when clients ask for that. A waiter costs nothing until
its number is reached, and one turn of the event loop wakes at most `WAKES_A_TURN` waiters.
"""

import asyncio
import heapq
from collections import deque
from typing import Final

from .unexpected import OnBroken, guarded

WAKES_A_TURN: Final = 32
"""A woken task takes about 0.1 ms, so the woken tasks take about 3 ms of a turn."""


class Waiters:
    """Wakes waiters in the order of their numbers. `on_broken` ends the node after a bug."""

    def __init__(self, on_broken: OnBroken) -> None:
        self._on_broken = on_broken
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._due: deque[asyncio.Future[None]] = deque()
        """Released waiters, which are woken whatever their numbers are."""
        self._reached = 0
        self._count = 0
        self._given_up = 0
        """Cancelled waiters that the heap may still hold; never fewer than it holds."""
        self._scheduled = False

    def __len__(self) -> int:
        """Return how many waiters are not woken yet; some of them may have given up."""
        return len(self._heap)

    async def wait(self, number: int) -> None:
        """Return after the number was reached or the waiters were released.

        The caller checks its own condition before and after the call.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._heap, (number, self._count, future))
        try:
            await future
        except asyncio.CancelledError:
            self._forget_one()
            raise

    def reach(self, number: int) -> None:
        """Wake the waiters for this number and for lower numbers, in slices of the loop."""
        self._reached = number
        if not self._scheduled and (self._heap or self._due):
            self._wake_some()

    def release(self) -> None:
        """Wake all present waiters, in slices of the loop."""
        self._due.extend(future for *_, future in self._heap)
        self._heap.clear()
        if not self._scheduled:
            self._wake_some()

    def _wake_some(self) -> None:
        self._scheduled = False
        for _ in range(WAKES_A_TURN):
            if self._due:
                future = self._due.popleft()
            elif self._heap and self._heap[0][0] <= self._reached:
                *_, future = heapq.heappop(self._heap)
            else:
                return
            if not future.done():
                future.set_result(None)
        if self._due or (self._heap and self._heap[0][0] <= self._reached):
            self._scheduled = True
            asyncio.get_running_loop().call_soon(guarded(self._wake_some, self._on_broken))

    def _forget_one(self) -> None:
        """Drop cancelled waiters when they may be half of the heap.

        On an idle range they would pile up, and a scan of the heap after each of them would take
        quadratic time.
        """
        self._given_up += 1
        if 2 * self._given_up > len(self._heap):
            self._heap = [waiter for waiter in self._heap if not waiter[2].done()]
            heapq.heapify(self._heap)
            self._given_up = 0
