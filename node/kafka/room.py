"""Memory of the door for requests and answers, shared by all connections.

An owner, which is the host of a client, may have a bounded share. So a host whose requests never
arrive, or whose clients take no answers, does not stop the clients of other hosts: these pass the
requests that wait for their own host's share. The owners that wait have turns, and the requests of
an owner come in the order of asking. So thousands of requests of a few hosts do not keep a request
of another host waiting.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from ...client.protocol import limits

FREE: Final = 16 * limits.KIB
"""A request or an answer of this size waits for no memory: a connection buffers as many bytes
anyway."""

_Line = OrderedDict["asyncio.Future[None]", int]
"""The requests of an owner that wait, each with its bytes; the oldest first."""


class Hold:
    """Bytes that are taken until the first call of `free`."""

    def __init__(self, room: "Room", size: int, owner: str) -> None:
        self._room = room
        self._size = size
        self._owner = owner

    def free(self) -> None:
        """Give the bytes back; later calls do nothing."""
        size, self._size = self._size, 0
        if size:
            self._room.free(size, self._owner)


class Room:
    """A number of bytes. One request may always have its bytes, however many they are.

    `of_owner`: the most bytes of an owner; an owner without any may have its request's bytes.
    """

    def __init__(self, most: int, of_owner: int | None = None) -> None:
        self._most = most
        self._of_owner = most if of_owner is None else of_owner
        self._taken = 0
        self._owned: Counter[str] = Counter()
        self._waiting: OrderedDict[str, _Line] = OrderedDict()
        """The owners with requests that wait; the owner with the next turn first."""

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def held(self, size: int, owner: str = "") -> AsyncIterator[Callable[[int], None]]:
        """Wait for so many bytes, and have them in the context. The context yields what gives all
        but so many of the bytes back."""
        await self.take(size, owner)
        has = size

        def shrink(to: int) -> None:
            nonlocal has
            before, has = has, min(has, to)
            self.free(before - has, owner)

        try:
            yield shrink
        finally:
            self.free(has, owner)

    async def take(self, size: int, owner: str = "") -> None:
        """Wait for so many bytes, and take them."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, OrderedDict())[granted] = size
        self._grant()
        try:
            await granted  # `_grant` takes the bytes for this request
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.free(size, owner)
            else:
                self._leave(owner, granted)
                self._grant()  # those behind this request may have waited for it alone
            raise

    def free(self, size: int, owner: str = "") -> None:
        """Give bytes back, and give those who wait theirs."""
        self._taken -= size
        self._owned[owner] -= size
        if not self._owned[owner]:
            del self._owned[owner]
        self._grant()

    def _grant(self) -> None:
        """Give bytes to the owners in turn; pass those that have their share."""
        passed = 0
        while passed < len(self._waiting):
            owner, line = next(iter(self._waiting.items()))
            granted, size = next(iter(line.items()))
            owned = self._owned[owner]
            if granted.done():  # cancelled, and its task has not run since
                self._leave(owner, granted)
                continue
            if owned and owned + size > self._of_owner:
                passed += 1
            elif self._taken and self._taken + size > self._most:
                return
            else:
                passed = 0
                self._taken += size
                self._owned[owner] += size
                granted.set_result(None)
                self._leave(owner, granted)
            if owner in self._waiting:
                self._waiting.move_to_end(owner)

    def _leave(self, owner: str, granted: "asyncio.Future[None]") -> None:
        """Take a request out of the line of its owner, if the request is there."""
        line = self._waiting.get(owner)
        if line is not None and line.pop(granted, None) is not None and not line:
            del self._waiting[owner]
