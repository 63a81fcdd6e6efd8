"""Delivery of numbered records: batches per range, pipelined, retried, and settled in key order.

The rules are those of docs/design/ranges.md#producers.
Every record has a unique number over all ranges. `low` is the smallest unsettled number. A record's
`prev` is the last number of the same key before its batch; within a batch, position gives the
order. A range that has not applied a `prev` refuses the batch, so several batches may be in flight
and still apply in order per key.

An anonymous producer may give a number up at its deadline, since the number is never sent again. A
named producer may send its numbers again, so it never gives one up: `low` passes acknowledged
numbers only, and a failure ends the session (x10).
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any

from .appends import AppendBatch, Columns, check_reply
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .identity import Identity
from .lanes import Lane
from .last_numbers import LastNumbers
from .protocol import errors, limits
from .protocol.appends import APPEND, PRODUCER_CLOSE, PRODUCER_NUMBER
from .protocol.errors import (
    BatchSpansRanges,
    Fenced,
    LognodeError,
    OutOfOrder,
    RemoteProtocolError,
    Timeout,
    Unavailable,
)
from .protocol.records import EXPECT_ANY
from .protocol.types import Headers
from .retry import Attempts
from .routing import Range

_Failure = tuple[LognodeError, Range, int]
"""The error of an attempt, the range, and the node that was asked."""

UNROUTED = 0
"""The lane of records whose range is unknown at the moment; range 0 is the controller's."""


@dataclass(slots=True)
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


