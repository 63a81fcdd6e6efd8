"""Work of threads and of child processes, done in the loop at drawn times.

A call begins some time after its submission, runs to its end at one moment, and its result comes
some time later. A process that is killed before the call began has done nothing; one that is killed
before the result came does not know that the call is done. Real threads can do no more harm to each
other than their calls can in another order, since they share nothing else (decision 5).
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ...client.protocol import limits
from ...client.protocol.errors import Unavailable
from ...client.protocol.invariants import DiskFailure
from ...node.runtime.sync_thread import Done, SyncThread
from ...statemachine import merge_process
from ...statemachine.builder import Builder
from ...statemachine.merge_process import Merger, Task
from ...statemachine.segment_format import SegmentInfo
from ...statemachine.segment_writer import build
from ...statemachine.sources import Source

_FAST_S: Final = (20e-6, 400e-6)
_SLOW_S: Final = (0.5e-3, 20e-3)
_SLOW: Final = 0.05
"""The share of calls that wait for the scheduler or the disk."""


def after_s(rng: random.Random) -> float:
    """Draw a time between two events of a thread, in seconds."""
    low, high = _SLOW_S if rng.random() < _SLOW else _FAST_S
    return low + (high - low) * rng.random()


class SimThread(SyncThread):
    """A `SyncThread` without a thread: one call after another, in the order of submission."""

    def __init__(
        self, name: str, *, on_failure: Callable[[BaseException], None] | None = None,
        rng: random.Random,
    ) -> None:  # fmt: skip
        self._name = name
        self._rng = rng
        self._fails = on_failure
        self._waiting: list[tuple[Callable[[], Any], Done]] = []
        self._is_busy = False

    def submit(self, call: Callable[[], Any], done: Done) -> None:
        self._waiting.append((call, done))
        if not self._is_busy:
            self._begin()

    def close(self) -> None:
        while self._waiting:
            self._do(*self._waiting.pop(0))

    def _begin(self) -> None:
        self._is_busy = True
        asyncio.get_running_loop().call_later(after_s(self._rng), self._next)

    def _next(self) -> None:
        self._is_busy = False
        if self._waiting:
            self._do(*self._waiting.pop(0))
        if self._waiting:
            self._begin()

    def _do(self, call: Callable[[], Any], done: Done) -> None:
        loop, result, failed = asyncio.get_running_loop(), None, None
        try:
            result = call()
        except Exception as error:
            failed = error
            if self._fails is not None and isinstance(error, DiskFailure):
                loop.call_soon(self._fails, error)
        loop.call_later(after_s(self._rng), done, result, failed)


class SimBuilder(Builder):
    """Builds segments in this process, with the code of the builder process."""

    def build(
        self, path: Path, first_seq: int, sources: Sequence[Source], *, gives_way: bool = True,
        value_gain: int = limits.value_gain,
    ) -> SegmentInfo:  # fmt: skip
        self.is_ready = True
        try:
            return build(path, first_seq, sources, value_gain=value_gain)
        except Exception as error:  # the child tells its parent of any error
            path.unlink(missing_ok=True)
            raise Unavailable(f"the node could not build a segment: {error}") from None


class SimMerger(Merger):
    """Merges segments in this process, with the code of the merging process."""

    def merge(self, task: Task) -> SegmentInfo | None:
        return merge_process.run(Task.from_wire(task.to_wire()))
