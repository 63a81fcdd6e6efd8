"""What the streams of a follow have read, until the caller takes it: a few pushes at most.

There is a queue for each follow, of which there may be thousands, and most are empty. So an empty
queue is one small object, where `asyncio.Queue` has seven, of 3 KiB.
"""

import asyncio
from typing import Final

from .follow_span import Push
from .protocol.errors import LognodeError

queued_pushes_max: Final = 4

Item = Push | LognodeError


class PushQueue:
    """Pushes in their order, and the error that ends the follow. Several tasks may wait."""

    __slots__ = ("_items", "_readers", "_writers")

    def __init__(self) -> None:
        self._items: list[Item] | None = None
        self._readers: list[asyncio.Future[None]] | None = None
        self._writers: list[asyncio.Future[None]] | None = None

    def qsize(self) -> int:
        """Return the number of items."""
        return 0 if self._items is None else len(self._items)

    def full(self) -> bool:
        """Return whether `put` would wait."""
        return self.qsize() >= queued_pushes_max

    def put_nowait(self, item: Item) -> None:
        """Append an item; the caller has checked that there is room."""
        if self._items is None:
            self._items = []
        self._items.append(item)
        self.wake_readers()

    async def put(self, item: Item) -> None:
        """Append an item when there is room."""
        while self.full():
            if self._writers is None:
                self._writers = []
            await _woken(self._writers)
        self.put_nowait(item)

    def get_nowait(self) -> Item:
        """Remove and return the first item; the caller has checked that there is one."""
        assert self._items is not None
        item = self._items.pop(0)
        if not self._items:
            self._items = None
        writers, self._writers = self._writers, None
        _wake(writers)
        return item

    def news(self) -> "asyncio.Future[None]":
        """Return what ends when an item comes, or with `wake_readers`. Look again then: another
        task may have taken the item."""
        if self._readers is None:
            self._readers = []
        return _woken(self._readers)

    def wake_readers(self) -> None:
        """Wake all tasks that wait for an item."""
        readers, self._readers = self._readers, None
        _wake(readers)


def _woken(waiters: list["asyncio.Future[None]"]) -> "asyncio.Future[None]":
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    return waiter


def _wake(waiters: list["asyncio.Future[None]"] | None) -> None:
    for waiter in waiters or ():
        if not waiter.done():  # else the task was cancelled
            waiter.set_result(None)