class Sender:
    """The records of one producer id in one log. All calls run on the loop's thread."""

    def __init__(
        self,
        cluster: Cluster,
        log: LogRoutes,
        *,
        name: str | None = None,
        linger_s: float = 0.0,
        unacked_bytes_max: int = limits.producer_unacked_bytes_default,
    ) -> None:
        self.delivery = Delivery()
        self.fatal: LognodeError | None = None
        """The error that ended the session; no more records are taken."""
        self.last_error: LognodeError | None = None
        self.name = name
        self.identity = Identity(cluster, log, name)
        self._cluster = cluster
        self._log = log
        self._linger_s = linger_s
        self._unacked_bytes_max = unacked_bytes_max
        self._unacked_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[int, Lane] = {}
        self._unsettled: set[AppendBatch] = set()
        self._last = LastNumbers()
        self._clean = True
        """Whether every request was answered, so that none can still arrive."""
        self._given_up: dict[int, int] = {}
        """Numbers given up, at or above `low`, each with its prev, which replaces the number as
        a prev."""
        self._next_number = 1
        self._low: int | None = None
        """Cached until the next batch is settled."""
        self._seen = log.table.ranges
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping = False
        """Whether a look at all lanes is scheduled."""

    # Taking records.

    @property
    def low(self) -> int:
        """The smallest unsettled number, or the next number when all are settled."""
        if self._low is None:
            firsts = (batch.numbers[0] for batch in self._unsettled)
            self._low = min(firsts, default=self._next_number)
        return self._low

    async def routed(self, deadline: float) -> None:
        """Wait until the log's ranges are known. Raises LogNotFound, Unavailable, Timeout."""
        await self._cluster.routed(self._log, deadline)

    def has_room(self, number: int | None = None, count: int = 1) -> bool:
        """Return whether the windows of bytes and of numbers have room for `count` records."""
        end = (number or self._next_number) + count
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
            raise _copy(self.fatal, "not_applied")

    def add(
        self,
        key: bytes,
        value: bytes | None,
        headers: Headers | None,
        size: int,
        deadline: float,
        number: int | None = None,
        *,
        expect: int = EXPECT_ANY,
        snapshot: bool = False,
    ) -> tuple[AppendBatch, int]:
        """Put one checked record into the open batch of its range."""
        lane = self._lane_of(key)
        batch = lane.open
        if (
            batch is None
            or batch.bytes + size > limits.batch_bytes_max
            or len(batch.keys) >= limits.batch_records_max
        ):
            batch = self._open_batch(lane, deadline)
        if number is None:
            number = self._next_number
        self._next_number = number + 1
        position = batch.add(number, key, value, headers, expect, snapshot=snapshot)
        batch.bytes += size
        if batch.attempts.deadline < deadline:
            batch.attempts.deadline = deadline
        if position == 0:
            self._begin(batch)
        self._unacked_bytes += size
        return batch, position

    def add_atomic(self, columns: Columns, deadline: float) -> AppendBatch:
        """Add records of one range that are applied all or not at all; they travel as their own
        batch."""
        batch = self._ready_batch(columns, range(len(columns)), deadline)
        batch.atomic = True
        self._next_number += len(columns)
        return batch

    def add_columns(
        self, columns: Columns, deadline: float
    ) -> list[tuple[AppendBatch, int, Sequence[int]]]:
        """Add many records; return each batch, the position where its records begin, and their
        indexes in `columns`.

        The records join the open batch of their range, so that calls with few records per range
        share batches while requests are in flight.
        """
        batches: list[tuple[AppendBatch, int, Sequence[int]]] = []
        for group in columns.by_start(self._log.table.starts):
            for positions in columns.cut(group):
                batches.append((*self._join(columns, positions, deadline), positions))
        self._next_number += len(columns)
        return batches

    def _join(
        self, columns: Columns, positions: Sequence[int], deadline: float
    ) -> tuple[AppendBatch, int]:
        """Put records of one range into its open batch or a new batch; return the batch and
        their first position."""
        lane = self._lane_of(columns.keys[positions[0]])
        size = columns.size(positions)
        batch = lane.open
        if (
            batch is None
            or batch.bytes + size > limits.batch_bytes_max
            or len(batch) + len(positions) > limits.batch_records_max
        ):
            batch = self._open_batch(lane, deadline)
        at = len(batch)
        columns.fill(batch, positions, self._next_number)
        batch.attempts.deadline = max(batch.attempts.deadline, deadline)
        if at == 0:
            self._begin(batch)
        self._unacked_bytes += size
        return batch, at

    def _ready_batch(self, columns: Columns, positions: Any, deadline: float) -> AppendBatch:
        batch = self._new_batch(deadline)
        columns.fill(batch, positions, self._next_number)
        self._begin(batch)
        self._unacked_bytes += batch.bytes
        lane = self._lane_of(batch.keys[0])
        if lane.open is not None:
            self._close_open(lane)  # keep the order: older records go first
        self._close(batch)
        lane.ready.append(batch)
        self._loop.call_soon(self._pump, lane)
        return batch

    def _begin(self, batch: AppendBatch) -> None:
        if not self._unsettled:
            self._low = batch.numbers[0]
        self._unsettled.add(batch)

    def _new_batch(self, deadline: float) -> AppendBatch:
        attempts = Attempts(f"append to log {self._log.name!r}", deadline, writes=True)
        return AppendBatch(attempts, self._loop.create_future())

    def _open_batch(self, lane: Lane, deadline: float) -> AppendBatch:
        if lane.open is not None:
            self._close_open(lane)
            self._loop.call_soon(self._pump, lane)
        lane.open = self._new_batch(deadline)
        if self._linger_s > 0:
            lane.timer = self._loop.call_later(self._linger_s, self._linger_over, lane)
        else:
            lane.timer = self._loop.call_soon(self._linger_over, lane)
        return lane.open

    def _linger_over(self, lane: Lane) -> None:
        lane.due = True
        self._pump(lane)

    def _close_open(self, lane: Lane) -> None:
        batch, lane.open, lane.due = lane.open, None, False
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if batch is not None:
            self._close(batch)
            lane.ready.append(batch)

    def _close(self, batch: AppendBatch) -> None:
        """Close the batch and fix its `prevs`. The batches of a key close in the order of numbers.

        No record follows a record with a condition, since a refused record is never applied.
        """
        batch.close()
        last = self._last
        prevs = last.before(batch.keys)
        if self._given_up:
            prevs = list(map(self._not_given_up, prevs))
        batch.prevs = prevs if any(prevs) else None
        followed: Iterable[tuple[bytes, int]] = zip(batch.keys, batch.numbers, strict=True)
        if batch.expects is not None:
            followed = compress(followed, map(EXPECT_ANY.__eq__, batch.expects))
        last.note(followed, batch.numbers[-1])
        last.settle(self.low)

    def _lane_of(self, key: bytes) -> Lane:
        table = self._log.table
        if table.ranges is not self._seen:
            # A key may have moved to another lane: close the open batches of the old lanes first.
            self._seen = table.ranges
            for lane in self._lanes.values():
                self._close_open(lane)
                self._loop.call_soon(self._pump, lane)
        known = table.find(key)
        range_id = UNROUTED if known is None else known.range_id
        found = self._lanes.get(range_id)
        if found is None:
            found = self._lanes[range_id] = Lane()
        return found

    # Sending.

    def _pump(self, lane: Lane) -> None:
        while lane.in_flight < limits.producer_requests_in_flight_max:
            if not lane.ready and lane.open is not None and lane.due:
                self._close_open(lane)
            batches = lane.take()
            if not batches:
                return
            lane.in_flight += 1
            task = self._loop.create_task(self._deliver(lane, batches))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pump_all(self) -> None:
        self._pumping = False
        for lane in list(self._lanes.values()):
            self._pump(lane)

    async def _deliver(self, lane: Lane, batches: list[AppendBatch]) -> None:
        """Send batches in one request. Each batch that its answer does not settle continues
        alone, so a refusal affects no other batch."""
        try:
            if len(batches) == 1:
                await self._deliver_alone(batches[0], None)
                return
            failures = await self._deliver_together(batches)
            if failures:
                await asyncio.gather(*(self._deliver_alone(*failed) for failed in failures))
        except asyncio.CancelledError:
            for batch in batches:
                self._fail(batch, Unavailable("the program closed the producer", reason="closed"))
        except Exception as error:
            for batch in batches:
                self._fail(batch, LognodeError(f"internal error: {error!r}", outcome="unknown"))
            raise
        finally:
            lane.in_flight -= 1
            self._pump(lane)

    async def _deliver_together(
        self, batches: list[AppendBatch]
    ) -> list[tuple[AppendBatch, _Failure | None]]:
        """Try the batches in one request and return the unsettled ones, each with its failure.
        The failure is None when no attempt was made: the batches lie in several ranges, or the
        range is unknown."""
        deadline = min(batch.attempts.deadline for batch in batches)
        try:
            producer, epoch = await self.identity.opened(deadline)
            known = await self._cluster.locate(self._log, batches[0].first_key, deadline)
        except LognodeError:
            return [
                (batch, None) for batch in batches
            ]  # each batch finds its error by itself, by its own deadline
        if self.fatal is not None or not all(
            known.contains(batch.first_key) and known.contains(batch.last_key) for batch in batches
        ):
            return [(batch, None) for batch in batches]
        tried = self._cluster.target(known)
        for batch in batches:
            if batch.data is None:
                batch.data = batch.pack(producer, epoch, self.low)
        failures: list[tuple[AppendBatch, _Failure | None]] = []
        for batch, reply in zip(batches, await self._attempt(batches, known, tried), strict=True):
            if isinstance(reply, LognodeError):
                if reply.outcome == "unknown":  # set before a failure ends the session
                    batch.attempts.outcome = "unknown"
                failures.append((batch, (reply, known, tried)))
            else:
                self._settle(batch, reply)
        return failures

    async def _deliver_alone(self, batch: AppendBatch, failure: _Failure | None) -> None:
        try:
            await self._deliver_or_regroup(batch, failure)
        except LognodeError as error:
            self._fail(batch, error)
        except asyncio.CancelledError:
            self._fail(batch, Unavailable("the program closed the producer", reason="closed"))
        except Exception as error:
            self._fail(batch, LognodeError(f"internal error: {error!r}", outcome="unknown"))
            raise

    async def _deliver_or_regroup(self, batch: AppendBatch, failure: _Failure | None) -> None:
        """Make attempts until the batch is settled; `failure` is the failure of the first
        attempt."""
        attempts = batch.attempts
        producer, epoch = await self.identity.opened(attempts.deadline)
        while not batch.done.done():
            if self.fatal is not None:
                raise _copy(self.fatal, attempts.outcome)
            known, tried, news = None, 0, False
            try:
                if failure is not None:
                    (error, known, tried), failure = failure, None
                    raise error
                known = await self._cluster.locate(self._log, batch.first_key, attempts.deadline)
                if not known.contains(batch.last_key):
                    await self._regroup(batch)
                    return
                tried = self._cluster.target(known)
                if batch.data is None:
                    batch.data = batch.pack(producer, epoch, self.low)
                (reply,) = await self._attempt([batch], known, tried)
                if isinstance(reply, LognodeError):
                    raise reply
                self._settle(batch, reply)
                return
            except OutOfOrder as error:
                if self._wait_for_predecessor(batch, error):
                    return
                step = attempts.failed(error, self._loop.time())
            except LognodeError as error:
                if known is not None:
                    news = self._cluster.heed(self._log, known, tried, error)
                step = attempts.failed(error, self._loop.time(), news=news)
            if known is not None:
                await self._cluster.prepare(self._log, known, tried, step, attempts.deadline)
            elif step.delay_s:
                await asyncio.sleep(step.delay_s)

    async def _attempt(
        self, batches: list[AppendBatch], known: Range, node: int
    ) -> list[dict[Any, Any] | LognodeError]:
        """Send packed batches in one request; return the reply or the error of each batch."""
        now = self._loop.time()
        # The longest timeout: a batch that is nearly out of time does not shorten it for the
        # others.
        until = max(batch.attempts.attempt_deadline(now) for batch in batches)
        body = {
            "batches": [batch.data for batch in batches],
            "timeout_ms": max(1, milliseconds(until - now)),
            **self.identity.grant,
        }
        try:
            answer = await self._cluster.ask(known, APPEND, body, until, node=node)
        except asyncio.CancelledError:
            for batch in batches:
                batch.attempts.outcome = "unknown"
            raise
        except LognodeError as error:
            return [_own(error) for _ in batches] if len(batches) > 1 else [error]
        results = answer.get("results")
        if type(results) is not list or len(results) != len(batches):
            results = [None] * len(batches)
        return list(map(_result, batches, results))

    def _wait_for_predecessor(self, batch: AppendBatch, error: OutOfOrder) -> bool:
        """Handle a predecessor that the range lacks; return True to wait for a predecessor that is
        in flight.

        Otherwise the predecessor was acknowledged or given up: the batch is packed again without
        it.
        """
        number = error.fields.get("number")
        for other in self._unsettled:
            if other is not batch and type(number) is int and other.holds(number):
                batch.after = other
                insort(self._lane_of(batch.first_key).ready, batch, key=_first_number)
                return True
        if batch.prevs is not None:
            unsettled = {n for other in self._unsettled for n in other.numbers}
            batch.prevs = [self._live(prev, unsettled) for prev in batch.prevs]
        batch.data = None
        return False

    def _live(self, prev: int, unsettled: set[int]) -> int:
        prev = self._not_given_up(prev)
        return prev if prev in unsettled else 0

    def _not_given_up(self, prev: int) -> int:
        while prev in self._given_up:
            prev = self._given_up[prev]
        return prev

    async def _regroup(self, batch: AppendBatch) -> None:
        """Send each record of a batch whose range was split to the new range of its key, with
        the same number."""
        if batch.atomic:
            await self._settle_atomic(batch)
            return
        table = self._log.table
        if not table.covers(batch.first_key, batch.last_key + b"\x00"):
            await self._cluster.refresh(
                self._log.name, batch.attempts.deadline, key=batch.first_key
            )
        groups: dict[int, list[int]] = {}
        for position, key in enumerate(batch.keys):
            known = self._log.table.find(key)
            groups.setdefault(UNROUTED if known is None else known.range_id, []).append(position)
        parts: list[tuple[AppendBatch, list[int]]] = []
        for positions in groups.values():
            attempts = Attempts(batch.attempts.what, batch.attempts.deadline, writes=True)
            attempts.outcome = batch.attempts.outcome
            parts.append((batch.part(positions, attempts), positions))
        batch.parts = parts
        for part, _ in parts:
            self._begin(part)
            part.done.add_done_callback(lambda _done: self._part_done(batch))
            lane = self._lane_of(part.first_key)
            insort(lane.ready, part, key=_first_number)
            self._pump(lane)

    def _part_done(self, batch: AppendBatch) -> None:
        if all(part.done.done() for part, _ in batch.parts or ()):
            self._finish(batch)

    async def _settle_atomic(self, batch: AppendBatch) -> None:
        """Settle an atomic batch whose keys no longer lie in one range: it is never divided (x17).

        When an attempt may have been applied before the split, the first number of the batch shows
        whether it was: a batch applies its numbers all or not at all, and both child ranges have
        the producer's row.
        """
        attempts = batch.attempts
        spans = BatchSpansRanges(
            "the keys of an atomic batch lie in several ranges; give only keys of one "
            "range. `lognode range list` shows the ranges"
        )
        if attempts.outcome != "unknown":
            self._log.check_keys(batch.keys)  # the table omits keys it may not use
            raise spans
        producer, _ = await self.identity.opened(attempts.deadline)
        body = {"producer": producer, "number": batch.numbers[0], **self.identity.grant}
        answer, _ = await self._cluster.call(
            self._log, batch.first_key, PRODUCER_NUMBER, body, deadline=attempts.deadline
        )
        if not answer.get("applied"):
            raise spans
        seq = answer.get("seq")
        seqs = [None if seq is None else seq + i for i in range(len(batch))]
        self._settle(batch, {"seqs": seqs, "duplicates": list(range(len(batch)))})

    # Settling.

    def _settle(self, batch: AppendBatch, reply: dict[Any, Any]) -> None:
        batch.settled(reply)
        self.delivery.acknowledged += len(batch) - len(batch.refused)
        self.delivery.duplicates += len(batch.duplicates)
        self._count_failed(len(batch.refused), batch.attempts.outcome)
        self._finish(batch)

    def _count_failed(self, records: int, outcome: errors.Outcome) -> None:
        if outcome == "not_applied":
            self.delivery.not_applied += records
        else:
            self.delivery.unknown += records

    def _fail(self, batch: AppendBatch, error: LognodeError) -> None:
        if batch.done.done() or batch.parts is not None:  # settled, or its parts report it
            return
        batch.error = self.last_error = batch.attempts.settle(error)
        self._count_failed(len(batch), batch.error.outcome)
        if self.name is not None or isinstance(error, Fenced):
            self._end_session(batch.error)
        else:
            prevs = batch.prevs or repeat(0)
            self._given_up.update(zip(batch.numbers, prevs))  # noqa: B905
        self._finish(batch)

    def _finish(self, batch: AppendBatch) -> None:
        if batch.done.done():
            return
        batch.data = None
        self._clean = self._clean and batch.attempts.outcome != "unknown"
        batch.done.set_result(None)
        batch.wake()
        self._unacked_bytes -= batch.bytes
        if self.name is None or batch.error is None:
            self._unsettled.discard(batch)
            self._low = None
        if self._given_up:
            low = self.low
            self._given_up = {n: prev for n, prev in self._given_up.items() if n >= low}
        self._wake()
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump_all)

    def _end_session(self, error: LognodeError) -> None:
        """End the session: a number that was left out must not be passed by `low`."""
        if self.fatal is not None:
            return
        self.fatal = error
        for lane in self._lanes.values():
            self._close_open(lane)
            ready, lane.ready = lane.ready, []
            for batch in ready:
                self._fail(batch, _copy(error, "not_applied"))
        self._wake()

    def _wake(self) -> None:
        while self._waiting and (self.fatal is not None or self.has_room()):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Ending.

    async def flush(self) -> None:
        """Send the open batches; return when every record added so far is settled."""
        for lane in list(self._lanes.values()):
            self._close_open(lane)
            self._pump(lane)
        pending = [batch.done for batch in self._unsettled if not batch.done.done()]
        if pending:
            await asyncio.wait(pending)

    async def close(self, timeout_s: float) -> Delivery:
        """Flush for at most `timeout_s`, then give up the rest; return the outcome of all
        records."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            self._end_session(Unavailable("the program closed the producer", reason="closed"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for batch in list(self._unsettled):  # a task cancelled early has failed none
            self._fail(batch, Unavailable("the program closed the producer", reason="closed"))
        await self.identity.close()
        if self.fatal is None:
            self.fatal = Unavailable("the program closed the producer", reason="closed")
        self._retire()
        return self.delivery

    def _retire(self) -> None:
        """Tell the ranges that they may forget the producer, once all records are settled for good.

        Skipped when a request went unanswered: the request might arrive when no range knows its
        numbers any more.
        """
        producer = self.identity.producer
        if self.name is not None or not self._clean or producer is None:
            return
        body = {"id": producer, **self.identity.grant}
        for range_id in self._lanes:
            self._cluster.tell(self._log, range_id, PRODUCER_CLOSE, body)


def _copy(error: LognodeError, outcome: errors.Outcome) -> LognodeError:
    return type(error)(error.message, outcome=outcome, **error.fields)


def _own(error: LognodeError) -> LognodeError:
    """Copy an error for one of several batches, since each batch settles its own outcome."""
    return _copy(error, error.outcome)


def _result(batch: AppendBatch, result: Any) -> dict[Any, Any] | LognodeError:
    """Return the result for one batch of an answer."""
    if type(result) is not dict:
        return RemoteProtocolError("the answer to an append has no result")
    if result.get("status") == "error":
        return errors.from_wire(result.get("error"))
    try:
        check_reply(batch, result)
    except RemoteProtocolError as error:
        return error
    return result


def _first_number(batch: AppendBatch) -> int:
    return batch.numbers[0]
