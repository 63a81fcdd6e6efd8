"""Delivery of numbered records: requests per range, pipelined, retried until they are settled.

The rules are those of docs/design/ranges.md#producers.
Every record has a unique number over all ranges. `window` knows which numbers are settled, and
`batcher` puts records into batches that apply in order per key. The sender sends the batches, and
follows a batch whose range was split or moved.
"""

import asyncio
from typing import Any

from .appends import AppendBatch, check_reply
from .batcher import Batcher
from .cluster import Cluster, LogRoutes
from .durations import milliseconds
from .identity import Identity
from .lanes import Lane
from .protocol import errors, limits
from .protocol.appends import APPEND, PRODUCER_CLOSE, PRODUCER_NUMBER
from .protocol.errors import (
    BatchSpansRanges,
    LognodeError,
    OutOfOrder,
    RemoteProtocolError,
    Unavailable,
)
from .routing import Range
from .tracing import RequestSpan
from .window import Delivery, Window, copied

_Failure = tuple[LognodeError, Range, int]
"""The error of an attempt, the range, and the node that was asked."""


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
        raw: bool = False,
    ) -> None:
        """`raw`: keys are given as the ranges store them (`stored_keys`)."""
        loop = asyncio.get_running_loop()
        self.window = Window(named=name is not None, unacked_bytes_max=unacked_bytes_max, loop=loop)
        self.batcher = Batcher(
            log, self.window, linger_s=linger_s, loop=loop, on_ready=self._pump, raw=raw
        )
        self.identity = Identity(cluster, log, name)
        self._name = name
        self._cluster = cluster
        self._log = log
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._pumping = False
        """Whether a look at all lanes is scheduled."""

    @property
    def is_ready(self) -> bool:
        """Whether the log's ranges are known, and the window takes one more record now."""
        window = self.window
        return window.fatal is None and bool(self._log.table.ranges) and window.has_room()

    async def routed(self, deadline: float) -> None:
        """Wait until the log's ranges are known. Raises LogNotFound, Unavailable, Timeout."""
        await self._cluster.routed(self._log, deadline)

    # Sending.

    def _pump(self, lane: Lane) -> None:
        while lane.in_flight < limits.producer_requests_in_flight_max:
            if not lane.ready and lane.open is not None and lane.due:
                self.batcher.close_open(lane)
            batches = lane.take()
            if not batches:
                return
            lane.in_flight += 1
            task = self._loop.create_task(self._deliver(lane, batches))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump_all)

    def _pump_all(self) -> None:
        self._pumping = False
        for lane in self.batcher.lanes():
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
        if self.window.fatal is not None or not all(
            known.contains(batch.first_key) and known.contains(batch.last_key) for batch in batches
        ):
            return [(batch, None) for batch in batches]
        tried = self._cluster.target(known)
        for batch in batches:
            if batch.data is None:
                batch.data = batch.pack(producer, epoch, self.window.low)
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
            if self.window.fatal is not None:
                raise copied(self.window.fatal, attempts.outcome)
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
                if batch.settles is not None:
                    until = attempts.attempt_deadline(self._loop.time())
                    tried = await batch.settles.claimed(known, tried, until)
                    if self._log.table.find(known.start) != known:
                        continue  # the ranges have changed meanwhile
                if batch.data is None:
                    batch.data = batch.pack(producer, epoch, self.window.low)
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
        settles = batches[0].settles
        try:
            if settles is None and any(batch.trace is not None for batch in batches):
                answer = await self._traced(batches, body, known, node, until)
            elif settles is not None:
                grant = self.identity.grant
                result = await settles.ask(self._cluster, known, node, batches[0], grant, until)
                return [_result(batches[0], result)]
            else:
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

    async def _traced(
        self, batches: list[AppendBatch], body: dict[str, Any], known: Range, node: int,
        until: float,
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request as a span below the spans of the callers."""
        span = RequestSpan(
            (batch.trace for batch in batches if batch.trace is not None),
            log=self._log.name, range=known.range_id, node=node, batches=len(batches),
            records=sum(map(len, batches)),
        )  # fmt: skip
        failure: BaseException | None = None
        try:
            traced = {**body, "trace": span.parent}
            return await self._cluster.ask(known, APPEND, traced, until, node=node)
        except BaseException as error:
            failure = error
            raise
        finally:
            span.end(failure)
            failure = None  # the error refers to this frame: break the cycle

    def _wait_for_predecessor(self, batch: AppendBatch, error: OutOfOrder) -> bool:
        """Handle a predecessor that the range lacks; return True to wait for a predecessor that is
        in flight.

        Otherwise the predecessor was acknowledged or given up: the batch is packed again without
        it.
        """
        holder = self.window.holder(error.fields.get("number"), besides=batch)
        if holder is not None:
            batch.after = holder
            self.batcher.put_back(batch)
            return True
        if batch.prevs is not None:
            batch.prevs = self.window.unsettled_prevs(batch.prevs)
        batch.data = None
        return False

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
        batch.parts = self.batcher.parts(batch)
        for part, _ in batch.parts:
            self.window.begin(part)
            part.done.add_done_callback(lambda _done: self._part_done(batch))
            self._pump(self.batcher.put_back(part))

    def _part_done(self, batch: AppendBatch) -> None:
        if all(part.done.done() for part, _ in batch.parts or ()):
            self.window.finish(batch)
            self._pump_soon()

    async def _settle_atomic(self, batch: AppendBatch) -> None:
        """Settle an atomic batch whose keys no longer lie in one range: it is never divided (x17).

        When an attempt may have been applied before the split, the first number of the batch shows
        whether it was: a batch applies its numbers all or not at all, and both child ranges have
        the producer's row.
        """
        attempts = batch.attempts
        spans: LognodeError = BatchSpansRanges(
            "the keys of an atomic batch lie in several ranges; give only keys of one "
            "range. `lognode range list` shows the ranges"
        )
        if batch.settles is not None:
            spans = batch.settles.spans()
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
        was_live = self.window.fatal is None
        self.window.settle(batch, reply)
        self._look_for_end(was_live)

    def _fail(self, batch: AppendBatch, error: LognodeError) -> None:
        was_live = self.window.fatal is None
        self.window.fail(batch, error)
        self._look_for_end(was_live)

    def _look_for_end(self, was_live: bool) -> None:
        """Go on after the outcome of a batch, which may have ended the session."""
        if was_live and self.window.fatal is not None:
            self._give_up_unsent(self.window.fatal)
        self._pump_soon()

    def _give_up_unsent(self, error: LognodeError) -> None:
        """End the batches that were not sent before the error ended the session."""
        for batch in self.batcher.take_ready():
            self.window.fail(batch, copied(error, "not_applied"))

    # Ending.

    async def flush(self) -> None:
        """Send the open batches; return when every record added so far is settled."""
        for lane in self.batcher.lanes():
            self.batcher.close_open(lane)
            self._pump(lane)
        if pending := self.window.pending():
            await asyncio.wait(pending)

    async def close(self, timeout_s: float) -> Delivery:
        """Flush for at most `timeout_s`, then give up the rest; return the outcome of all
        records."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.flush()
        except TimeoutError:
            self.window.end(Unavailable("the program closed the producer", reason="closed"))
            self._give_up_unsent(Unavailable("the program closed the producer", reason="closed"))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for batch in self.window.unsettled():  # a task cancelled early has failed none
            self._fail(batch, Unavailable("the program closed the producer", reason="closed"))
        await self.identity.close()
        self.window.end(Unavailable("the program closed the producer", reason="closed"))
        self._retire()
        return self.window.delivery

    def _retire(self) -> None:
        """Tell the ranges that they may forget the producer, once all records are settled for good.

        Skipped when a request went unanswered: the request might arrive when no range knows its
        numbers any more.
        """
        producer = self.identity.producer
        if self._name is not None or not self.window.clean or producer is None:
            return
        body = {"id": producer, **self.identity.grant}
        for range_id in self.batcher.ranges:
            self._cluster.tell(self._log, range_id, PRODUCER_CLOSE, body)


def _own(error: LognodeError) -> LognodeError:
    """Copy an error for one of several batches, since each batch settles its own outcome."""
    return copied(error, error.outcome)


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
