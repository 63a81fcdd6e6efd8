"""The accepting side of a connection: handshake, dispatch, answers, streams with credit.

A node implements `Handler`; this module keeps what every handler needs out of it: who may speak,
how many requests may be in flight, cancellation when the asker gives up or goes away, and that a
request gets exactly one last answer. Requests over the bounds wait in the kernel's buffers: the
acceptor stops reading, and says every second that it is alive.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from . import limits, wire
from .errors import (
    IDLE,
    LimitExceeded,
    LognodeError,
    Overloaded,
    Unauthorized,
    Unavailable,
    to_wire,
)
from .frame import Frame
from .incomplete import Incomplete
from .listening import Entrance
from .seats import Bounds, Seats
from .transport import FrameTransport
from .wire import Hello, Welcome

handshake_timeout_s: Final = 5.0
alive_every_s: Final = 1.0
closing_s: Final = 5.0
"""How long a connection that is being closed may take for its last bytes."""
_SLACK: Final = 8
"""Sockets accepted while others are being closed for them."""

Body = dict[str, Any]
Closed = Callable[[str, str], None]
"""Gets the reason, one of a few words, and the address of a connection that had to go."""


class Handler(Protocol):
    """What a listener does with its connections. All calls on the loop's thread."""

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        """Answer a hello, without the proof. Raise a LognodeError to refuse it."""

    def opened(self, connection: "ServerConnection") -> None:
        """The handshake is done."""

    def request(self, request: "Request") -> "Awaitable[Body | None] | Body | None":
        """Serve a request: return the answer, or a coroutine that returns it.

        None means that the handler answers, or has answered, through `request` itself. What it
        raises is the answer; an exception that is no LognodeError goes to `failed` as well.
        """

    def message(self, connection: "ServerConnection", op: str, body: Body) -> None:
        """A one-way message."""

    def closed(self, connection: "ServerConnection", error: LognodeError) -> None:
        """The connection has ended; called once for each `opened`."""

    def failed(self, op: str, error: Exception) -> None:
        """A handler raised what it should not: a bug or a broken invariant."""


