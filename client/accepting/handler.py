"""What a listener needs of the program that serves its connections: a handler, and TLS."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..protocol import Operation
from ..protocol.certificate import Certificate
from ..protocol.errors import LognodeError
from ..protocol.principal import Principal
from ..protocol.tls import Channel
from ..protocol.wire import Hello, Welcome
from .access import Access

if TYPE_CHECKING:
    from .acceptor import ServerConnection
    from .request import Request

Body = dict[str, Any]
Believed = Awaitable[Access] | Access | None
Refused = Callable[["ServerConnection", LognodeError], None]
"""Called for a connection that ended before its handshake was done."""


class Handler(Protocol):
    """The handler of a listener's connections. All calls run on the loop's thread."""

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        """Answer a hello, which may come from anybody: have no other effect. Raise a
        LognodeError to refuse it."""

    def believe(self, connection: "ServerConnection", hello: Hello) -> Believed:
        """Accept a dialler that has shown its certificate and proved that it holds the secret, as
        far as this listener requires. Return its rights, None for all, or for a client a coroutine
        that returns its rights. Raise a LognodeError to refuse it."""

    def operation(self, connection: "ServerConnection", number: int) -> Operation:
        """Return the operation with this number, if the dialler may send it.

        Raises Unsupported for an unknown number, Unauthorized.
        """

    def opened(self, connection: "ServerConnection") -> Principal | None:
        """Open a connection after its handshake. Return the principal whose budget pays for the
        connection; None: its address pays."""

    def request(self, request: "Request") -> "Awaitable[Body | None] | Body | None":
        """Serve a request: return the answer, or a coroutine that returns it.

        None means that the handler answers, or has answered, through `request` itself. An error
        that the handler raises is the answer; an exception other than a LognodeError goes to
        `failed` as well.
        """

    def message(self, connection: "ServerConnection", operation: Operation, body: Body) -> None:
        """Take a one-way message."""

    def refused(self, connection: "ServerConnection", number: int, error: LognodeError) -> None:
        """Note a request that was refused before `request`: the operation with this number is
        unknown or forbidden to the dialler, or its body violates the table."""

    def closed(self, connection: "ServerConnection", error: LognodeError) -> None:
        """Note the end of the connection; called once for each `opened`."""

    def failed(self, number: int, error: Exception) -> None:
        """Note an unexpected exception of a handler: a bug or a broken invariant."""


class ListenTls(Protocol):
    """The TLS of a listener. All calls run on the loop's thread."""

    def channel(self) -> Channel:
        """Return a channel for one accepted connection."""

    def check(self, hello: Hello, certificate: Certificate | None) -> None:
        """Raise Unauthorized for a hello that the dialler's certificate does not allow. Only a
        hello that passes goes any further."""

    def refused(self, address: str, error: LognodeError) -> None:
        """Note a connection that ended before its handshake was done."""
