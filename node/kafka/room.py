"""Memory of the door for requests and answers, shared by all connections in the order of asking."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """A number of bytes. One request may always have its bytes, however many they are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """Wait for so many bytes, and have them in the context."""
        await self.take(size)
        try:
            yield
        finally:
            self.free(size)

    async def take(self, size: int) -> None:
        """Wait for so many bytes, and take them."""
        if not self._waiting and self._fits(size):
            self._taken += size
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            await waiter  # `free` takes the bytes for this request
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.free(size)
            raise

    def free(self, size: int) -> None:
        """Give bytes back, and give those who wait theirs."""
        self._taken -= size
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            wanted, waiter = self._waiting.popleft()
            if not waiter.done():
                self._taken += wanted
                waiter.set_result(None)

    def _fits(self, size: int) -> bool:
        return not self._taken or self._taken + size <= self._most
