"""Calls in threads for which the loop waits no longer than a bounded time.

A request to a directory of a file server that is down never ends, and no thread can be ended. So
the loop stops waiting, and asks nothing more while a call hangs: no more calls hang than the
`Workers` have threads, and nothing gathers behind these.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .workers import Workers

T = TypeVar("T")


class _Call:
    """A call for a thread. `since`: when the loop began to wait."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.since = time.monotonic()
        self.has_begun = False
        self.is_over = False

    def __call__(self) -> Any:
        self.has_begun = True
        try:
            return self._call()
        finally:
            self.is_over = True


class BoundedWaits:
    """Calls in the threads of `workers`. All calls on the loop. `wait_s`: of each call."""

    def __init__(self, workers: Workers, wait_s: float) -> None:
        self._workers = workers
        self._wait_s = wait_s
        self._calls: dict[_Call, asyncio.Future[Any]] = {}

    @property
    def is_hung(self) -> bool:
        """Whether a call runs that took longer than it may."""
        now = time.monotonic()
        # A call that was given up before a thread took the call is never made.
        over = [
            call for call, future in self._calls.items()
            if call.is_over or (future.cancelled() and not call.has_begun)
        ]  # fmt: skip
        for call in over:
            del self._calls[call]
        return any(call.has_begun and now - call.since > self._wait_s for call in self._calls)

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a call. Raises TimeoutError when the call takes too long."""
        call = _Call(function)
        future = self._calls[call] = self._workers.run(call)
        try:
            async with asyncio.timeout(self._wait_s):
                found: T = await future
        finally:
            if future.done() and not future.cancelled():
                self._calls.pop(call, None)
        return found
