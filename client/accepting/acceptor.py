"""The accepting side of a connection: dispatch, answers, streams with credit.

A node implements `Handler`; this module takes over the needs of every handler. When the handshake
is done (`server_handshake`), it checks each body by its operation's row of the table, bounds the
requests in flight, cancels a request when its sender gives up or leaves, and sends exactly one last
answer to each request. Requests over the bounds wait in the kernel's buffers: the acceptor stops
reading, and says every second that it is alive.

The rights of a connection are its `Access`. Each request and message is authorised here, by its
operation's row of the table, and nowhere else.

A `Meter` counts the memory of each connection, `FairTurns` the time of clients.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ..fair_turns import OWN_TURNS, Share, Turns
from ..loopback import is_loopback
from ..protocol import Operation, frames, limits, name_of
from ..protocol.certificate import Certificate
from ..protocol.errors import (
    InvalidArgument,
    LognodeError,
    NotFound,
    RemoteProtocolError,
    Unauthorized,
    Unavailable,
    Unsupported,
    to_wire,
)
from ..protocol.frame import Frame
from ..protocol.principal import Principal, anonymous
from ..protocol.wire import Hello
from ..transport import FrameTransport
from .abandoned import Abandoned
from .access import Access
from .handler import Body, Handler, ListenTls, Refused
from .handshake_turns import HandshakeTurns
from .listener import Accepted, Closed, Listener
from .meter import Meter, NodeBudgets
from .request import Request
from .seats import Bounds
from .server_handshake import ServerHandshake

alive_every_s: Final = 1.0
UNREAD: Final = "unread"
"""The reason with which a connection ends when its peer does not read."""


class ServerConnection:
    """One accepted connection. `hello` identifies the dialler, once `Handler.opened` was called."""

    def __init__(
        self,
        transport: FrameTransport,
        handler: Handler,
        *,
        secret: bytes | None,
        tls: ListenTls | None,
        entropy: Callable[[int], bytes],
        budgets: NodeBudgets,
        abandoned: Abandoned,
        handshakes: HandshakeTurns,
        sit: Callable[[], None],
        on_late: Callable[[], None],
        on_refused: Refused,
    ) -> None:
        """Take the listener's parts: `abandoned` ends abandoned requests; `handshakes` gives the
        handshake its turns; `sit` takes a seat among the connections whose handshake is done, or
        raises Overloaded; `on_late` is called for a handshake that takes too long; `on_refused`
        for a connection that ended before its handshake was done."""
        self.hello: Hello | None = None
        self._tls = tls
        self._on_refused = on_refused
        self._handler = handler
        self._budgets = budgets
        self._abandoned = abandoned
        self._handshakes = handshakes
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._open = False
        self.share: Share | None = None
        """The principal's share of the loop's time; None for a node, and during the handshake."""
        self.access: Access | None = None
        """The rights of the other side; None: all."""
        self._principal: Principal | None = None
        self._requests: dict[int, Request] = {}
        self._given_up: set[Request] = set()
        """Abandoned requests whose work has not ended."""
        self._is_gone = False
        """Whether the socket is closed."""
        self._backlog: deque[tuple[Frame, int]] = deque()
        """Received messages that wait for room, with their memory."""
        self._meter: Meter
        self._alive: asyncio.TimerHandle | None = None
        handshake = ServerHandshake(
            self, transport, handler, secret=secret, tls=tls, entropy=entropy, sit=sit,
            admit=self._admit, on_late=on_late,
        )  # fmt: skip
        self._handshake: ServerHandshake | None = handshake
        """None once the handshake is done, or the connection is lost: leave no cycle."""
        transport.on_frame = handshake.take
        transport.on_lost = self._lost
        transport.on_writable = self._drained
        transport.on_decoded = self._decoded

    def __repr__(self) -> str:
        who = "?" if self.hello is None else f"{self.hello.role} {self.hello.node or ''}".strip()
        if self.certificate is not None:
            who += f" ({self.certificate.holder})"
        return f"<ServerConnection from {who} at {self.address}>"

    @property
    def address(self) -> str:
        """`host:port` of the other side."""
        return self._transport.peer_address

    @property
    def host(self) -> str:
        """The host of `address`."""
        return self.address.rpartition(":")[0]

    @property
    def certificate(self) -> Certificate | None:
        """The verified certificate of the other side; None without TLS or without certificate."""
        channel = self._transport.channel
        return None if channel is None else channel.certificate

    @property
    def principal(self) -> Principal:
        """The principal of the other side; anonymous until the handshake is done."""
        return self._principal or anonymous(self.host)

    @property
    def is_private(self) -> bool:
        """Whether nobody else can read the connection: it is inside TLS, or on this machine."""
        return self._transport.channel is not None or is_loopback(self.host)

    @property
    def lost(self) -> LognodeError | None:
        """The error that ended the connection, None while it is open."""
        return self._transport.lost

    @property
    def in_flight(self) -> int:
        """The number of requests being served."""
        return len(self._requests)

    @property
    def busy(self) -> bool:
        """Whether a request is being served or waits to be served."""
        return bool(self._requests or self._backlog)

    @property
    def awaits_answers(self) -> bool:
        """Whether a request other than a stream is being served."""
        return any(not request.operation.streams for request in self._requests.values())

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
        """Bytes handed to the kernel."""
        return self._transport.bytes_out

    @property
    def queued_bytes(self) -> int:
        """Bytes of answers that the kernel has not taken yet."""
        return self._transport.queued_bytes

    @property
    def read_bytes(self) -> int:
        """The bytes that may be read from the socket at once."""
        return self._meter.read_bytes

    @property
    def held_bytes(self) -> tuple[int, int]:
        """The memory of the connection: bytes of answers, and of requests."""
        return self._meter.held

    @property
    def has_more(self) -> bool:
        """Whether received bytes of later frames wait to be decoded."""
        return self._transport.has_more

    def send(self, operation: Operation, body: Body) -> None:
        """Send a one-way message to the dialler."""
        self._transport.send(0, operation.number, body)

    def refuse(self, error: LognodeError) -> None:
        """Send the error to the other side, then close."""
        self._transport.refuse(error)

    def recheck(self) -> None:
        """End the connection if TLS no longer allows its hello."""
        if self._tls is None or self.hello is None:
            return
        try:
            self._tls.check(self.hello, self.certificate)
        except LognodeError as error:
            self.refuse(error)

    def close(self) -> None:
        """Send the queued bytes, then close; requests in flight are abandoned."""
        self._transport.close()

    def abort(self, error: LognodeError) -> None:
        """Close at once, with the given reason."""
        self._transport.abort(error)

    async def wait_closed(self, timeout_s: float = 1.0) -> None:
        """Wait until the socket is closed, by force after `timeout_s`."""
        await self._transport.wait_closed(timeout_s)

    # Beginning and end.

    def begin(self) -> None:
        """Begin once the socket is connected. The address pays until the handshake is done."""
        self._meter = Meter(
            self._transport, self._budgets.clients, self.host, clock=self._loop.time,
            on_room=self._go_on,
        )  # fmt: skip
        self._transport.turns = self._handshakes.of(self.host)

    def gone(self) -> None:
        """Free the meter once the socket is closed and holds nothing. Memory of abandoned
        requests stays counted until their work has ended."""
        self._is_gone = True
        if self._given_up:
            self._meter.leave()
        else:
            self._meter.close()

    def _admit(self, access: Access | None) -> None:
        """Serve requests from now on: the handshake is done."""
        self._handshake = None
        self.access = access
        self._open = True
        self._transport.trust()
        self._transport.on_frame = self._frame
        hello = self.hello
        if hello is not None and hello.role == "node" and hello.node is not None:
            self.share = None
            self.take_turns(OWN_TURNS)
            self._principal = self._handler.opened(self)
            self._meter.move(self._budgets.peers, self.principal.name)
            return
        self._principal = self._handler.opened(self)
        # A node that asks to join is not admitted yet: its address pays, like a client's.
        name = self.host if hello is not None and hello.role == "node" else self.principal.name
        self._transport.turns = self.share = self._budgets.turns.share(name)
        self.share.spent(self._transport.turns_s)  # now the payer of the handshake is known
        self._meter.move(self._budgets.clients, name)

    def take_turns(self, turns: Turns) -> None:
        """Use these turns from now on. Only for a node: clients have the turns of their share."""
        self._transport.turns = turns

    # Requests.

    def _frame(self, message: Frame) -> None:
        if self._backlog or not self._take(message):
            self._backlog.append((message, self._meter.keep(message.weight)))
            self._read_on()

    def _take(self, message: Frame) -> bool:
        """Serve the message; return False when there is no room for a request now."""
        request_id, kind, body, *_ = message
        if request_id == 0:
            self._one_way(kind, body)
        elif kind == frames.CANCEL:
            self._cancel(request_id)
        elif kind == frames.CREDIT:
            self._grant(request_id, body)
        elif not self._may_serve:
            return False
        elif kind == frames.PING:
            self._transport.send(request_id, frames.OK, {})
        else:
            self._start(message)
        return True

    @property
    def _may_serve(self) -> bool:
        """Whether one more request may be served. Abandoned requests of the principal count
        until their work has ended. Otherwise a connection may always serve a single request,
        since its end makes room."""
        if not self._meter.may_start or len(self._requests) >= limits.requests_in_flight_max:
            return False
        given_up = 0 if self._abandoned.idle else self._abandoned.count(self.principal.name)
        if given_up and len(self._requests) + given_up >= limits.requests_in_flight_max:
            self._abandoned.wait(self.principal.name, self._go_on)
            return False
        return not self._requests or self._meter.has_room()

    def _one_way(self, kind: int, body: Body) -> None:
        """Hand over a one-way message. A malformed message ends its connection."""
        operation = None
        try:
            operation = self._handler.operation(self, kind)
            if operation.answer is None:
                checked = operation.request.check(body)
                if self.access is not None:
                    self.access.authorise(operation, checked)
                self._handler.message(self, operation, checked)
        except (Unsupported, NotFound):
            return  # a newer program may send more, and a range may be gone
        except InvalidArgument as error:
            told = f"malformed {name_of(kind)} message: {error.message}"
            self.refuse(RemoteProtocolError(told))
        except LognodeError as error:
            self.refuse(error)
        except Exception as error:
            self._handler.failed(kind, error)

    def _grant(self, request_id: int, body: Body) -> None:
        try:
            credit_bytes = frames.CREDIT_BODY.check(body)["bytes"]
        except InvalidArgument as error:
            self.refuse(RemoteProtocolError(f"malformed credit message: {error.message}"))
            return
        request = self._requests.get(request_id)
        if request is not None:
            request.grant(credit_bytes)

    def _checked(self, message: Frame) -> Request | None:
        """Return the request of a frame, or None when it was refused."""
        request_id, kind, body, _, memory = message
        try:
            operation = self._handler.operation(self, kind)
            if operation.answer is None:
                raise Unsupported(f"{operation} is a one-way message; send it with request id 0")
            checked = operation.request.check(body)
            allowed = None if self.access is None else self.access.authorise(operation, checked)
            return Request(self, operation, request_id, checked, memory, allowed)
        except LognodeError as error:
            self._send(request_id, frames.ERROR, to_wire(error))
            self._handler.refused(self, kind, error)
            return None

    def _start(self, message: Frame) -> None:
        if message.request_id in self._requests:
            self.refuse(
                Unauthorized(
                    f"request id {message.request_id} is in use; give each request of the "
                    "connection an id of its own"
                )
            )
            return
        request = self._checked(message)
        if request is None:
            return
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
            del answer  # its error may have this frame in its traceback: leave no cycle

    def _served(self, request: Request, task: "asyncio.Future[Body | None]") -> None:
        # An exception refers to its frames, and they refer to the request: leave no cycle.
        request.task = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._raised(request, error)
        elif error is None and not task.cancelled() and (body := task.result()) is not None:
            request.reply(body)
        request.leave_room()
        self.work_ended(request)

    def _raised(self, request: Request, error: Exception) -> None:
        if isinstance(error, LognodeError):
            request.fail(error)
            return
        # The progress of the request is unknown.
        request.fail(LognodeError("internal error; see the node's log", outcome="unknown"))
        self._handler.failed(request.operation.number, error)

    def _cancel(self, request_id: int) -> None:
        request = self._requests.get(request_id)
        if request is not None:
            del self._requests[request_id]
            self._give_up(request)

    def _give_up(self, request: Request) -> None:
        """Abandon a request: nobody waits for the answer. The end of its work makes room."""
        request.give_up()
        self._given_up.add(request)
        self._abandoned.add(self.principal.name, request)

    def work_ended(self, request: Request) -> None:
        """Note that the work of a request has ended, abandoned or not."""
        if request not in self._given_up:
            return
        self._given_up.remove(request)
        self._abandoned.ended(self.principal.name, request)
        request.leave_room()
        self._meter.drop(request.size)
        if self._backlog:
            self._loop.call_soon(self._go_on)
        if self._is_gone and not self._given_up:
            self._meter.close()

    def _send(self, request_id: int, kind: int, body: Body) -> int:
        # The answer to the only request leaves at once: no other answer can share the write.
        now = kind == frames.OK and len(self._requests) == 1 and not self._backlog
        size = self._transport.send(request_id, kind, body, now=now)
        self._meter.sent()
        return size

    def finished(self, request: Request) -> None:
        """Note that the last frame of the request's answer was sent."""
        if self._requests.pop(request.request_id, None) is None:
            return
        self._meter.drop(request.size)
        if request.task is None:  # else its result stays until its task has ended
            request.leave_room()
        if self._backlog:
            self._loop.call_soon(self._go_on)

    # When to serve, and when to read.

    def look(self) -> None:
        """End the connection if its peer does not read."""
        unread = None if self.lost is not None else self._meter.unread()
        if unread is not None:
            unsent, silent_s = unread
            self.abort(
                Unavailable(
                    f"the client left {unsent} bytes of answers unread and made no progress "
                    f"for {silent_s:.0f} s; read the answers",
                    reason=UNREAD,
                )
            )

    def _drained(self) -> None:
        self._meter.sent()
        if self._backlog:
            self._go_on()

    def _go_on(self) -> None:
        """Serve waiting messages: there may be room."""
        while self._backlog and self.lost is None:
            message, size = self._backlog[0]
            if not self._take(message):
                return
            self._meter.drop(size)
            self._backlog.popleft()
        self._read_on()

    def _decoded(self, incomplete: int) -> None:
        """Take room for the incomplete frame of that length: all else is decoded."""
        if self.lost is None and not self._meter.may_read(incomplete):
            self._read_on()

    def _read_on(self) -> None:
        """Read, or else send a sign of life from time to time."""
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
        if self._open and self._transport.queued_bytes == 0:  # else the peer has enough to read
            self._transport.send(0, frames.ALIVE, {})

    def _lost(self, error: LognodeError) -> None:
        if self._handshake is not None:
            self._handshake.stop()
            self._handshake = None
        if self._alive is not None:
            self._alive.cancel()
        for _, size in self._backlog:
            self._meter.drop(size)
        self._backlog.clear()
        self._abandoned.leave(self.principal.name, self._go_on)
        requests, self._requests = self._requests, {}
        for request in requests.values():
            self._give_up(request)
        if self._open:
            self._handler.closed(self, error)
            return
        self._on_refused(self, error)
        if self._tls is not None:
            self._tls.refused(self.address, error)


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    secret: bytes | None = None,
    tls: ListenTls | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    budgets: NodeBudgets | None = None,
    bounds: Bounds | None = None,
    on_closed: Closed = lambda reason, address: None,
    on_refused: Refused = lambda connection, error: None,
) -> Listener:
    """Listen at `host:port` (0: any free port). Raises OSError when that is impossible.

    The listeners of a node share `budgets`. `on_closed` gets the reason and address of each
    connection that was closed for a bound, or could not be accepted; `on_refused` gets each
    connection that ended before its handshake was done.
    """
    shared = budgets or NodeBudgets()

    def connect(accepted: Accepted) -> ServerConnection:
        return ServerConnection(
            accepted, handler, secret=secret, tls=tls, entropy=entropy, budgets=shared,
            abandoned=listener.abandoned, handshakes=listener.handshakes, sit=accepted.sit,
            on_late=partial(accepted.tell, "late"), on_refused=on_refused,
        )  # fmt: skip

    listener = Listener(
        connect, shared, bounds or Bounds(), on_closed, None if tls is None else tls.channel
    )
    await listener.entrance.listen(host, port)
    listener.look()
    return listener
