"""The two threads that wait for disks: one for WAL rounds, one for meta and finished files.

They sleep in pwritev, fdatasync and LMDB's commit, which release the GIL, so they never compete
with the event loop (decision 5). Everything that must be durable before a message leaves goes
through one of them. Each does its work in the order submitted. Between the two threads there is no
order, unless a caller waits for a future. A meta transaction or the end of a large file takes as
long as the device needs, and no WAL round waits behind it in a queue of this node.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ...client.protocol.invariants import DiskFailure
from .futures import settle

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]
"""Gets the result and the exception; one of them is None."""
_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, Done]


class SyncThread:
    """A single worker; `run` may be called from the event loop only.

    `on_failure` is called on the loop with every DiskFailure, even when the caller ignores the
    future: no disk is trusted after a failure (hole 12).
    """

    def __init__(
        self, name: str, *, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the blocking call on the thread; the future gets its result or its exception."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.submit(call, partial(settle, future))
        return future

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        """Run the call as `run` does; the loop calls `done` without another turn in between."""
        self._jobs.put((call, asyncio.get_running_loop(), done))

    def close(self) -> None:
        """Finish the submitted calls and end the thread. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, loop, done = job
            try:
                result = call()
            except BaseException as error:  # passed on to the loop, of any kind
                if self._on_failure is not None and isinstance(error, DiskFailure):
                    loop.call_soon_threadsafe(self._on_failure, error)
                loop.call_soon_threadsafe(done, None, error)
            else:
                loop.call_soon_threadsafe(done, result, None)
