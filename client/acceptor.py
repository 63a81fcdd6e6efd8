"""The accepting side of a connection: handshake, dispatch, answers, streams with credit.

A node implements `Handler`; this module keeps what every handler needs out of it: who may speak,
how many requests may be in flight, cancellation when the asker gives up or goes away, and that a
request gets exactly one last answer. Requests over the bounds wait in the kernel's buffers: the
acceptor stops reading, and says every second that it is alive.

A `Meter` counts what each connection costs in memory, `FairTurns` what clients cost in time.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, Protocol

from . import limits, wire
from .errors import LimitExceeded, LognodeError, Overloaded, Unauthorized, Unavailable, to_wire
from .fair_turns import FairTurns
from .frame import Frame
from .listening import end_listening
from .meter import CHUNK_BYTES, Meter, NodeBudgets
from .transport import FrameTransport
from .wire import Hello, Welcome

handshake_timeout_s: Final = 5.0
alive_every_s: Final = 1.0
look_every_s: Final = 1.0
_CUT_CHARS: Final = 1_000
UNREAD: Final = "unread"
"""The reason of the end of a connection whose reader does not read."""

Body = dict[str, Any]
Weigh = Callable[[str, Body], int]
"""The bytes that the answer to a request may have at most. Must not raise, whatever the body is."""


Room = Callable[[], Awaitable[None]]
"""Wait until an answer may be made (see `Request.room`)."""


async def no_room() -> None:
    """For whoever needs no room: not over a connection."""


class Handler(Protocol):
    """What a listener does with its connections. All calls on the loop's thread."""

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        """Answer a hello, without the proof. Raise a LognodeError to refuse it."""

    def opened(self, connection: "ServerConnection") -> str | None:
        """The handshake is done. Return the principal whose budget pays for the connection; None:
        the address it comes from."""

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
        "_room",
        "_waiter",
        "answered",
        "body",
        "connection",
        "on_cancel",
        "op",
        "request_id",
        "size",
        "task",
        "weight",
    )

    def __init__(
        self, connection: "ServerConnection", message: Frame, weight: int, size: int
    ) -> None:
        self.connection = connection
        self.request_id, self.op, self.body, _ = message
        self.weight = weight
        """The bytes that its answer, or one push, may have at most."""
        self.size = size
        """What it costs as a request."""
        self.answered = False
        self.on_cancel: Callable[[], None] | None = None
        """Called when the asker gives up or goes away; a coroutine's task is cancelled besides."""
        self.task: asyncio.Future[Body | None] | None = None
        credit = self.body.get("credit")
        self._credit = min(credit if type(credit) is int else 0, limits.follow_credit_bytes_max)
        self._room = 0
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
        """The answer is an error. One over the frame limit is cut."""
        try:
            self._last(wire.ERROR, to_wire(error))
        except LimitExceeded:
            short = type(error)(error.message[:_CUT_CHARS] + "...", outcome=error.outcome)
            self._last(wire.ERROR, to_wire(short))

    def push(self, body: Body) -> None:
        """One part of a stream; takes its bytes from the credit, below zero for the last."""
        if not self.answered:
            self._credit -= self.connection._send(self.request_id, wire.PUSH, body)
        self.leave_room()

    def end(self, body: Body) -> None:
        """The stream is complete."""
        self._last(wire.END, body)

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
        budgets: NodeBudgets,
        weigh: Weigh,
    ) -> None:
        self.hello: Hello | None = None
        self._handler = handler
        self._budgets = budgets
        self._weigh = weigh
        self._secret = secret
        self._entropy = entropy
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._welcome: Welcome | None = None
        self._open = False
        self._requests: dict[int, Request] = {}
        self._backlog: deque[tuple[Frame, int]] = deque()
        """What was received and waits for room, or for a turn; and what it costs."""
        self._in_line = False
        """Whether `_turn` will be called."""
        self._turns: FairTurns | None = None
        self._meter: Meter
        self._alive: asyncio.TimerHandle | None = None
        self._too_late = self._loop.call_later(handshake_timeout_s, self._late)
        transport.on_frame = self._shake_hands
        transport.on_lost = self._lost
        transport.on_writable = self._drained
        transport.on_decoded = self._decoded

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

    @property
    def read_bytes(self) -> int:
        """How many bytes may be read from the socket at once."""
        return self._meter.read_bytes

    @property
    def held_bytes(self) -> tuple[int, int]:
        """What the connection costs in memory: bytes of answers, and of requests."""
        return self._meter.held

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
        self._admit()

    def begin(self) -> None:
        """The socket is connected: whoever it is, its address pays until the handshake is done."""
        self._meter = Meter(
            self._transport, self._budgets.clients, self._host, clock=self._loop.time,
            on_room=self._read_on,
        )  # fmt: skip

    def gone(self) -> None:
        """The socket is closed, and nothing is queued in it any more."""
        self._meter.close()

    @property
    def _host(self) -> str:
        return self.address.rpartition(":")[0]

    def _admit(self) -> None:
        self._too_late.cancel()
        self._open = True
        self._transport.trust()
        self._transport.on_frame = self._frame
        principal = self._handler.opened(self) or self._host
        is_peer = self.hello is not None and self.hello.role == "node"
        self._turns = None if is_peer else self._budgets.turns
        self._meter.move(self._budgets.peers if is_peer else self._budgets.clients, principal)

    def _late(self) -> None:
        self.refuse(Unauthorized(f"no handshake within {handshake_timeout_s:g} s"))

    # Requests.

    def _frame(self, message: Frame) -> None:
        turns = self._turns
        is_over = turns is not None and turns.is_over
        if self._backlog or is_over or not self._take(message):
            self._backlog.append((message, self._meter.keep(message)))
            if is_over:
                self._wait_for_turn()
            self._read_on()

    def _take(self, message: Frame) -> bool:
        """Serve the message; False if there is no room for a request now."""
        request_id, kind, body, _ = message
        if request_id == 0:
            self._one_way(kind, body)
        elif kind == wire.CANCEL:
            self._cancel(request_id)
        elif kind == wire.CREDIT:
            request, credit = self._requests.get(request_id), body.get("bytes")
            if request is not None and type(credit) is int and credit > 0:
                request.grant(credit)
        elif not self._meter.may_start or len(self._requests) >= limits.requests_in_flight_max:
            return False
        elif kind == wire.PING:
            self._transport.send(request_id, wire.OK, {})
        else:
            self._start(message)
        return True

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
        weight = self._weigh(message.kind, message.body)
        request = Request(self, message, weight, self._meter.keep(message, weight))
        self._requests[message.request_id] = request
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
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._raised(request, error)
        elif error is None and not task.cancelled() and (body := task.result()) is not None:
            request.reply(body)
        request.leave_room()

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

    def _send(self, request_id: int, kind: str, body: Body) -> int:
        size = self._transport.send(request_id, kind, body)
        self._meter.sent()
        return size

    def _finished(self, request: Request) -> None:
        if self._requests.pop(request.request_id, None) is None:
            return
        self._meter.drop(request.size)
        if request.task is None:  # else what it makes is there until its task has ended
            request.leave_room()
        if self._backlog:
            self._loop.call_soon(self._go_on)

    # When to serve, and when to read.

    def look(self) -> None:
        """End the connection if its reader does not read."""
        unread = None if self.lost is not None else self._meter.unread()
        if unread is not None:
            unsent, silent_s = unread
            self.abort(
                Unavailable(
                    f"{unsent} bytes of answers wait for a reader that has made no progress for "
                    f"{silent_s:.0f} s",
                    reason=UNREAD,
                )
            )

    def _drained(self) -> None:
        self._meter.sent()
        if self._backlog:
            self._go_on()

    def _go_on(self) -> None:
        """There may be room for what waits."""
        if self._turns is None:
            self._turn(inf)
        elif not self._in_line:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if self._turns is not None and not self._in_line:
            self._in_line = True
            self._turns.later(self._turn)

    def _turn(self, until: float) -> None:
        """Serve what waits until that time of the turns' clock, or until there is no room."""
        self._in_line = False
        turns = self._turns
        while self._backlog and self.lost is None:
            if turns is not None and turns.clock() >= until:
                self._wait_for_turn()
                return
            message, size = self._backlog[0]
            if not self._take(message):
                return
            self._meter.drop(size)
            self._backlog.popleft()
        self._read_on()

    def _decoded(self, incomplete: int) -> None:
        """All bytes that were received are decoded, up to a frame of that length."""
        if self.lost is None and not self._meter.may_read(incomplete):
            self._read_on()

    def _read_on(self) -> None:
        """Read, or say from time to time that this side is alive and does not read."""
        if self.lost is not None:
            return
        reads = not self._backlog and not self._meter.starves
        self._transport.read_on(reads)
        if reads and self._alive is not None:
            self._alive.cancel()
            self._alive = None
        elif not reads and self._alive is None:
            self._alive = self._loop.call_later(alive_every_s, self._say_alive)

    def _say_alive(self) -> None:
        self._alive = self._loop.call_later(alive_every_s, self._say_alive)
        if (
            self._open and self._transport.queued_bytes == 0
        ):  # else there is enough to read for who listens
            self._transport.send(0, wire.ALIVE, {})

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


