"""When the node collects old garbage: seldom, and while no range changes.

CPython collects the oldest generation of containers whenever it has grown by a quarter, and
everything else stands still meanwhile (https://devguide.python.org/internals/garbage-collector/,
"Collecting the oldest generation"). The split of a range makes that many containers at once,
because all its followers begin anew. So collections came in the middle of splits, while appends and
followers wait.

Young containers are collected as usual, and hardly a cycle lives longer. Old containers are
collected only when their number has doubled, so that garbage never takes more memory than live
data. A count of half a million takes 35 ms or more, so they are counted only when they may have
doubled: each young collection tells by how many containers the process has grown at most. The
collection waits for a moment without operations on ranges, if
one comes in time. Dask's `ThrottledGC` and Instagram's frozen heap are other answers to the same
question.

The number of containers says nothing about memory outside of Python that they hold. A TLS
connection is few containers and hundreds of KiB of OpenSSL and buffers. So ended connections are
counted too. Their collections take a bounded share of the time: a client that opens connections
must not cause pauses.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_PERIOD_S: Final = 1.0
_COUNT_EVERY: Final = 80_000
"""The least growth, in containers, between two counts of old containers."""
_TOO_MUCH_MAX: Final = 2.0
"""The growth that is told counts for the true growth times this number, at most."""
_GROWTH_MIN: Final = 100_000
"""The least growth, in containers, that is worth a collection."""
_CALM_S: Final = 60.0
"""How long a collection waits for a calm moment while one operation follows the other."""

_ENDED_MAX: Final = 500
"""Connections that ended since the last collection and cause the next one: their memory matters."""
_ENDED_EVERY_S: Final = 5.0
"""The least time between two collections for ended connections."""
_ENDED_SHARE: Final = 0.01
"""The largest share of the time that collections for ended connections take."""

log = logging.getLogger("lognode.garbage")


def only_the_young() -> None:
    """Let CPython collect only young containers by itself from now on.

    Present containers, made by imports, are frozen: no collection visits them again.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 2**31 - 1)


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect nothing in the block, which imports modules.

    Imports make many containers, and hardly any of them is garbage. The collections took 30 ms of
    the 330 ms of processor time of a node's imports.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Growth:
    """By how many containers the process has grown at most, while this is a GC callback.

    CPython counts the containers that were made since the last young collection, less those that
    were freed. Frees beyond that are not counted, so the true growth may be smaller.
    """

    def __init__(self) -> None:
        self.most = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            return
        if phase == "start":
            self.most += gc.get_count()[0]
        else:
            self.most -= info["collected"]


class Garbage:
    """Collects old garbage. Runs on every node.

    `is_calm`: whether a pause does no more harm now than at any other time. `ended` returns how
    many TLS connections have ended since the node began.
    """

    def __init__(self, is_calm: Callable[[], bool], ended: Callable[[], int] = lambda: 0) -> None:
        self._is_calm = is_calm
        self._ended = ended
        self._ended_before = 0
        """Connections that had ended at the last collection."""
        self._rests_until = 0.0
        """When the next collection for ended connections may come."""
        self._left = 0
        """Old containers that the last collection left alive, or fewer."""
        self._growth = _Growth()
        """The growth since then."""
        self._due_since: float | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        with self.watching():
            while True:
                await asyncio.sleep(_PERIOD_S)
                if self.is_due(time.monotonic()):
                    await asyncio.sleep(0)  # a turn for each of three long steps
                    found, took_s = self._collect()
                    await asyncio.sleep(0)
                    self._note(found, took_s)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the growth of the process for as long as the block lasts."""
        gc.callbacks.append(self._growth)
        try:
            yield
        finally:
            gc.callbacks.remove(self._growth)

    def is_due(self, now: float) -> bool:
        """Whether to collect old containers now; `now` is from a clock that does not go back."""
        if self._due_since is None and (self._many_ended(now) or self._has_doubled()):
            self._due_since = now
        return self._due_since is not None and (self._is_calm() or now - self._due_since > _CALM_S)

    def _many_ended(self, now: float) -> bool:
        return now >= self._rests_until and self._ended() - self._ended_before >= _ENDED_MAX

    def _has_doubled(self) -> bool:
        wanted = self._left + _GROWTH_MIN
        if self._growth.most < wanted:
            return False
        began = time.perf_counter()
        counted = len(gc.get_objects(generation=2))
        log.info(
            "containers counted",
            extra={"fields": {"old": counted, "seconds": round(time.perf_counter() - began, 3)}},
        )
        self._left = min(self._left, counted)
        true, told = counted - self._left, self._growth.most
        lacking = self._left + _GROWTH_MIN - true
        # What was told was too much, and so will be what is told next.
        more = int(lacking * min(told / max(true, 1), _TOO_MUCH_MAX))
        self._growth.most = self._left + _GROWTH_MIN - max(more, _COUNT_EVERY)
        return lacking <= 0

    def collect(self) -> None:
        """Collect now. All else stands still."""
        self._note(*self._collect())

    def _collect(self) -> tuple[int, float]:
        began = time.perf_counter()
        found = gc.collect()
        return found, time.perf_counter() - began

    def _note(self, found: int, took_s: float) -> None:
        self._left = len(gc.get_objects(generation=2))
        self._growth.most = 0
        self._due_since = None
        self._ended_before = self._ended()
        self._rests_until = time.monotonic() + max(_ENDED_EVERY_S, took_s / _ENDED_SHARE)
        log.info(
            "garbage collected",
            extra={"fields": {"found": found, "left": self._left, "seconds": round(took_s, 3)}},
        )
