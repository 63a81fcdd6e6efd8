"""The accepting side of a connection: handshake, dispatch, answers, streams with credit.

A node implements `Handler`; this module keeps what every handler needs out of it: who may speak,
how many requests may be in flight, cancellation when the asker gives up or goes away, and that a
request gets exactly one last answer. Requests over the bounds wait in the kernel's buffers: the
acceptor stops reading, and says every second that it is alive.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

from . import limits, wire
from .errors import (
    LimitExceeded,
    LognodeError,
    Unauthorized,
    to_wire,
)
from .frame import Frame
from .listener import Accepted, Closed, Listener
from .seats import Bounds
from .transport import FrameTransport
from .wire import Hello, Welcome

handshake_timeout_s: Final = 5.0
alive_every_s: Final = 1.0

Body = dict[str, Any]


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
) -> Listener:
    """Listen at `host:port` (0: any free port). Raises OSError when that is impossible.

    `on_closed` is told of each connection that had to go, or could not be accepted, and why.
    """

    def connect(accepted: Accepted) -> ServerConnection:
        return ServerConnection(
            accepted, handler, secret=secret, entropy=entropy, sit=accepted.sit,
            on_late=partial(accepted.tell, "late"),
        )  # fmt: skip

    listener = Listener(connect, bounds or Bounds(), on_closed)
    await listener.entrance.listen(host, port)
    return listener
