"""A request in flight at the acceptor: its answer, its pushes, its credit and its room."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from ..protocol import Operation, frames, limits
from ..protocol.errors import LimitExceeded, LognodeError, to_wire
from .access import Allowed

if TYPE_CHECKING:
    from .acceptor import ServerConnection

_CUT_CHARS: Final = 1_000
Body = dict[str, Any]
Room = Callable[[], Awaitable[None]]
"""Wait until an answer may be made (see `Request.room`)."""


async def no_room() -> None:
    """For whoever needs no room: not over a connection."""


class Request:
    """One request in flight. Answer it once: `reply`, `fail`, or pushes and then `end`."""

    __slots__ = (
        "_credit",
        "_room",
        "_waiter",
        "allowed",
        "answered",
        "body",
        "connection",
        "given_up",
        "on_cancel",
        "on_sent",
        "operation",
        "request_id",
        "size",
        "task",
        "weight",
    )

    def __init__(
        self,
        connection: "ServerConnection",
        operation: Operation,
        request_id: int,
        body: Body,
        memory: int,
        allowed: Allowed | None = None,
    ) -> None:
        self.connection = connection
        self.operation = operation
        self.request_id = request_id
        self.body = body
        """As the operation's row of the table says: complete, typed, within bounds."""
        self.allowed = allowed
        """What its batches may hold; None: anything."""
        self.weight = operation.answer_bytes(body)
        """The bytes that its answer, or one push, may have at most."""
        self.size = connection._meter.keep(memory, self.weight)
        """What it costs as a request."""
        self.answered = False
        """Whether no more is sent."""
        self.given_up = False
        """Whether the asker has cancelled the request or has gone. The work of the request may go
        on for a few turns of the loop."""
        self.on_cancel: Callable[[], None] | None = None
        """Called when the work of a request that was given up is to end; a coroutine's task is
        cancelled besides."""
        self.on_sent: Callable[[int, Body], None] | None = None
        """Called with the bytes and the body of each frame of the answer."""
        self.task: asyncio.Future[Body | None] | None = None
        credit = body["credit"] if operation.streams else 0
        self._credit = min(credit, limits.follow_credit_bytes_max)
        self._room = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def credit(self) -> int:
        """Bytes that may still be pushed; at or below 0: wait."""
        return self._credit

    def reply(self, body: Body) -> None:
        """The answer. One over the frame limit is answered with that error instead, of an unknown
        outcome: what was asked for was done."""
        try:
            self._last(frames.OK, body)
        except LimitExceeded as error:
            self.fail(LimitExceeded(error.message, outcome="unknown", **error.fields))

    def fail(self, error: LognodeError) -> None:
        """The answer is an error. One over the frame limit is cut."""
        try:
            self._last(frames.ERROR, to_wire(error))
        except LimitExceeded:
            short = type(error)(error.message[:_CUT_CHARS] + "...", outcome=error.outcome)
            self._last(frames.ERROR, to_wire(short))

    def push(self, body: Body) -> None:
        """One part of a stream; takes its bytes from the credit, below zero for the last."""
        if not self.answered:
            self._credit -= self._send(frames.PUSH, body)
        self.leave_room()

    def end(self, body: Body) -> None:
        """The stream is complete."""
        self._last(frames.END, body)

    async def wait_credit(self) -> None:
        """Wait until something may be pushed, or the asker has gone."""
        while self._credit <= 0 and not self.answered:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def grant(self, credit_bytes: int) -> None:
        """The asker has read that much. More than `follow_credit_bytes_max` is never open."""
        self._credit = min(self._credit + credit_bytes, limits.follow_credit_bytes_max)
        self._notify()

    async def room(self) -> None:
        """Wait until the answer may be made, or the next push: the budgets have room for `weight`.

        The room is kept until the answer or the push was sent, or `leave_room` is called. A small
        answer needs none. What is made without room counts once it is sent.
        """
        if self.given_up:  # nothing is made for nobody
            self.end_work()
            await asyncio.sleep(0)
        if self.weight <= limits.answer_small_bytes or self._room or self.answered:
            return
        meter = self.connection._meter
        size = meter.answers.counted(self.weight)
        if meter.answers.take(size):
            self._room = size
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_room() -> None:
            self._room = size
            if not waiter.done():
                waiter.set_result(None)

        ticket = meter.answers.wait(size, meter.clock(), on_room)
        try:
            await waiter
        finally:
            meter.answers.cancel(ticket)

    def leave_room(self) -> None:
        """Give back what `room` has taken: nothing is being made."""
        room, self._room = self._room, 0
        if room:
            self.connection._meter.answers.give_back(room)

    def give_up(self) -> None:
        """The asker has gone: no answer will be sent. `end_work` is called in a later turn."""
        self.answered = self.given_up = True

    def end_work(self) -> None:
        """End what serves the request that was given up."""
        self._notify()
        try:
            if self.on_cancel is not None:
                self.on_cancel()
        finally:
            if self.task is None:
                self.connection.work_ended(self)
            else:
                self.task.cancel()

    def _last(self, kind: int, body: Body) -> None:
        if not self.answered:
            self._send(kind, body)
            self.answered = True
            self._notify()
            self.connection.finished(self)

    def _send(self, kind: int, body: Body) -> int:
        size = self.connection._send(self.request_id, kind, body)
        if self.on_sent is not None:
            self.on_sent(size, body)
        return size

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
