"""The thread behind the blocking SDK: one event loop, on which every call runs its async twin.

A call blocks only its caller. Ctrl-C during a call cancels the call on the loop and is raised in
the caller; the client stays usable. Iterators pull from their async twin in growing portions, so a
portion, not an item, costs a hop between threads, and the first item comes at once.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from .protocol.errors import LocalProtocolError, Unavailable

T = TypeVar("T")
portion_items_max: Final = 512
stop_timeout_s: Final = 2.0


class LoopThread:
    """An event loop on a daemon thread, started by the first call. Any thread of the creating
    process may use it: a forked child has the memory of the thread but not the thread."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._calls: set[concurrent.futures.Future[Any]] = set()
        """Calls under way."""

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop; return its result or raise its error.

        Raises Unavailable of unknown outcome when the loop ends first, LocalProtocolError in a
        forked child.
        """
        try:
            future = self._submit(coroutine)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _ended() from None
        except BaseException:
            future.cancel()  # Ctrl-C in the caller; no effect on a finished call
            raise
        finally:
            self._calls.discard(future)

    def run(self, function: Callable[[], T]) -> T:
        """Call the function on the loop's thread, where the objects of the async SDK live."""

        async def body() -> T:
            return function()

        return self.call(body())

    def iterate(
        self, make: Callable[[], AsyncIterator[T]], *, portion_max: int = portion_items_max
    ) -> Iterator[T]:
        """Yield the items of the async iterator that `make` creates on the loop's thread.

        Up to `portion_max` items are taken at a time.
        """
        source = self.run(make)
        portion = 1
        try:
            while items := self.call(_pull(source, portion)):
                yield from items
                portion = min(2 * portion, portion_max)
        finally:
            if not self._closed and self._is_own and hasattr(source, "aclose"):
                self.call(source.aclose())

    def following(self, source: AsyncIterator[T]) -> T:
        """Return the next item. Raises StopIteration at the end."""
        items = self.call(_pull(source, 1))
        if not items:
            raise StopIteration
        return items[0]

    def close(self, last: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Run `last` for at most `timeout_s` seconds, then end the loop; always returns. Calls
        still under way end with Unavailable."""
        if not self._is_own:  # nor is the lock, which a thread of the parent may have held
            last.close()
            return
        with self._lock:
            loop, thread, closed = self._loop, self._thread, self._closed
            self._closed = True
            if loop is None or thread is None or closed:
                last.close()
                return
            future = asyncio.run_coroutine_threadsafe(last, loop)
        try:
            with contextlib.suppress(TimeoutError):
                future.result(timeout_s)
        finally:
            future.cancel()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(stop_timeout_s)
            for call in list(self._calls):
                with contextlib.suppress(concurrent.futures.InvalidStateError):
                    call.set_exception(_ended())

    @property
    def _is_own(self) -> bool:
        return os.getpid() == self._process

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        if not self._is_own:  # before the lock, which a thread of the parent may have held
            raise LocalProtocolError(
                f"process {self._process} made this client, and this is a forked child, "
                f"process {os.getpid()}; make a new client in the child"
            )
        with self._lock:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
            self._calls.add(future)
        return future

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Unavailable("this client is closed", reason="closed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="lognode-client", daemon=True
            )
            self._thread.start()
        if threading.current_thread() is self._thread:
            raise LocalProtocolError(
                "a blocking call on the client's own event loop never ends; use AsyncClient"
            )
        return self._loop


def _ended() -> Unavailable:
    return Unavailable(
        "the program closed this client during the call", reason="closed", outcome="unknown"
    )


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=stop_timeout_s / 2))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _pull(source: AsyncIterator[T], count: int) -> list[T]:
    items: list[T] = []
    async for item in source:
        items.append(item)
        if len(items) == count:
            break
    return items
