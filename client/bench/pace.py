"""When calls are made: at their due times, or as soon as there is room in a window."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

from .report import Recorder

in_flight_max: Final = 10_000
"""Calls in flight at a rate; later calls wait, and their latency counts."""
_HANDED_OVER_MAX: Final = 256

Call = Callable[[int, float], Awaitable[int]]
"""Makes call number n, due at that time; returns the number of records written or read."""


async def at_rate(rate: float, seconds: float, call: Call, recorder: Recorder) -> None:
    """Make `rate` calls a second for `seconds`, and wait for all. Raises the error of a call."""
    room = asyncio.Semaphore(in_flight_max)
    dues: asyncio.Queue[float | None] = asyncio.Queue()
    clock = _Clock(rate, seconds, asyncio.get_running_loop(), dues)

    async def one(number: int, due: float) -> None:
        sent = time.perf_counter()
        try:
            records = await call(number, due)
        finally:
            room.release()
        ended = time.perf_counter()
        recorder.add(records, ended, service_s=ended - sent, latency_s=ended - due)

    recorder.begin()
    clock.start()
    try:
        async with asyncio.TaskGroup() as group:
            number = 0
            while (due := await dues.get()) is not None:
                await room.acquire()
                group.create_task(one(number, due))
                number += 1
    except BaseExceptionGroup as found:
        raise _first(found) from None
    finally:
        clock.stop()
    recorder.end()


async def in_window(
    window: int,
    seconds: float,
    call: Call,
    recorder: Recorder,
    *,
    calls_max: int | None = None,
) -> None:
    """Keep `window` calls in flight for `seconds`, or until `calls_max` were made."""
    recorder.begin()
    deadline = time.perf_counter() + seconds
    made = 0

    async def worker() -> None:
        nonlocal made
        sent = time.perf_counter()
        while sent < deadline and (calls_max is None or made < calls_max):
            number, made = made, made + 1
            records = await call(number, sent)
            ended = time.perf_counter()
            recorder.add(records, ended, service_s=ended - sent)
            sent = ended

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(window):
                group.create_task(worker())
    except BaseExceptionGroup as found:
        raise _first(found) from None
    recorder.end()


async def paced(
    rate: float,
    window: int,
    seconds: float,
    call: Call,
    recorder: Recorder,
    *,
    calls_max: int | None = None,
) -> None:
    """Run `at_rate` with a rate, else `in_window`."""
    if rate > 0:
        await at_rate(rate, seconds, call, recorder)
    else:
        await in_window(window, seconds, call, recorder, calls_max=calls_max)


class _Clock:
    """Hands over the due times of calls, at these times.

    It is a thread that sleeps: the timers of an event loop are rounded up to a millisecond, several
    times the duration of an append.
    """

    def __init__(
        self,
        rate: float,
        seconds: float,
        loop: asyncio.AbstractEventLoop,
        dues: "asyncio.Queue[float | None]",
    ) -> None:
        self._rate = rate
        self._count = max(1, round(rate * seconds))
        self._loop = loop
        self._dues = dues
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench clock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        begun, number = time.perf_counter(), 0
        while number < self._count and not self._over.is_set():
            wait = begun + number / self._rate - time.perf_counter()
            if wait > 0:
                time.sleep(min(wait, 0.1))
                continue
            # All calls that are due by now, at once.
            to = min(self._count, number + _HANDED_OVER_MAX, number + 1 + int(-wait * self._rate))
            self._hand_over([begun + n / self._rate for n in range(number, to)])
            number = to
        self._hand_over([None])

    def _hand_over(self, dues: list[float] | list[None]) -> None:
        def put() -> None:
            for due in dues:
                self._dues.put_nowait(due)

        self._loop.call_soon_threadsafe(put)


def _first(found: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single exception of a group."""
    first: BaseException = found
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
