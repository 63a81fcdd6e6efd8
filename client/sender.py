"""Delivery of numbered records: batches per range, in flight, retried, settled, in key order.

The rules are those of ranges.md section 5. Every record has a number, once, over all ranges.
`low` is the smallest number not settled; a record's `prev` is the last number of the same key
before its batch, and within a batch order is order. A range that has not seen a `prev` refuses
the batch, so that batches may be under way at once and still apply in order per key.

An anonymous producer may give a number up at its deadline, since it is never sent again. A
producer whose numbers may be sent again never does: `low` passes acknowledged numbers only, and a
failure ends the session (executions 1.10).
"""

import asyncio
from bisect import insort
from collections import deque
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from . import errors, limits, wire
from .appends import AppendBatch, Columns, check_reply
from .cluster import Cluster, LogRoutes
from .errors import (
    BatchSpansRanges,
    Fenced,
    LognodeError,
    OutOfOrder,
    RemoteProtocolError,
    Timeout,
    Unavailable,
)
from .pool import shared
from .retry import Attempts
from .routing import Range
from .types import Headers

UNROUTED = 0
"""The lane of records whose range is not known at the moment; range 0 is the controller's."""


@dataclass(slots=True)
class Delivery:
    """What became of the records of a session, in records."""

    acknowledged: int = 0
    duplicates: int = 0
    """Of those acknowledged, the ones that an earlier attempt or session had appended."""
    not_applied: int = 0
    unknown: int = 0

    @property
    def undelivered(self) -> int:
        """Records without an acknowledgement."""
        return self.not_applied + self.unknown


class _Lane:
    """The batches of one range: one open, some ready, at most five in flight."""

    __slots__ = ("due", "in_flight", "open", "ready", "timer")

    def __init__(self) -> None:
        self.open: AppendBatch | None = None
        self.due = False
        self.timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self.ready: list[AppendBatch] = []
        self.in_flight = 0


