"""Updates of a key: read the last value, compute the next, append it, and lose no other update.

The callers of one client that update the same key stand in line. One of them works for all, as in
flat combining (Hendler, Incze, Shavit and Tzafrir 2010): it reads the key's last entry once,
applies the changes of all callers in their order, and appends the new values as one batch. Only
the first value has a condition: the seq of the entry that was read. The batch is applied whole or
not at all, so each value follows the value from which it was computed (S9, S10).

Several clients take turns at the leader, in the order of their requests (`turn` of a read). A turn
is a courtesy and saves refused appends. The condition alone keeps updates from being lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from .appends import check_value
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .pages import read_page
from .protocol import limits
from .protocol.errors import LognodeError, SequenceMismatch, Timeout
from .protocol.reads import LATEST
from .protocol.records import EXPECT_ABSENT, check_record
from .protocol.types import Ack, Entry, Updated
from .timer import Timer
from .window import copied

Change = Callable[[bytes | None], bytes | None]
"""Takes the key's last value and returns the next value; None stands for no value."""
_TOGETHER_MAX: Final = 1_000
"""The most updates of one batch. Their changes run in one turn of the event loop."""
_READS_MAX: Final = 128
"""The most reads of one log that wait for their turns. A connection has `requests_in_flight_max`
requests, and the appends that end the turns need room beside the reads."""
_TAKE, _END = "take", "end"
"""The turn of a read: wait for the turn of the key, or give the turn back."""


async def read_turn(
    cluster: Cluster, log: LogRoutes, key: bytes, deadline: float, turn: str
) -> Entry | None:
    """Return the key's last entry, in a turn to update the key."""
    body = {
        "key": key, "turn": turn, "consistency": "linearizable",
        "timeout_ms": max(1, milliseconds(deadline - cluster.now())),
    }  # fmt: skip
    answer, _ = await cluster.call(log, key, LATEST, body, deadline=deadline, is_shown=True)
    entries = read_page(answer).entries
    return entries[-1] if entries else None


class _Caller:
    """A caller in line. `future` gets the outcome; `value` is the value in the present batch."""

    __slots__ = ("change", "deadline", "future", "is_sent", "value")

    def __init__(self, change: Change, deadline: float, future: "asyncio.Future[Updated]") -> None:
        self.change = change
        self.deadline = deadline
        self.future = future
        self.value: bytes | None = None
        self.is_sent = False
        """Whether a batch with the value is under way."""


class _Line:
    """The callers of one key, in the order of their calls."""

    __slots__ = ("ahead", "callers", "key", "timer", "under_way")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.ahead: asyncio.Task[Entry | None] | None = None
        """The read of the next turn, which is asked for while a batch is under way."""
        self.callers: deque[_Caller] = deque()
        self.under_way: list[_Caller] = []
        """The callers whose changes are being applied now."""
        self.timer: Timer | None = None

    def present(self) -> Iterable[_Caller]:
        """Return all callers, oldest first."""
        return (*self.under_way, *self.callers)


class _Computed(NamedTuple):
    """The changes of some callers, applied one after another."""

    appends: list[_Caller]
    failed: list[tuple[_Caller, Exception]]
    """The callers whose change raised an error; they append nothing."""


Read = Callable[[bytes, float, str], Coroutine[Any, Any, Entry | None]]
"""Reads the last entry of a key by a deadline, with a turn."""
_Outcomes = Sequence[Ack | LognodeError]
Append = Callable[[bytes, list[bytes | None], int, float], Coroutine[Any, Any, _Outcomes]]
"""Appends values to a key on a condition, all or none, by a deadline. Returns their outcomes."""


