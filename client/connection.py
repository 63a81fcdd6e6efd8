"""The dialling side of a connection: requests, streams of pushes, one-way messages.

Used by the SDK for clients and by nodes for their peers. When the caller of a request gives up, the
request is cancelled on the other side too. A connection ends when something is awaited and nothing
arrives, not even the answer to a ping. So a machine that lost its power looks like one that closed
its socket.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .loopback import is_loopback
from .protocol import Operation, errors, frames, limits, name_of, wire
from .protocol.errors import (
    InvalidArgument,
    LognodeError,
    RemoteProtocolError,
    Timeout,
    Unauthorized,
    Unavailable,
)
from .protocol.frame import Frame
from .protocol.tls import Channel, DialTls
from .protocol.wire import Hello, Welcome
from .transport import FrameTransport

if TYPE_CHECKING:
    from .protocol.certificate import Certificate  # this import takes long

ping_after_s: Final = 1.0
dead_after_s: Final = 2.5
"""While something is awaited, silence of `ping_after_s` sends a ping, and silence of
`dead_after_s` ends the connection."""
close_timeout_s: Final = 1.0

Body = dict[str, Any]
MessageHandler = Callable[["Connection", int, Body], None]


class Connection:
    """A dialled connection after its handshake. All calls run on the loop's thread.

    `on_message` gets the one-way frames of the acceptor. `on_lost` gets the reason of the end,
    once.
    """

    def __init__(self, transport: FrameTransport, hello: Hello, welcome: Welcome) -> None:
        self.hello = hello
        self.welcome = welcome
        self.on_message: MessageHandler | None = None
        self.on_lost: Callable[[Connection, LognodeError], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._pending: dict[int, _Answer | Stream] = {}
        self._next_id = 1
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._always_ping = False
        self._ping_id = 0
        self._watch: asyncio.TimerHandle | None = None
        transport.on_frame = self._frame
        transport.on_lost = self._lost
        transport.on_writable = self._wake

    def __repr__(self) -> str:
        state = "lost" if self.lost else "open"
        return f"<Connection to node {self.welcome.node} at {self.address}, {state}>"

    @property
    def address(self) -> str:
        """`host:port` of the other side."""
        return self._transport.peer_address

    @property
    def certificate(self) -> "Certificate | None":
        """The verified certificate of the other side; None without TLS."""
        channel = self._transport.channel
        return None if channel is None else channel.certificate

    @property
    def lost(self) -> LognodeError | None:
        """The error that ended the connection, None while it is open."""
        return self._transport.lost

    @property
    def in_flight(self) -> int:
        """The number of requests and streams without their last answer."""
        return len(self._pending)

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
        """Sent bytes that the kernel has not taken yet."""
        return self._transport.queued_bytes

    def ping_when_idle(self) -> None:
        """Ping a silent connection also while nothing is awaited."""
        self._always_ping = True
        self._start_watch()

    def send(self, operation: Operation, body: Body, *, now: bool = False) -> None:
        """Send a one-way message, without a promise that it arrives. See `queued_bytes`.

        `now`: write at once, because nothing else in this turn could share the write. Only the
        acceptor checks the body.
        """
        self._transport.send(0, operation.number, body, now=now)

    async def request(
        self, operation: Operation, body: Body, *, deadline: float | None = None
    ) -> Body:
        """Send a request, and return the body of the answer, checked by the operation's row of the
        table.

        `deadline` is a time of the running loop; after it, raises Timeout. Raises InvalidArgument
        for a body that the operation forbids, the error that the other side answered,
        RemoteProtocolError for an answer that breaks the protocol, and Unavailable when the
        connection ends first (outcome `unknown` once the request may have left).
        """
        operation.request.check(body)
        if not self._has_room():
            await self._room(deadline)
        self._check_open()
        request_id = self._send_request(operation.number, body)
        future: asyncio.Future[Body] = self._loop.create_future()
        self._pending[request_id] = _Answer(operation, future)
        self._start_watch()
        timer = None
        if deadline is not None:
            timer = self._loop.call_at(deadline, self._expire, future, operation)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(request_id)
            del future  # the exception refers to this frame: break the cycle

    async def stream(self, operation: Operation, body: Body, *, credit_bytes: int) -> "Stream":
        """Open a stream of pushes; `credit_bytes` bounds the unread bytes.

        The body carries the credit as `credit`, and reading pushes renews it. Raises the errors of
        `request` before anything is sent; the stream raises the rest.
        """
        body = {**body, "credit": credit_bytes}
        operation.request.check(body)
        if not self._has_room():
            await self._room(None)
        self._check_open()
        request_id = self._send_request(operation.number, body)
        stream = Stream(self, operation, request_id, credit_bytes)
        self._pending[request_id] = stream
        self._start_watch()
        return stream

    def close(self) -> None:
        """Send the queued bytes, then close. Requests in flight raise Unavailable."""
        self._transport.close()

    def abort(self, error: LognodeError) -> None:
        """Close at once, with the given reason."""
        self._transport.abort(error)

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, by force after a second."""
        await self._transport.wait_closed(close_timeout_s)

    def _send_request(self, kind: int, body: Body) -> int:
        request_id = self._next_id
        self._transport.send(request_id, kind, body)
        self._next_id += 1
        return request_id

    def _check_open(self) -> None:
        if self.lost is not None:
            raise Unavailable(f"connection to {self.address} has ended", reason=str(self.lost))

    def _has_room(self) -> bool:
        return self._transport.writable and len(self._pending) < limits.requests_in_flight_max

    async def _room(self, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                while not self._has_room() and self.lost is None:
                    waiter: asyncio.Future[None] = self._loop.create_future()
                    self._waiting.append(waiter)
                    await waiter
        except TimeoutError:
            raise Timeout(
                f"{self.address} takes no more requests on this connection", outcome="not_applied"
            ) from None

    def _wake(self) -> None:
        while self._waiting and (self._has_room() or self.lost is not None):
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                if self.lost is None:
                    return  # the next answer wakes the next request

    def _expire(self, future: "asyncio.Future[Body]", operation: Operation) -> None:
        if not future.done():
            future.set_exception(Timeout(f"{self.address} did not answer {operation} in time"))

    def _forget(self, request_id: int) -> None:
        """Forget a request whose caller has left; cancel it on the other side if no answer has
        come."""
        if self._pending.pop(request_id, None) is not None and self.lost is None:
            self._transport.send(request_id, frames.CANCEL, {})
        self._wake()

    def _frame(self, message: Frame) -> None:
        request_id, kind, body, size, _ = message
        if request_id == 0:
            if kind == frames.ERROR:
                self._transport.close(errors.from_wire(body))
            elif kind != frames.ALIVE and self.on_message is not None:
                self.on_message(self, kind, body)
            return
        if request_id == self._ping_id:
            self._ping_id = 0
            return
        waiting = self._pending.get(request_id)
        if waiting is None:
            return  # the answer to a request whose caller gave up
        if isinstance(waiting, Stream):
            if kind != frames.PUSH:
                del self._pending[request_id]
            waiting.take(kind, body, size)
            return
        del self._pending[request_id]
        waiting.take(kind, body)

    def _lost(self, error: LognodeError) -> None:
        if self._watch is not None:
            self._watch.cancel()
        pending, self._pending = self._pending, {}
        idle = error.fields.get("reason") == errors.IDLE
        for waiting in pending.values():
            reason = Unavailable(
                f"connection to {self.address} ended before the answer: {error}",
                outcome="not_applied" if idle else "unknown",
                reason=errors.IDLE if idle else str(error),
            )
            waiting.fail(reason)
        self._wake()
        if self.on_lost is not None:
            self.on_lost(self, error)

    def _start_watch(self) -> None:
        if self._watch is None and self.lost is None:
            self._watch = self._loop.call_later(ping_after_s, self._look, self._loop.time())

    def _look(self, since: float) -> None:
        """Check that something has arrived since `since`, when something was already awaited:
        ping, or abort."""
        self._watch = None
        if self.lost is not None or not (self._pending or self._always_ping):
            return
        now = self._loop.time()
        silent = now - max(since, self._transport.last_in_s)
        if silent >= dead_after_s:
            self.abort(
                Unavailable(
                    f"{self.address} sent nothing for the allowed time",
                    reason=f"silent for {silent:.1f} s",
                )
            )
            return
        if silent >= ping_after_s * 0.9 and self._ping_id == 0:
            self._ping_id = self._send_request(frames.PING, {})
        self._watch = self._loop.call_later(ping_after_s / 2, self._look, since)


class _Answer:
    """The caller that waits for the answer to one request."""

    __slots__ = ("_future", "_operation")

    def __init__(self, operation: Operation, future: "asyncio.Future[Body]") -> None:
        self._operation = operation
        self._future = future

    def take(self, kind: int, body: Body) -> None:
        """Handle the last frame of the request."""
        if self._future.done():
            return
        if kind != frames.OK:
            refusal = errors.from_wire(body) if kind == frames.ERROR else _no_answer(kind)
            self._future.set_exception(refusal)
            return
        try:
            self._future.set_result(self._operation.check_answer(body))
        except LognodeError as error:
            self._future.set_exception(errors.bare(error))

    def fail(self, error: LognodeError) -> None:
        """Handle the end of the connection."""
        if not self._future.done():
            self._future.set_exception(error)


def _no_answer(kind: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"the answer to a request has the unexpected frame {name_of(kind)!r}"
    )


class Stream:
    """The pushes of one request, in order; ends after the acceptor's `end`.

    Reading a push returns its bytes as credit, so a slow reader slows the sender and holds at most
    `credit_bytes` and one frame. Raises the error that ended the stream early.
    """

    def __init__(
        self, connection: Connection, operation: Operation, request_id: int, credit_bytes: int
    ) -> None:
        self.end: Body | None = None
        self._operation = operation
        self._connection = connection
        self._request_id = request_id
        self._credit_bytes = credit_bytes
        self._queue: deque[tuple[Body, int]] = deque()
        self._queued_bytes = 0
        self._read_bytes = 0
        self._error: LognodeError | None = None
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Body:
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        body, size = self._queue.popleft()
        self._queued_bytes -= size
        self._read_bytes += size
        # Return credit in a few large steps: a frame for each push would double the traffic.
        if self._read_bytes * 4 >= self._credit_bytes and not self._ended:
            self._connection._transport.send(
                self._request_id, frames.CREDIT, {"bytes": self._read_bytes}
            )
            self._read_bytes = 0
        return body

    def cancel(self) -> None:
        """End the stream from this side; unread pushes are dropped."""
        self._ended = True
        self._queue.clear()
        self._connection._forget(self._request_id)
        self._notify()

    def take(self, kind: int, body: Body, size: int) -> None:
        """Handle a frame for this stream."""
        if kind == frames.PUSH:
            try:
                self._queue.append((self._operation.check_answer(body), size))
            except LognodeError as error:
                self._connection.abort(error)
                return
            self._queued_bytes += size
            if self._queued_bytes > self._credit_bytes + limits.frame_bytes_max:
                self._connection.abort(
                    RemoteProtocolError("the node pushed more bytes than the client had granted")
                )
        elif kind == frames.END:
            self._ended, self.end = True, body
        elif kind == frames.ERROR:
            self._error = errors.from_wire(body)
        else:
            self._error = _no_answer(kind)
        self._notify()

    def fail(self, error: LognodeError) -> None:
        """Handle the end of the connection."""
        if not self._ended:
            self._error = error
        self._notify()

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def dial(
    host: str,
    port: int,
    *,
    role: wire.Role = "client",
    cluster: str | None = None,
    node: int | None = None,
    incarnation: int = 0,
    secret: bytes | None = None,
    token: str | None = None,
    tls: DialTls | None = None,
    timeout_s: float = 5.0,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Connection:
    """Connect and shake hands, inside TLS where `tls` is given.

    Raises Unavailable when nobody answers at that address within `timeout_s` or the address cannot
    be encoded; Unauthorized when one side refuses the other's certificate or token, does not hold
    the other's secret or is of another cluster; InvalidArgument for a token that would travel
    unencrypted to another machine; RemoteProtocolError when the other side is not a lognode or does
    not speak TLS; Unsupported when the sides share no protocol version.
    """
    hello = Hello(
        role=role, nonce=entropy(wire.nonce_bytes), cluster=cluster, node=node,
        incarnation=incarnation, token=token,
    )  # fmt: skip
    channel = None if tls is None else tls.channel(host)
    try:
        async with asyncio.timeout(timeout_s):
            transport = await _connected(host, port, channel)
            welcome = await _shake_hands(_Greeting(transport), hello, secret)
    except TimeoutError:
        reason = f"the node did not answer within {timeout_s:g} s"
        raise Unavailable(f"{host}:{port}: {reason}", reason=reason) from None
    except OSError as error:
        # asyncio's own text for a refused connection repeats the address instead of the reason.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise Unavailable(f"{host}:{port}: {reason}", reason=reason) from None
    transport.trust()
    return Connection(transport, hello, welcome)


async def _connected(host: str, port: int, channel: Channel | None) -> FrameTransport:
    """Open a TCP connection. Raises OSError; Unavailable for an address that cannot be encoded."""
    loop = asyncio.get_running_loop()
    try:
        _, transport = await loop.create_connection(lambda: FrameTransport(channel), host, port)
    except (ValueError, OverflowError) as error:  # of the resolver; UnicodeError is a ValueError
        reason = f"the address is not valid Unicode: {error}"
        raise Unavailable(f"{host!r} port {port}: {reason}", reason=reason) from None
    return transport


async def _shake_hands(greeting: "_Greeting", hello: Hello, secret: bytes | None) -> Welcome:
    transport = greeting.transport
    try:
        _check_may_tell(hello, transport)
        transport.send(0, frames.HELLO, hello.to_body())
        welcome = Welcome.from_body(await greeting.answer(frames.WELCOME))
        if hello.role == "node" and (secret is not None or welcome.wants_proof):
            binding = b"" if transport.channel is None else transport.channel.binding
            if secret is None or not welcome.wants_proof:
                raise Unauthorized(
                    f"{'this node' if secret is None else 'the other node'} has no secret, and "
                    f"{'the other node' if secret is None else 'this node'} has a secret. Start "
                    "every node with the same --secret-file"
                )
            proof = wire.prove(secret, "dialler", hello, welcome, binding)
            transport.send(0, frames.PROOF, {"proof": proof})
            theirs = (await greeting.answer(frames.PROOF)).get("proof")
            wire.check_proof(secret, "acceptor", hello, welcome, theirs, binding)
        if hello.cluster is not None and welcome.cluster not in (None, hello.cluster):
            raise Unauthorized(
                f"the node is of cluster {welcome.cluster}; this side is of cluster "
                f"{hello.cluster}: check the address"
            )
        return welcome
    except BaseException:
        transport.abort(Unavailable("handshake failed", reason="handshake"))
        raise


def _check_may_tell(hello: Hello, transport: FrameTransport) -> None:
    """Raise InvalidArgument for a token that others could read on its way."""
    host = transport.peer_address.rpartition(":")[0]
    if hello.token is not None and transport.channel is None and not is_loopback(host):
        raise InvalidArgument(
            f"the token for {transport.peer_address} needs an encrypted connection; use TLS "
            "(lognodes:// instead of lognode://), or leave the token out", what="token",
        )  # fmt: skip


class _Greeting:
    """The answers of an acceptor before the connection is open, in order."""

    def __init__(self, transport: FrameTransport) -> None:
        self.transport = transport
        self._answers: asyncio.Queue[Frame | LognodeError] = asyncio.Queue()
        transport.on_frame = transport.on_lost = self._answers.put_nowait

    async def answer(self, kind: int) -> Body:
        """Return the body of the next frame. Raises the acceptor's error, or the reason of the
        connection's end."""
        message = await self._answers.get()
        if isinstance(message, LognodeError):
            raise message
        if message.kind == frames.ERROR:
            raise errors.from_wire(message.body)
        if message.kind != kind:
            raise RemoteProtocolError(
                f"{self.transport.peer_address} is not a lognode listener; check the address"
            )
        return message.body
