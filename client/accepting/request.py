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
"""Wait until an answer may be built (see `Request.room`)."""


async def no_room() -> None:
    """Take no room: for callers without a connection."""


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
        """The body as the operation's row of the table describes it: complete, typed, within
        bounds."""
        self.allowed = allowed
        """The permitted content of its batches; None: anything."""
        self.weight = operation.answer_bytes(body)
        """The maximum bytes of its answer, or of one push."""
        self.size = connection._meter.keep(memory, self.weight)
        """Its memory as a request."""
        self.answered = False
        """Whether the last frame of the answer was sent."""
        self.given_up = False
        """Whether the client has cancelled the request or has left. The work of the request may
        run for a few more turns of the loop."""
        self.on_cancel: Callable[[], None] | None = None
        """Called to end the work of an abandoned request; the task of a coroutine is also
        cancelled."""
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
        """Send the answer. An answer over the frame limit becomes that error, of an unknown
        outcome: the request was done."""
        try:
            self._last(frames.OK, body)
        except LimitExceeded as error:
            self.fail(LimitExceeded(error.message, outcome="unknown", **error.fields))

    def fail(self, error: LognodeError) -> None:
        """Send an error as the answer. An error over the frame limit is cut."""
        try:
            self._last(frames.ERROR, to_wire(error))
        except LimitExceeded:
            short = type(error)(error.message[:_CUT_CHARS] + "...", outcome=error.outcome)
            self._last(frames.ERROR, to_wire(short))

    def push(self, body: Body) -> None:
        """Send one part of a stream; its bytes reduce the credit, below zero for the last part."""
        if not self.answered:
            self._credit -= self._send(frames.PUSH, body)
        self.leave_room()

    def end(self, body: Body) -> None:
        """End the stream: it is complete."""
        self._last(frames.END, body)

    async def wait_credit(self) -> None:
        """Wait until something may be pushed, or the client has left."""
        while self._credit <= 0 and not self.answered:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def grant(self, credit_bytes: int) -> None:
        """Add credit for bytes that the client has read. At most `follow_credit_bytes_max` is
        ever open."""
        self._credit = min(self._credit + credit_bytes, limits.follow_credit_bytes_max)
        self._notify()

    async def room(self) -> None:
        """Wait until the answer, or the next push, may be built: the budgets have room for
        `weight`.

        The room is kept until the answer or the push was sent, or `leave_room` is called. A small
        answer needs no room. An answer built without room counts once it is sent.
        """
        if self.given_up:  # nobody waits for the answer
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
        """Return the room that `room` has taken: no answer is being built."""
        room, self._room = self._room, 0
        if room:
            self.connection._meter.answers.give_back(room)

    def give_up(self) -> None:
        """Note that the client has left: no answer will be sent. `end_work` is called in a later
        turn."""
        self.answered = self.given_up = True

    def end_work(self) -> None:
        """End the work of an abandoned request."""
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