class Updates:
    """The lines of one log. All calls run on the loop's thread."""

    def __init__(self, read: Read, append: Append) -> None:
        self._read = read
        self._append = append
        self._lines: dict[bytes, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reads = asyncio.Semaphore(_READS_MAX)

    async def update(self, key: bytes, change: Change, deadline: float) -> Updated:
        """Stand in line for the key; return when the update is applied. See `AsyncLog.update`."""
        loop = asyncio.get_running_loop()
        caller = _Caller(change, deadline, loop.create_future())
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
            task = loop.create_task(self._serve(line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        line.callers.append(caller)
        if line.ahead is None and line.under_way:
            # The place among the clients counts from the first caller that waits.
            line.ahead = loop.create_task(self._read_in_turn(key, deadline))
            line.ahead.add_done_callback(_retrieve)
        if line.timer is None or deadline < line.timer.when:
            self._look_at(line, deadline)
        try:
            return await caller.future
        finally:
            del caller  # the error of a future refers to this frame: break the cycle

    async def close(self, timeout_s: float) -> None:
        """Wait for the callers in line, at most `timeout_s`. Then their calls end with Timeout."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _serve(self, line: _Line) -> None:
        """Serve the callers of a line until none is left."""
        try:
            while line.callers:
                await self._turn(line)
        finally:
            del self._lines[line.key]
            if line.timer is not None:
                line.timer.cancel()
            if line.ahead is not None:
                line.ahead.cancel()
            for caller in line.present():  # the task was cancelled, or has a bug
                _fail(caller, _timed_out(caller, line.key, "the client was closed"))

    async def _turn(self, line: _Line) -> None:
        """Read the key, and apply and append the changes of the callers in line."""
        count = _drop_gone(line.callers)
        if not count:
            return
        deadline = max(caller.deadline for caller in line.callers)
        try:
            entry = await self._begun(line, deadline)
        except LognodeError as error:
            for _ in range(count):
                _fail(line.callers.popleft(), copied(error, "not_applied"))
            return
        computed = _compute(line, None if entry is None else entry.value)
        if computed.appends:
            await self._append_all(line, entry, computed)
        for caller, raised in computed.failed if line.under_way else ():
            _fail(caller, raised)
        line.under_way = []
        if not computed.appends:
            with suppress(LognodeError):  # the turn ends by itself after a moment
                await self._read(line.key, deadline, _END)

    async def _begun(self, line: _Line, deadline: float) -> Entry | None:
        """Return the last entry of the key once the turn has begun."""
        ahead, line.ahead = line.ahead, None
        if ahead is not None:
            with suppress(LognodeError):  # its deadline was the deadline of one caller
                return await ahead
        return await self._read_in_turn(line.key, deadline)

    async def _read_in_turn(self, key: bytes, deadline: float) -> Entry | None:
        async with self._reads:
            return await self._read(key, deadline, _TAKE)

    async def _append_all(self, line: _Line, entry: Entry | None, computed: _Computed) -> None:
        """Append the computed values. The callers return to the line if others were faster."""
        taken = computed.appends
        deadline = max(caller.deadline for caller in taken)
        expected = EXPECT_ABSENT if entry is None else entry.seq
        for caller in taken:
            caller.is_sent = True
        outcomes: _Outcomes
        try:
            values = [caller.value for caller in taken]
            outcomes = await self._append(line.key, values, expected, deadline)
        except LognodeError as error:
            outcomes = [error] * len(taken)
        first = outcomes[0]
        if isinstance(first, SequenceMismatch) and first.outcome == "not_applied":
            for caller in taken:
                caller.is_sent = False
            line.callers.extendleft(reversed(line.under_way))
            line.under_way = []
            return
        for caller, outcome in zip(taken, outcomes, strict=True):
            if isinstance(outcome, Ack):
                _succeed(caller, Updated(outcome.seq, outcome.timestamp_ms, caller.value))
            elif isinstance(outcome, SequenceMismatch):
                _fail(caller, _timed_out(caller, line.key, f"an attempt had no answer; {outcome}"))
            else:
                _fail(caller, copied(outcome, outcome.outcome))
        if not isinstance(first, Ack):
            # Errors of changes may follow from values that were never appended: try these again.
            line.callers.extendleft(caller for caller, _ in reversed(computed.failed))
            line.under_way = []

    # Deadlines.

    def _look_at(self, line: _Line, when: float) -> None:
        if line.timer is not None:
            line.timer.cancel()
        line.timer = Timer.at(asyncio.get_running_loop(), when, self._look, line)

    def _look(self, line: _Line) -> None:
        """End the waits of the callers whose time is over."""
        line.timer = None
        now = asyncio.get_running_loop().time()
        for caller in line.present():
            if caller.deadline <= now:
                _fail(caller, _timed_out(caller, line.key, "the deadline has passed"))
        later = [each.deadline for each in line.present() if not each.future.done()]
        if later:
            self._look_at(line, min(later))


def _compute(line: _Line, value: bytes | None) -> _Computed:
    """Move callers from the line to `under_way`, and apply their changes one after another."""
    computed = _Computed([], [])
    key, size = line.key, 0
    while line.callers and len(line.under_way) < _TOGETHER_MAX:
        caller = line.callers[0]
        if caller.future.done():
            line.callers.popleft()
            continue
        try:
            following = caller.change(value)
            check_value(following)
            check_record(key, following)
        except Exception as error:  # the caller's own, which gets it
            computed.failed.append((caller, error))
        else:
            size += len(key) + len(following or b"")
            if computed.appends and size > limits.batch_bytes_max:
                break
            caller.value = value = following
            computed.appends.append(caller)
        line.under_way.append(line.callers.popleft())
    return computed


def _drop_gone(callers: deque[_Caller]) -> int:
    """Remove the callers that have left; return the count of the others."""
    if any(caller.future.done() for caller in callers):
        left = [caller for caller in callers if not caller.future.done()]
        callers.clear()
        callers.extend(left)
    return len(callers)


def _retrieve(read: "asyncio.Task[Entry | None]") -> None:
    """Retrieve the error of a read for which nobody may wait any more, to avoid asyncio's
    warning."""
    if not read.cancelled():
        read.exception()


def _succeed(caller: _Caller, updated: Updated) -> None:
    if not caller.future.done():
        caller.future.set_result(updated)


def _fail(caller: _Caller, error: Exception) -> None:
    if not caller.future.done():
        caller.future.set_exception(error)


def _timed_out(caller: _Caller, key: bytes, why: str) -> Timeout:
    return Timeout(
        f"no majority acknowledged the update of key {key!r}: {why}",
        outcome="unknown" if caller.is_sent else "not_applied",
    )
