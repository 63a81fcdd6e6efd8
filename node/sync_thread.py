"""The one thread that waits for disks: WAL rounds and meta commits, in the order submitted.

It sleeps in pwritev and fdatasync, which release the GIL, so it never competes with the event
loop (decision 5 of the design). Everything that must be durable before a message leaves goes
through here.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..client.invariants import DiskFailure

T = TypeVar("T")
_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class SyncThread:
    """A single worker; `run` may be called from the event loop only.

    `on_failure` is called on the loop with every DiskFailure, whoever asked for the work and
    whatever becomes of the future: no disk is trusted again after it (raft.md 2.12).
    """

    def __init__(self, *, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="lognode-sync", daemon=True)
        self._thread.start()

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the blocking call on the thread; the future has its result or its exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((call, loop, future))
        return future

    def close(self) -> None:
        """Finish what was submitted and end the thread. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, loop, future = job
            try:
                result = call()
            except BaseException as error:  # handed to the loop whole, whatever it is
                if self._on_failure is not None and isinstance(error, DiskFailure):
                    loop.call_soon_threadsafe(self._on_failure, error)
                loop.call_soon_threadsafe(_fail, future, error)
            else:
                loop.call_soon_threadsafe(_succeed, future, result)


def _succeed(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
