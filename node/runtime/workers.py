"""Threads that wait for an object store, so that the event loop does not.

A request to a store may last as long as the patience of the store. So the node's end does not wait
for these threads: what they do is whole at any moment.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from .futures import settle

T = TypeVar("T")
_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Workers:
    """A few threads with one queue; `run` is called on the event loop."""

    def __init__(self, name: str, count: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = count
        for at in range(count):
            threading.Thread(target=self._work, name=f"{name}-{at}", daemon=True).start()

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the blocking call in a thread; the future gets its result or its exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((call, loop, future))
        return future

    def leave(self) -> None:
        """Let the threads end after their present calls. Does not wait."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, loop, future = job
            if future.cancelled():
                continue
            result, error = None, None
            try:
                result = call()
            except BaseException as found:  # passed on to the loop, of any kind
                error = found
            with suppress(RuntimeError):  # the loop is closed: the node has ended
                loop.call_soon_threadsafe(partial(settle, future, result, error))
