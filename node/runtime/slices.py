"""Runs long work in slices: the event loop runs in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Generator, Hashable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
SLICE_S: Final = 0.0005


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return all items of the iterator. Its source may change between two items."""
    found: list[T] = []
    until = time.perf_counter() + SLICE_S
    for item in items:
        found.append(item)
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    return found


async def one_by_one(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items. The event loop runs in between whenever the caller has used up a slice."""
    until = time.perf_counter() + SLICE_S
    for item in items:
        yield item
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S


async def stepped(steps: Generator[None, None, T]) -> T:
    """Do the work that comes in steps and return its result.

    Work of less than one slice does not suspend.
    """
    until = time.perf_counter() + SLICE_S
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S


async def stepped_and_timed(steps: Generator[None, None, T]) -> tuple[T, float]:
    """Do the same as `stepped`; also return the seconds that the steps took without what ran in
    between."""
    took = 0.0
    while True:
        began = now = time.perf_counter()
        try:
            while now - began <= SLICE_S:
                next(steps)
                now = time.perf_counter()
        except StopIteration as done:
            return done.value, took + time.perf_counter() - began
        took += now - began
        await asyncio.sleep(0)


class InOrder:
    """Does the work of each key in the order of the calls, one piece after another.

    A piece that takes less than one slice, and waits for no earlier piece, does not suspend.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}
        """The end of the last piece of work, by key."""

    @property
    def idle(self) -> bool:
        """Whether all work is done."""
        return not self._last

    async def stepped(self, keys: Collection[Hashable], steps: Generator[None, None, T]) -> T:
        """Do the work that comes in steps and return its result. The work has its place in the
        order of each of its keys."""
        befores = {self._last[key] for key in keys if key in self._last}
        end = asyncio.get_running_loop().create_future()
        self._last.update(dict.fromkeys(keys, end))
        try:
            for before in befores:
                await asyncio.shield(before)
            return await stepped(steps)
        finally:
            for key in keys:
                if self._last.get(key) is end:
                    del self._last[key]
            _end_after(befores, end)


def _end_after(befores: Iterable["asyncio.Future[None]"], end: "asyncio.Future[None]") -> None:
    """Set the end of a piece of work. If the work was cancelled, the next piece waits for the
    pieces before."""
    left = [before for before in befores if not before.done()]
    if left:
        left[0].add_done_callback(lambda _: _end_after(left[1:], end))
    else:
        end.set_result(None)
