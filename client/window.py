"""The records of a producer that are not settled: their room, their outcome, the smallest number.

`low` is the smallest unsettled number. A range forgets the numbers below `low`. An anonymous
producer may give a number up at its deadline, since the number is never sent again. A named
producer may send its numbers again, so it never gives one up: `low` passes acknowledged numbers
only, and a failure ends the session (x10). A condition that did not hold is such a failure: below
`low`, the number would count as applied when it is sent again.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from .appends import AppendBatch
from .protocol import errors, limits
from .protocol.errors import Fenced, LognodeError, Outcome, Timeout


@dataclass
class Delivery:
    """The outcome of a session, in records."""

    acknowledged: int = 0
    duplicates: int = 0
    """Acknowledged records that an earlier attempt or session had appended."""
    not_applied: int = 0
    unknown: int = 0

    @property
    def undelivered(self) -> int:
        """Return the number of records without an acknowledgement."""
        return self.not_applied + self.unknown

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of all records; `unknown` where their outcomes differ."""
        if self.unknown or (self.acknowledged and self.not_applied):
            return "unknown"
        return "not_applied" if self.not_applied else "applied"


class Window:
    """The unsettled batches of one producer id in one log. All calls run on the loop's thread."""

    def __init__(
        self, *, named: bool, unacked_bytes_max: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.delivery = Delivery()
        self.fatal: LognodeError | None = None
        """The error that ended the session; no more records are taken."""
        self.last_error: LognodeError | None = None
        self.clean = True
        """Whether every request was answered, so that none can still arrive."""
        self.named = named
        self._unacked_bytes_max = unacked_bytes_max
        self._loop = loop
        self._unacked_bytes = 0
        self._unsettled: set[AppendBatch] = set()
        self._given_up: dict[int, int] = {}
        """Numbers given up, at or above `low`, each with its prev, which replaces the number as
        a prev."""
        self.next_number = 1
        """The number after all numbers that were given out."""
        self._reserved = 0
        """Records whose batches are open, and give them numbers when they close."""
        self._low: int | None = None
        """Cached until the next batch is settled."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    # Taking records.

    @property
    def low(self) -> int:
        """The smallest unsettled number, or the next number when all are settled."""
        if self._low is None:
            firsts = (batch.numbers[0] for batch in self._unsettled if batch.numbers)
            self._low = min(firsts, default=self.next_number)
        return self._low

    @property
    def unacked_bytes(self) -> int:
        """The bytes of the records that are not settled."""
        return self._unacked_bytes

    def has_room(self, number: int | None = None, count: int = 1) -> bool:
        """Return whether the windows of bytes and of numbers have room for `count` records."""
        end = (number or self.next_number + self._reserved) + count
        return not self._unsettled or (
            self._unacked_bytes < self._unacked_bytes_max
            and end - self.low <= limits.producer_window_max
        )

    async def room(self, deadline: float | None, number: int | None = None, count: int = 1) -> None:
        """Wait for room. Raises Timeout (`not_applied`), or the error that ended the session."""
        try:
            async with asyncio.timeout_at(deadline):
                while self.fatal is None and not self.has_room(number, count):
                    waiter: asyncio.Future[None] = self._loop.create_future()
                    self._waiting.append(waiter)
                    await waiter
        except TimeoutError:
            raise Timeout(
                "the producer has no space for more unacknowledged records", outcome="not_applied"
            ) from None
        if self.fatal is not None:
            raise copied(self.fatal, "not_applied")

    def reserve(self, count: int) -> None:
        """Count records that get their numbers when their batches close."""
        self._reserved += count

    def take(self, count: int) -> range:
        """Give consecutive numbers to `count` records that were counted by `reserve`."""
        first = self.next_number
        self.next_number = first + count
        self._reserved -= count
        return range(first, self.next_number)

    def take_own(self, number: int) -> None:
        """Take a number that the caller chose, above all before."""
        self.next_number = number + 1

    def begin(self, batch: AppendBatch) -> None:
        """Count a batch with its first record as unsettled."""
        if not self._unsettled:
            self._low = batch.numbers[0] if batch.numbers else self.next_number
        self._unsettled.add(batch)

    def hold(self, size: int) -> None:
        """Count `size` more bytes of records as unacknowledged."""
        self._unacked_bytes += size

    # Predecessors.

    def holder(self, number: Any, besides: AppendBatch) -> AppendBatch | None:
        """Return the unsettled batch that has the number, if a batch other than `besides` has."""
        if type(number) is int:
            for batch in self._unsettled:
                if batch is not besides and batch.holds(number):
                    return batch
        return None

    def not_given_up(self, prevs: list[int]) -> list[int]:
        """Return the prevs, each number that was given up replaced by the number before it."""
        return list(map(self._not_given_up, prevs)) if self._given_up else prevs

    def unsettled_prevs(self, prevs: list[int]) -> list[int]:
        """Return the prevs, 0 for each whose number is settled."""
        unsettled = {number for batch in self._unsettled for number in batch.numbers}
        prevs = self.not_given_up(prevs)
        return [prev if prev in unsettled else 0 for prev in prevs]

    def _not_given_up(self, prev: int) -> int:
        while prev in self._given_up:
            prev = self._given_up[prev]
        return prev

    # Settling.

    def settle(self, batch: AppendBatch, reply: dict[Any, Any]) -> None:
        """Take the checked answer for a batch."""
        batch.settled(reply)
        self.delivery.acknowledged += len(batch) - len(batch.refused)
        self.delivery.duplicates += len(batch.duplicates)
        self._count_failed(len(batch.refused), batch.attempts.outcome)
        if batch.refused:
            self.last_error = batch.refusal(min(batch.refused))
            if self.named:
                self.end(self.last_error)
        self.finish(batch)

    def fail(self, batch: AppendBatch, error: LognodeError) -> None:
        """Give a batch up, unless it is settled or its parts report; may end the session."""
        if batch.done.done() or batch.parts is not None:
            return
        batch.error = self.last_error = batch.attempts.settle(error)
        self._count_failed(len(batch), batch.error.outcome)
        # A fenced consumer has a key; the producer goes on.
        is_fenced = isinstance(error, Fenced) and "key" not in error.fields
        if self.named or is_fenced:
            self.end(batch.error)
        else:
            prevs = batch.prevs or repeat(0)  # without an end, so that zip is not strict
            self._given_up.update(zip(batch.numbers, prevs, strict=False))
        self.finish(batch)

    def finish(self, batch: AppendBatch) -> None:
        """Free the room of a batch whose outcome is known, and wake its callers."""
        if batch.done.done():
            return
        batch.data = None
        self.clean = self.clean and batch.attempts.outcome != "unknown"
        batch.done.set_result(None)
        batch.wake()
        self._unacked_bytes -= batch.bytes
        if not self.named or (batch.error is None and not batch.refused):
            self._unsettled.discard(batch)
            self._low = None
        if self._given_up:
            low = self.low
            self._given_up = {n: prev for n, prev in self._given_up.items() if n >= low}
        self._wake()

    def end(self, error: LognodeError) -> None:
        """End the session: a number that was left out must not be passed by `low`."""
        if self.fatal is None:
            self.fatal = error
            self._wake()

    def pending(self) -> list["asyncio.Future[None]"]:
        """Return the futures of the batches without an outcome."""
        return [batch.done for batch in self._unsettled if not batch.done.done()]

    def unsettled(self) -> list[AppendBatch]:
        """Return the unsettled batches, those of a named producer that failed among them."""
        return list(self._unsettled)

    def _count_failed(self, records: int, outcome: errors.Outcome) -> None:
        if outcome == "not_applied":
            self.delivery.not_applied += records
        else:
            self.delivery.unknown += records

    def _wake(self) -> None:
        while self._waiting and (self.fatal is not None or self.has_room()):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)


def copied(error: LognodeError, outcome: errors.Outcome) -> LognodeError:
    """Return a copy of the error with another outcome."""
    return type(error)(error.message, outcome=outcome, **error.fields)