class Sender:
    """One producer id in one log. All calls on the loop's thread."""

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
        """Why no more records are taken."""
        self.last_error: LognodeError | None = None
        self.name = name
        self._cluster = cluster
        self._log = log
        self._linger_s = linger_s
        self._unacked_bytes_max = unacked_bytes_max
        self._unacked_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[int, _Lane] = {}
        self._unsettled: set[AppendBatch] = set()
        self._last: dict[bytes, int] = {}
        self._clean = True
        """Every request was answered: none can still be on its way."""
        self._given_up: dict[int, int] = {}
        """Numbers given up, at or above low, with their prev: what followed them follows that."""
        self._next_number = 1
        self._low: int | None = None
        """Known until the next batch is settled."""
        self._seen = log.table.ranges
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._identity: asyncio.Task[tuple[int, int]] | None = None

    # Taking records.

    @property
    def low(self) -> int:
        """The smallest number not settled, or the next one."""
        if self._low is None:
            firsts = (batch.numbers[0] for batch in self._unsettled)
            self._low = min(firsts, default=self._next_number)
        return self._low

    async def opened(self, deadline: float) -> tuple[int, int]:
        """Producer id and epoch, asked for once. Raises Unavailable, Timeout, Unauthorized."""
        if self._identity is None or (
            self._identity.done() and (self._identity.cancelled() or self._identity.exception())
        ):
            self._identity = self._loop.create_task(self._open(deadline))
            self._identity.add_done_callback(_retrieve)
        try:
            async with asyncio.timeout_at(deadline):
                return await shared(self._identity)
        except TimeoutError:
            raise Timeout(
                "no producer id in time: the controller has no leader, or nobody could be reached",
                outcome="not_applied",
            ) from None

    async def _open(self, deadline: float) -> tuple[int, int]:
        answer = await self._cluster.call_any(
            wire.PRODUCER_OPEN, {"name": self.name}, deadline=deadline, writes=False
        )
        producer, epoch = int(answer["id"]), int(answer["epoch"])
        if self.name is not None:
            await self._fence(producer, epoch, deadline)
        return producer, epoch

    async def _fence(self, producer: int, epoch: int, deadline: float) -> None:
        """Tell every range of the epoch: an older holder of the name might otherwise still append
        where this one has not been yet (executions 1.27)."""
        body = {"id": producer, "epoch": epoch}
        at: bytes | None = b""
        while at is not None:
            _, known = await self._cluster.call(self._log, at, wire.FENCE, body, deadline=deadline)
            at = known.end

    async def routed(self, deadline: float) -> None:
        """The log's ranges are known. Raises LogNotFound, Unavailable, Timeout."""
        if not len(self._log.table):
            await self._cluster.all_ranges(self._log, deadline)

    def has_room(self, number: int | None = None) -> bool:
        """Whether a record may be added: the windows of bytes and of numbers."""
        return not self._unsettled or (
            self._unacked_bytes < self._unacked_bytes_max
            and (number or self._next_number) - self.low < limits.producer_window_max
        )

    async def room(self, deadline: float | None, number: int | None = None) -> None:
        """Wait for room. Raises Timeout (`not_applied`), or what ended the session."""
        try:
            async with asyncio.timeout_at(deadline):
                while self.fatal is None and not self.has_room(number):
                    waiter: asyncio.Future[None] = self._loop.create_future()
                    self._waiting.append(waiter)
                    await waiter
        except TimeoutError:
            raise Timeout(
                "no room for more unacknowledged records", outcome="not_applied"
            ) from None
        if self.fatal is not None:
            raise self._copy(self.fatal, "not_applied")

    def add(
        self,
        key: bytes,
        value: bytes | None,
        headers: Headers | None,
        size: int,
        deadline: float,
        number: int | None = None,
    ) -> tuple[AppendBatch, int]:
        """Put one record, checked before, into its range's open batch."""
        lane = self._lane_of(key)
        batch = lane.open
        if (
            batch is None
            or batch.bytes + size > limits.batch_bytes_max
            or len(batch.keys) >= limits.batch_records_max
        ):
            batch = self._open_batch(lane, deadline)
        position = len(batch.keys)
        if number is None:
            number = self._next_number
        self._next_number = number + 1
        batch.keys.append(key)
        batch.values.append(value)
        batch.numbers.append(number)
        if headers or batch.headers is not None:
            if batch.headers is None:
                batch.headers = [None] * position
            batch.headers.append(headers or None)
        batch.bytes += size
        if batch.attempts.deadline < deadline:
            batch.attempts.deadline = deadline
        if position == 0:
            self._begin(batch)
        self._unacked_bytes += size
        return batch, position

    def add_alone(
        self, columns: Columns, deadline: float, *, atomic: bool = False,
        expect: int | None = None, snapshot: bool = False,
    ) -> AppendBatch:  # fmt: skip
        """Records of one range that share a fate: an atomic batch, or one with a condition.

        They travel by themselves, so that a refusal hits nobody else.
        """
        batch = self._ready_batch(columns, range(len(columns)), deadline)
        batch.atomic = atomic
        if expect is not None:
            batch.expects = [expect]
        if snapshot:
            batch.snapshots = [0]
        self._next_number += len(columns)
        return batch

    def add_columns(self, columns: Columns, deadline: float) -> list[tuple[AppendBatch, Any]]:
        """Many records at once; each batch with the positions of its records."""
        batches: list[tuple[AppendBatch, Any]] = []
        for group in columns.by_start(self._log.table.starts):
            for positions in columns.cut(group):
                batches.append((self._ready_batch(columns, positions, deadline), positions))
        self._next_number += len(columns)
        return batches

    def _ready_batch(self, columns: Columns, positions: Any, deadline: float) -> AppendBatch:
        batch = self._new_batch(deadline)
        columns.fill(batch, positions, self._next_number)
        self._begin(batch)
        self._unacked_bytes += batch.bytes
        lane = self._lane_of(batch.keys[0])
        if lane.open is not None:
            self._close_open(lane)  # what came first goes first
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

    def _open_batch(self, lane: _Lane, deadline: float) -> AppendBatch:
        if lane.open is not None:
            self._close_open(lane)
            self._loop.call_soon(self._pump, lane)
        lane.open = self._new_batch(deadline)
        if self._linger_s > 0:
            lane.timer = self._loop.call_later(self._linger_s, self._linger_over, lane)
        else:
            lane.timer = self._loop.call_soon(self._linger_over, lane)
        return lane.open

    def _linger_over(self, lane: _Lane) -> None:
        lane.due = True
        self._pump(lane)

    def _close_open(self, lane: _Lane) -> None:
        batch, lane.open, lane.due = lane.open, None, False
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if batch is not None:
            self._close(batch)
            lane.ready.append(batch)

    def _close(self, batch: AppendBatch) -> None:
        """Fix what the batch follows. Batches of a key are closed in the order of numbers."""
        batch.close()
        last = self._last
        if last:
            prevs = list(map(last.get, batch.keys, repeat(0)))
            if self._given_up:
                prevs = list(map(self._not_given_up, prevs))
            batch.prevs = prevs if any(prevs) else None
        last.update(zip(batch.keys, batch.numbers, strict=True))
        if len(last) > limits.producer_window_max:
            low = self.low
            self._last = {key: number for key, number in last.items() if number >= low}

    def _lane_of(self, key: bytes) -> _Lane:
        table = self._log.table
        if table.ranges is not self._seen:
            # A key may have moved to another lane: what is open in the old one comes before.
            self._seen = table.ranges
            for lane in self._lanes.values():
                self._close_open(lane)
                self._loop.call_soon(self._pump, lane)
        known = table.find(key)
        range_id = UNROUTED if known is None else known.range_id
        found = self._lanes.get(range_id)
        if found is None:
            found = self._lanes[range_id] = _Lane()
        return found

    # Sending.

    def _pump(self, lane: _Lane) -> None:
        while lane.in_flight < limits.producer_requests_in_flight_max:
            if not lane.ready and lane.open is not None and lane.due:
                self._close_open(lane)
            at = next(
                (
                    i
                    for i, batch in enumerate(lane.ready)
                    if batch.after is None or batch.after.done.done()
                ),
                None,
            )
            if at is None:
                return
            batch = lane.ready.pop(at)
            batch.after = None
            lane.in_flight += 1
            task = self._loop.create_task(self._deliver(lane, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pump_all(self) -> None:
        for lane in list(self._lanes.values()):
            self._pump(lane)

    async def _deliver(self, lane: _Lane, batch: AppendBatch) -> None:
        try:
            await self._deliver_or_regroup(batch)
        except LognodeError as error:
            self._fail(batch, error)
        except asyncio.CancelledError:
            self._fail(batch, Unavailable("the producer was closed", reason="closed"))
        except Exception as error:
            self._fail(batch, LognodeError(f"internal error: {error!r}", outcome="unknown"))
            raise
        finally:
            lane.in_flight -= 1
            self._pump(lane)

    async def _deliver_or_regroup(self, batch: AppendBatch) -> None:
        attempts = batch.attempts
        producer, epoch = await self.opened(attempts.deadline)
        while not batch.done.done():
            if self.fatal is not None:
                raise self._copy(self.fatal, attempts.outcome)
            known, tried, news = None, 0, False
            try:
                known = await self._cluster.locate(self._log, batch.first_key, attempts.deadline)
                if not known.contains(batch.last_key):
                    await self._regroup(batch)
                    return
                tried = self._cluster.target(known)
                if batch.data is None:
                    batch.data = batch.pack(producer, epoch, self.low)
                self._settle(batch, await self._attempt(batch, batch.data, known, tried))
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
        self, batch: AppendBatch, data: bytes, known: Range, node: int
    ) -> dict[Any, Any]:
        now = self._loop.time()
        until = batch.attempts.attempt_deadline(now)
        body = {"batches": [data], "timeout_ms": max(1, int((until - now) * 1000))}
        try:
            answer = await self._cluster.ask(known, wire.APPEND, body, until, node=node)
        except asyncio.CancelledError:
            batch.attempts.outcome = "unknown"
            raise
        results = answer.get("results")
        if type(results) is not list or len(results) != 1 or type(results[0]) is not dict:
            raise RemoteProtocolError("an append was answered without its result")
        reply: dict[Any, Any] = results[0]
        if reply.get("status") == "error":
            raise errors.from_wire(reply.get("error") or {})
        check_reply(batch, reply)
        return reply

    def _wait_for_predecessor(self, batch: AppendBatch, error: OutOfOrder) -> bool:
        """The range lacks a predecessor. When that is under way, let it go first: True.

        Otherwise it was acknowledged, or given up and will never come: pack again without it.
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
        """The range was split: each record goes where its key is now, with the same number."""
        if batch.atomic:
            await self._settle_atomic(batch)
            return
        table = self._log.table
        if not table.covers(batch.first_key, batch.last_key + b"\x00"):
            await self._cluster.refresh(self._log.name, batch.attempts.deadline)
        groups: dict[int, list[int]] = {}
        for position, key in enumerate(batch.keys):
            known = self._log.table.find(key)
            groups.setdefault(UNROUTED if known is None else known.range_id, []).append(position)
        batch.parts = []
        for positions in groups.values():
            attempts = Attempts(batch.attempts.what, batch.attempts.deadline, writes=True)
            attempts.outcome = batch.attempts.outcome
            part = batch.part(positions, attempts)
            self._begin(part)
            part.done.add_done_callback(lambda _done: self._part_done(batch))
            batch.parts.append((part, positions))
            lane = self._lane_of(part.first_key)
            insort(lane.ready, part, key=_first_number)
            self._pump(lane)

    def _part_done(self, batch: AppendBatch) -> None:
        if all(part.done.done() for part, _ in batch.parts or ()):
            self._finish(batch)

    async def _settle_atomic(self, batch: AppendBatch) -> None:
        """An atomic batch is never divided (executions 1.17).

        When an attempt may have been applied before the split, its first number tells: numbers
        are applied with the batch or not at all, and both children have the producer's row.
        """
        attempts = batch.attempts
        spans = BatchSpansRanges(
            "the keys of an atomic batch lie in several ranges: put only keys of one range into "
            "it; `lognode range list` shows them"
        )
        if attempts.outcome != "unknown":
            raise spans
        producer, _ = await self.opened(attempts.deadline)
        body = {"producer": producer, "number": batch.numbers[0]}
        answer, _ = await self._cluster.call(
            self._log, batch.first_key, wire.PRODUCER_NUMBER, body, deadline=attempts.deadline
        )
        if not answer.get("applied"):
            raise spans
        seq = answer.get("seq")
        seqs = [None if seq is None else seq + i for i in range(len(batch))]
        self._settle(batch, {"seqs": seqs, "duplicates": list(range(len(batch)))})

    # Settling.

    def _settle(self, batch: AppendBatch, reply: dict[Any, Any]) -> None:
        batch.reply = reply
        self.delivery.acknowledged += len(batch)
        self.delivery.duplicates += len(reply.get("duplicates") or ())
        self._finish(batch)

    def _fail(self, batch: AppendBatch, error: LognodeError) -> None:
        if batch.done.done():
            return
        batch.error = self.last_error = batch.attempts.settle(error)
        if batch.error.outcome == "not_applied":
            self.delivery.not_applied += len(batch)
        else:
            self.delivery.unknown += len(batch)
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
        self._unacked_bytes -= batch.bytes
        if self.name is None or batch.error is None:
            self._unsettled.discard(batch)
            self._low = None
        if self._given_up:
            low = self.low
            self._given_up = {n: prev for n, prev in self._given_up.items() if n >= low}
        self._wake()
        self._loop.call_soon(self._pump_all)

    def _end_session(self, error: LognodeError) -> None:
        """Nothing more is sent: a number left out must not be passed by `low`."""
        if self.fatal is not None:
            return
        self.fatal = error
        for lane in self._lanes.values():
            self._close_open(lane)
            ready, lane.ready = lane.ready, []
            for batch in ready:
                self._fail(batch, self._copy(error, "not_applied"))
        self._wake()

    def _copy(self, error: LognodeError, outcome: errors.Outcome) -> LognodeError:
        return type(error)(error.message, outcome=outcome, **error.fields)

    def _wake(self) -> None:
        while self._waiting and (self.fatal is not None or self.has_room()):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # Ending.

    async def flush(self) -> None:
        """Send what is open; return when everything added so far is settled."""
        for lane in list(self._lanes.values()):
            self._close_open(lane)
            self._pump(lane)
        pending = [batch.done for batch in self._unsettled if not batch.done.done()]
        if pending:
            await asyncio.wait(pending)

    async def close(self, timeout_s: float) -> Delivery:
        """Flush for at most `timeout_s`, then give up what is left; says what became of all."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            self._end_session(Unavailable("the producer was closed", reason="closed"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for batch in list(self._unsettled):  # a task cancelled before it began has failed nothing
            if batch.parts is None:
                self._fail(batch, Unavailable("the producer was closed", reason="closed"))
        if self._identity is not None and not self._identity.done():
            self._identity.cancel()
        if self.fatal is None:
            self.fatal = Unavailable("the producer is closed", reason="closed")
        self._retire()
        return self.delivery

    def _retire(self) -> None:
        """All settled and never to come back: the ranges may forget the producer.

        Not when a request went unanswered: it might arrive when nothing knows its numbers any more.
        """
        if self.name is not None or not self._clean or self._identity is None:
            return
        if self._identity.cancelled() or self._identity.exception() is not None:
            return
        producer, _ = self._identity.result()
        for range_id in self._lanes:
            self._cluster.tell(self._log, range_id, wire.PRODUCER_CLOSE, {"id": producer})


def _retrieve(task: "asyncio.Task[tuple[int, int]]") -> None:
    """Those who wait get the error; when nobody waits any more it is none."""
    if not task.cancelled():
        task.exception()


def _first_number(batch: AppendBatch) -> int:
    return batch.numbers[0]
