"""Reads objects before they are needed, a few at a time and in the given order.

What waits are the stored bytes, at most `AHEAD` objects by default: an object has about 4 MiB, and
none above `CONTENT_BYTES_MAX` is taken. An object is unpacked when its turn comes.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, Self

from .store import Store

AHEAD: Final = 4
"""How many objects are read together or wait."""


class ReadAhead:
    """Objects in the order of their names. Use as an asynchronous context."""

    def __init__(self, store: Store, names: Iterable[str], at_once: int = AHEAD) -> None:
        self._store = store
        self._names = iter(names)
        self._at_once = at_once
        self._reads: deque[asyncio.Task[bytes]] = deque()

    async def next(self) -> bytes:
        """Return the stored bytes of the next object. Raises CorruptData for a missing object, and
        the errors of the store."""
        self._fill()
        found = await self._reads.popleft()
        self._fill()
        return found

    def _fill(self) -> None:
        while len(self._reads) < self._at_once:
            name = next(self._names, None)
            if name is None:
                return
            read = asyncio.to_thread(self._store.stored_object, name)
            self._reads.append(asyncio.create_task(read))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for read in self._reads:
            read.cancel()
        await asyncio.gather(*self._reads, return_exceptions=True)