class Request:
    """One request in flight. Answer it once: `reply`, `fail`, or pushes and then `end`."""

    __slots__ = (
        "_credit",
        "_waiter",
        "answered",
        "body",
        "connection",
        "on_cancel",
        "op",
        "request_id",
        "size",
        "task",
    )

    def __init__(self, connection: "ServerConnection", message: Frame) -> None:
        self.connection = connection
        self.request_id, self.op, self.body, self.size = message
        self.answered = False
        self.on_cancel: Callable[[], None] | None = None
        """Called when the asker gives up or goes away; a coroutine's task is cancelled besides."""
        self.task: asyncio.Future[Body | None] | None = None
        credit = self.body.get("credit")
        self._credit = credit if type(credit) is int else 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def credit(self) -> int:
        """Bytes that may still be pushed; at or below 0: wait."""
        return self._credit

    def reply(self, body: Body) -> None:
        """The answer. One over the frame limit is answered with that error instead."""
        try:
            self._last(wire.OK, body)
        except LimitExceeded as error:
            self.fail(error)

    def fail(self, error: LognodeError) -> None:
        """The answer is an error."""
        self._last(wire.ERROR, to_wire(error))

    def push(self, body: Body) -> None:
        """One part of a stream; takes its bytes from the credit, below zero for the last."""
        if not self.answered:
            self._credit -= self.connection._send(self.request_id, wire.PUSH, body)

    def end(self, body: Body) -> None:
        """The stream is complete."""
        self._last(wire.END, body)

    async def wait_credit(self) -> None:
        """Wait until something may be pushed, or the asker has gone."""
        while self._credit <= 0 and not self.answered:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def grant(self, credit_bytes: int) -> None:
        """The asker has read that much."""
        self._credit += credit_bytes
        self._notify()

    def abandon(self) -> None:
        """The asker has gone: no answer will be sent."""
        if self.answered:
            return
        self.answered = True
        self._notify()
        if self.on_cancel is not None:
            self.on_cancel()
        if self.task is not None:
            self.task.cancel()

    def _last(self, kind: str, body: Body) -> None:
        if not self.answered:
            self.connection._send(self.request_id, kind, body)
            self.answered = True
            self._notify()
            self.connection._finished(self)

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ServerConnection:
    """One accepted connection. `hello` says who dialled, once `Handler.opened` was called."""

    def __init__(
        self,
        transport: FrameTransport,
        handler: Handler,
        *,
        secret: bytes | None,
        entropy: Callable[[int], bytes],
        sit: Callable[[], None],
        on_late: Callable[[], None],
    ) -> None:
        """`sit` takes a seat among the connections whose handshake is done, or raises Overloaded;
        `on_late` is told of a handshake that takes too long."""
        self.hello: Hello | None = None
        self._sit = sit
        self._on_late = on_late
        self._handler = handler
        self._secret = secret
        self._entropy = entropy
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._welcome: Welcome | None = None
        self._open = False
        self._requests: dict[int, Request] = {}
        self._requests_bytes = 0
        self._backlog: deque[Frame] = deque()
        self._alive: asyncio.TimerHandle | None = None
        self._too_late = self._loop.call_later(handshake_timeout_s, self._late)
        transport.on_frame = self._shake_hands
        transport.on_lost = self._lost
        transport.on_writable = self._go_on

    def __repr__(self) -> str:
        who = "?" if self.hello is None else f"{self.hello.role} {self.hello.node or ''}".strip()
        return f"<ServerConnection from {who} at {self.address}>"

    @property
    def address(self) -> str:
        """`host:port` of the other side."""
        return self._transport.peer_address

    @property
    def lost(self) -> LognodeError | None:
        """Why the connection has ended, None while it is open."""
        return self._transport.lost

    @property
    def in_flight(self) -> int:
        """Requests being served."""
        return len(self._requests)

    @property
    def busy(self) -> bool:
        """Whether a request is being served or waits for that."""
        return bool(self._requests or self._backlog)

    @property
    def last_in_s(self) -> float:
        """Loop time at which bytes last arrived."""
        return self._transport.last_in_s

    @property
    def bytes_in(self) -> int:
        """Bytes received."""
        return self._transport.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes given to the kernel."""
        return self._transport.bytes_out

    @property
    def queued_bytes(self) -> int:
        """Bytes of answers that the kernel has not taken yet."""
        return self._transport.queued_bytes

    def send(self, op: str, body: Body) -> None:
        """A one-way message to the dialler."""
        self._transport.send(0, op, body)

    def refuse(self, error: LognodeError) -> None:
        """Tell the other side why, then close."""
        self._transport.refuse(error)

    def close(self) -> None:
        """Send what is queued and close; requests in flight are abandoned."""
        self._transport.close()

    def abort(self, error: LognodeError) -> None:
        """Close at once, for the reason given."""
        self._transport.abort(error)

    async def wait_closed(self, timeout_s: float = 1.0) -> None:
        """Wait until the socket is closed, by force after `timeout_s`."""
        await self._transport.wait_closed(timeout_s)

    # Handshake.

    def _shake_hands(self, message: Frame) -> None:
        try:
            if self.hello is None or self._welcome is None:
                self._greet(message)
            else:
                self._check_proof(message)
        except LognodeError as error:
            self.refuse(error)

    def _greet(self, message: Frame) -> None:
        if message.kind != wire.HELLO:
            raise Unauthorized("the first frame of a connection is a hello")
        hello = Hello.from_body(message.body)
        hello.agreed_version()
        nonce = self._entropy(wire.nonce_bytes)
        welcome = self._handler.welcome(hello, nonce)
        needs_proof = hello.role == "node" and self._secret is not None
        proof = None
        if hello.role == "node" and self._secret is not None:
            proof = wire.prove(self._secret, "acceptor", hello, welcome)
        self.hello, self._welcome = hello, welcome
        if not needs_proof:
            self._sit()
        self._transport.send(0, wire.WELCOME, {**welcome.to_body(), "proof": proof})
        if not needs_proof:
            self._admit()

    def _check_proof(self, message: Frame) -> None:
        proof = message.body.get("proof") if message.kind == wire.PROOF else None
        if self.hello is None or self._welcome is None or self._secret is None:
            raise Unauthorized("a proof before the hello")
        wire.check_proof(
            self._secret, "dialler", self.hello, self._welcome,
            proof if type(proof) is bytes else None,
        )  # fmt: skip
        self._sit()
        self._admit()

    def _admit(self) -> None:
        self._too_late.cancel()
        self._open = True
        self._transport.trust()
        self._transport.on_frame = self._frame
        self._handler.opened(self)

    def _late(self) -> None:
        self._on_late()
        self.refuse(Unauthorized(f"no handshake within {handshake_timeout_s:g} s"))

    # Requests.

    def _frame(self, message: Frame) -> None:
        request_id, kind, body, _ = message
        if request_id == 0:
            self._one_way(kind, body)
        elif kind == wire.CANCEL:
            self._cancel(request_id)
        elif kind == wire.CREDIT:
            request, credit = self._requests.get(request_id), body.get("bytes")
            if request is not None and type(credit) is int and credit > 0:
                request.grant(credit)
        elif kind == wire.PING:
            self._transport.send(request_id, wire.OK, {})
        elif self._backlog or not self._has_room():
            self._backlog.append(message)
            self._pause()
        else:
            self._start(message)

    def _one_way(self, op: str, body: Body) -> None:
        try:
            self._handler.message(self, op, body)
        except LognodeError as error:
            self.refuse(error)
        except Exception as error:
            self._handler.failed(op, error)

    def _start(self, message: Frame) -> None:
        if message.request_id in self._requests:
            self.refuse(Unauthorized(f"request id {message.request_id} is in use"))
            return
        request = Request(self, message)
        self._requests[message.request_id] = request
        self._requests_bytes += request.size
        try:
            answer = self._handler.request(request)
        except Exception as error:
            self._raised(request, error)
            return
        if isinstance(answer, dict):
            request.reply(answer)
        elif answer is not None:
            request.task = asyncio.ensure_future(answer)
            request.task.add_done_callback(lambda task: self._served(request, task))

    def _served(self, request: Request, task: "asyncio.Future[Body | None]") -> None:
        # What was raised knows the frames it passed, and they the request: no cycle is left.
        request.task = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._raised(request, error)
        elif error is None and (body := task.result()) is not None:
            request.reply(body)

    def _raised(self, request: Request, error: Exception) -> None:
        if isinstance(error, LognodeError):
            request.fail(error)
            return
        # Nobody knows how far it came.
        request.fail(LognodeError("internal error; see the node's log", outcome="unknown"))
        self._handler.failed(request.op, error)

    def _cancel(self, request_id: int) -> None:
        request = self._requests.get(request_id)
        if request is not None:
            request.abandon()
            self._finished(request)
        elif self._backlog:
            kept = [waiting for waiting in self._backlog if waiting.request_id != request_id]
            self._backlog = deque(kept)

    def _send(self, request_id: int, kind: str, body: Body) -> int:
        return self._transport.send(request_id, kind, body)

    def _finished(self, request: Request) -> None:
        if self._requests.pop(request.request_id, None) is not None:
            self._requests_bytes -= request.size
            if self._backlog:
                self._loop.call_soon(self._go_on)

    def _has_room(self) -> bool:
        return (
            self._transport.writable
            and len(self._requests) < limits.requests_in_flight_max
            and self._requests_bytes < limits.requests_in_flight_bytes_max
        )

    def _go_on(self) -> None:
        while self._backlog and self._has_room() and self.lost is None:
            self._start(self._backlog.popleft())
        if not self._backlog and self.lost is None:
            self._transport.read_on(True)
            if self._alive is not None:
                self._alive.cancel()
                self._alive = None

    def _pause(self) -> None:
        self._transport.read_on(False)
        if self._alive is None:
            self._alive = self._loop.call_later(alive_every_s, self._say_alive)

    def _say_alive(self) -> None:
        self._transport.send(0, wire.ALIVE, {})
        self._alive = self._loop.call_later(alive_every_s, self._say_alive)

    def _lost(self, error: LognodeError) -> None:
        self._too_late.cancel()
        if self._alive is not None:
            self._alive.cancel()
        self._backlog.clear()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.abandon()
        if self._open:
            self._handler.closed(self, error)


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    secret: bytes | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    bounds: Bounds | None = None,
    on_closed: Closed = lambda reason, address: None,
) -> "Listener":
    """Listen at `host:port` (0: any free port). Raises OSError when that is impossible.

    `on_closed` is told of each connection that had to go, or could not be accepted, and why.
    """
    listener = Listener(handler, secret, entropy, bounds or Bounds(), on_closed)
    await listener.entrance.listen(host, port)
    return listener


class Listener:
    """The open connections of one listening socket, within its `Bounds`."""

    def __init__(
        self,
        handler: Handler,
        secret: bytes | None,
        entropy: Callable[[int], bytes],
        bounds: Bounds,
        on_closed: Closed,
    ) -> None:
        self.bounds = bounds
        self.closed = False
        self.told = on_closed
        self.entrance = Entrance(
            self.accept, sockets_max=bounds.connections + bounds.handshakes + _SLACK,
            on_lack=lambda error: on_closed("lack", str(error)),
        )  # fmt: skip
        self.incomplete: Incomplete[_Accepted] = Incomplete()
        self._handler = handler
        self._secret = secret
        self._entropy = entropy
        self._seats: Seats[_Accepted] = Seats(bounds, random.Random())
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that is listened at."""
        return self.entrance.port

    @property
    def connections(self) -> int:
        """Connections open, in handshake or after it."""
        return len(self._seats)

    def accept(self) -> FrameTransport:
        """The protocol of a connection that was just accepted."""
        accepted = _Accepted(self)
        accepted.connection = ServerConnection(
            accepted, self._handler, secret=self._secret, entropy=self._entropy,
            sit=accepted.sit, on_late=lambda: accepted.tell("late"),
        )  # fmt: skip
        late = self._seats.arrive(accepted)
        if late is not None:
            late.tell("door")
            late.abort(Overloaded("too many handshakes at once", retry_after=1.0))
            self.entrance.shut(late)
        return accepted

    def sit(self, accepted: "_Accepted") -> None:
        """The handshake is done. Raises Overloaded."""
        try:
            idle = self._seats.sit(accepted)
        except Overloaded:
            accepted.tell("full")
            raise
        if idle is not None:
            idle.tell("displaced")
            idle.refuse(Unavailable("closed for a new connection", reason=IDLE))

    def left(self, accepted: "_Accepted") -> None:
        """The connection is closed."""
        self._seats.leave(accepted)
        self.incomplete.forget(accepted)
        self.entrance.gone(accepted)

    def received(self, accepted: "_Accepted", held: int) -> None:
        """Bytes came, and `held` bytes are kept of a frame that is incomplete."""
        self.incomplete.note(accepted, accepted.bytes_in - held, held)
        while self.incomplete.size > self.bounds.incomplete_bytes:
            self._give_up(self.incomplete.oldest, "crowded", "the node holds too many large ones")
        if self._watch is None and self.bounds.frame_bytes_per_s and self.incomplete.size:
            self._watch = self._loop.call_later(limits.frame_window_s, self._look_at_frames)

    def _look_at_frames(self) -> None:
        self._watch = None
        bytes_min = int(self.bounds.frame_bytes_per_s * limits.frame_window_s)
        for accepted in self.incomplete.slow(bytes_min):
            told = f"its bytes came at less than {self.bounds.frame_bytes_per_s} a second"
            self._give_up(accepted, "slow", told)
        if self.incomplete.size and not self.closed:
            self._watch = self._loop.call_later(limits.frame_window_s, self._look_at_frames)

    def _give_up(self, accepted: "_Accepted", reason: str, told: str) -> None:
        self.incomplete.forget(accepted)
        accepted.tell(reason)
        accepted.refuse(Unavailable(f"an incomplete frame was given up: {told}", reason="slow"))

    async def close(self) -> None:
        """Stop listening, close every connection; returns within two seconds."""
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
        await self.entrance.close()
        closing = self._seats.guests
        for accepted in closing:
            accepted.close(Unavailable("this node stops", reason="stopping"))
        if closing:
            await asyncio.gather(*(accepted.wait_closed(1.0) for accepted in closing))


