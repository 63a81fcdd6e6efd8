"""The accepting side of a handshake: hello, welcome, proofs, and the decision to believe.

A dialler without a secret to prove is believed by the handler's word alone. A node of a cluster
with a secret proves first: what the acceptor says before tells a stranger nothing of the secret.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ..protocol import frames, wire
from ..protocol.errors import LognodeError, Unauthorized, Unavailable
from ..protocol.frame import Frame
from ..protocol.wire import Hello, Welcome
from ..transport import FrameTransport
from .access import Access
from .handler import Handler, ListenTls

if TYPE_CHECKING:
    from .acceptor import ServerConnection

handshake_timeout_s: Final = 5.0


class ServerHandshake:
    """The handshake of one accepted connection. It ends by `admit`, or the connection ends."""

    def __init__(
        self,
        connection: "ServerConnection",
        transport: FrameTransport,
        handler: Handler,
        *,
        secret: bytes | None,
        tls: ListenTls | None,
        entropy: Callable[[int], bytes],
        sit: Callable[[], None],
        admit: Callable[[Access | None], None],
        on_late: Callable[[], None],
    ) -> None:
        """`sit` takes a seat among the connections whose handshake is done, or raises Overloaded;
        `admit` gets the dialler's rights; `on_late` is called for a handshake that takes too
        long."""
        self._connection = connection
        self._transport = transport
        self._handler = handler
        self._secret = secret
        self._tls = tls
        self._entropy = entropy
        self._sit = sit
        self._admit = admit
        self._on_late = on_late
        self._shared: tuple[Hello, Welcome] | None = None
        """What both sides know, once the dialler was welcomed."""
        self._believing: asyncio.Future[Access] | None = None
        loop = asyncio.get_running_loop()
        self._too_late = loop.call_later(handshake_timeout_s, self._late)

    def stop(self) -> None:
        """Stop: the connection has ended."""
        self._too_late.cancel()
        if self._believing is not None:
            self._believing.cancel()

    def take(self, message: Frame) -> None:
        """Take a frame that arrived before the handshake was done."""
        try:
            if self._believing is not None:
                raise Unauthorized(
                    "a frame arrived before the welcome; the dialler must wait for the welcome "
                    "first"
                )
            if self._shared is None:
                self._greet(message)
            else:
                self._check_proof(message, *self._shared)
        except LognodeError as error:
            self._connection.refuse(error)

    def _greet(self, message: Frame) -> None:
        if message.kind != frames.HELLO:
            raise Unauthorized(
                "the first frame of the connection is not a hello; send a hello first"
            )
        hello = Hello.from_body(message.body)
        hello.agreed_version()
        if self._tls is not None:
            self._tls.check(hello, self._connection.certificate)
        welcome = self._handler.welcome(hello, self._entropy(wire.nonce_bytes))
        wants_proof = hello.role == "node" and self._secret is not None
        welcome = welcome._replace(wants_proof=wants_proof)
        if wants_proof:
            self._welcomed(hello, welcome)
            return
        found = self._handler.believe(self._connection, hello)
        if isinstance(found, Awaitable):
            self._believing = asyncio.ensure_future(found)
            self._believing.add_done_callback(lambda done: self._believed(hello, welcome, done))
        else:
            self._sit()
            self._welcomed(hello, welcome)
            self._end(found)

    def _believed(self, hello: Hello, welcome: Welcome, done: "asyncio.Future[Access]") -> None:
        """Finish the handshake with the dialler's rights, or refuse the dialler."""
        self._believing = None
        if done.cancelled() or self._connection.lost is not None:
            return
        failed = done.exception()
        if isinstance(failed, LognodeError):
            self._connection.refuse(failed)
            return
        if isinstance(failed, Exception):
            self._connection.refuse(
                Unavailable("internal error; see the node's log", reason="internal")
            )
            self._handler.failed(frames.HELLO, failed)
            return
        try:
            self._sit()
        except LognodeError as error:
            self._connection.refuse(error)
            return
        self._welcomed(hello, welcome)
        self._end(done.result())

    def _welcomed(self, hello: Hello, welcome: Welcome) -> None:
        hello = hello._replace(token=None)
        self._shared = hello, welcome
        self._connection.hello = hello
        self._transport.send(0, frames.WELCOME, welcome.to_body())

    def _check_proof(self, message: Frame, hello: Hello, welcome: Welcome) -> None:
        if self._secret is None:
            raise Unauthorized("a proof arrived before the hello; send the hello first")
        proof = message.body.get("proof") if message.kind == frames.PROOF else None
        channel = self._transport.channel
        binding = b"" if channel is None else channel.binding
        wire.check_proof(self._secret, "dialler", hello, welcome, proof, binding)
        believed = self._handler.believe(self._connection, hello)
        if isinstance(believed, Awaitable):
            raise TypeError(
                "believe() returned an awaitable for a dialler with a secret; return the "
                "decision at once"
            )
        self._sit()
        ours = wire.prove(self._secret, "acceptor", hello, welcome, binding)
        self._transport.send(0, frames.PROOF, {"proof": ours})
        self._end(believed)

    def _end(self, access: Access | None) -> None:
        self._too_late.cancel()
        self._admit(access)

    def _late(self) -> None:
        self._on_late()
        self._connection.refuse(
            Unauthorized(f"the handshake took over {handshake_timeout_s:g} s; connect again")
        )