def _small(_op: str, _body: Body) -> int:
    return 0


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    secret: bytes | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    budgets: NodeBudgets | None = None,
    weigh: Weigh = _small,
) -> "Listener":
    """Listen at `host:port` (0: any free port). Raises OSError when that is impossible.

    The listeners of a node share `budgets`. Without `weigh` every answer is taken for a small one.
    """
    listener = Listener(handler, secret, entropy, budgets or NodeBudgets(), weigh)
    loop = asyncio.get_running_loop()
    listener.server = await loop.create_server(listener.accept, host, port)
    listener.look()
    return listener


class Listener:
    """The open connections of one listening socket, at most `connections_max`."""

    def __init__(
        self,
        handler: Handler,
        secret: bytes | None,
        entropy: Callable[[int], bytes],
        budgets: NodeBudgets,
        weigh: Weigh,
    ) -> None:
        self.server: asyncio.Server | None = None
        self.budgets = budgets
        self._handler = handler
        self._secret = secret
        self._entropy = entropy
        self._weigh = weigh
        self._open: set[_Accepted] = set()
        self._look: asyncio.TimerHandle | None = None
        self.chunk = memoryview(bytearray(CHUNK_BYTES))
        """Where the bytes of one read are, until they are decoded."""
        self.closed = False

    @property
    def port(self) -> int:
        """The port that is listened at."""
        if self.server is None:
            return 0
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """Connections open, in handshake or after it."""
        return len(self._open)

    def accept(self) -> FrameTransport:
        """The protocol factory that asyncio calls for each connection."""
        accepted = _Accepted(self, self._open)
        connection = ServerConnection(
            accepted, self._handler, secret=self._secret, entropy=self._entropy,
            budgets=self.budgets, weigh=self._weigh,
        )  # fmt: skip
        accepted.connection = connection
        return accepted

    def look(self) -> None:
        """End the connections whose readers do not read; again every second."""
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(look_every_s, self.look)
        self.budgets.look(loop.time())
        for accepted in list(self._open):
            if accepted.connection is not None:
                accepted.connection.look()

    async def close(self) -> None:
        """Stop listening, close every connection; returns within two seconds."""
        self.closed = True
        if self._look is not None:
            self._look.cancel()
        if self.server is not None:
            await end_listening(self.server)
        closing = [accepted for accepted in self._open if accepted.connection is not None]
        for accepted in closing:
            accepted.close(Unavailable("this node stops", reason="stopping"))
        if closing:
            await asyncio.gather(*(accepted.wait_closed(1.0) for accepted in closing))


class _Accepted(FrameTransport, asyncio.BufferedProtocol):
    """A transport that its listener counts. It reads no more at once than its meter allows, into
    memory that the connections of the listener share."""

    def __init__(self, listener: Listener, among: set["_Accepted"]) -> None:
        super().__init__()
        self.connection: ServerConnection | None = None
        self._listener = listener
        self._among = among

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.connection is not None:
            self.connection.begin()
        if self._listener.closed:  # it was accepted in the very moment of that
            self.abort(Unavailable("this node stops", reason="stopping"))
            return
        if len(self._among) >= limits.connections_max:
            self.refuse(
                Overloaded(f"this node has {limits.connections_max} connections", retry_after=1.0)
            )
            return
        self._among.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        wanted = 0 if self.connection is None else self.connection.read_bytes
        return self._listener.chunk[:wanted]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._listener.chunk[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._among.discard(self)
        super().connection_lost(exc)
        if self.connection is not None:
            self.connection.gone()