class _Accepted(FrameTransport):
    """A transport that its listener counts."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self.connection: ServerConnection | None = None
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None
        """After the handshake, of the next look for idleness; at the end, of the last bytes."""
        self._busy_s = 0.0
        self._held = 0

    @property
    def host(self) -> str:
        """Where the connection is from, without the port."""
        return self.peer_address.rpartition(":")[0]

    @property
    def idle_since(self) -> float | None:
        """Loop time of the last request, as far as that was looked at; None while one is served."""
        if self.connection is not None and self.connection.busy:
            return None
        return max(self.last_in_s, self._busy_s)

    @property
    def is_read(self) -> bool:
        """Whether this node takes what comes."""
        return self._transport is not None and self._transport.is_reading()

    def tell(self, reason: str) -> None:
        """Why the connection has to go."""
        self._listener.told(reason, self.peer_address)

    def sit(self) -> None:
        """The handshake is done. Raises Overloaded."""
        self._listener.sit(self)
        if self._listener.bounds.idle_s:
            self._timer = self._loop.call_later(self._listener.bounds.idle_s, self._look)

    def _look(self) -> None:
        now, since = self._loop.time(), self.idle_since
        if since is None:
            self._busy_s = since = now
        left = since + self._listener.bounds.idle_s - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
            return
        self.tell("idle")
        told = f"no request for {self._listener.bounds.idle_s:g} s"
        self.refuse(Unavailable(told, reason=IDLE))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.lost is not None:  # it had to go before it had a transport
            self.abort(self.lost)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        held = self._decoder.buffered
        if (held or self._held) and self.lost is None:
            self._held = held
            self._listener.received(self, held)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        self._listener.left(self)

    # What ends it.

    def read_on(self, on: bool) -> None:
        super().read_on(on)
        self._listener.incomplete.excuse(self)

    def close(self, error: LognodeError | None = None) -> None:
        """As the transport's; a reader that does not read gets `closing_s`."""
        begins = self.lost is None and not self._closing
        super().close(error)
        if begins and self._transport is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(closing_s, self._transport.abort)
