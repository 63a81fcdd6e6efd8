"""Who an accepted connection is accounted to, on real loopback sockets."""

import asyncio
from typing import Any

from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.request import Request
from lognode.client.connection import dial
from lognode.client.protocol import Operation
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.principal import Principal
from lognode.client.protocol.wire import Hello, Welcome


class _Listening:
    """A handler that gives each connection the same principal."""

    def __init__(self, principal: Principal | None) -> None:
        self.principal = principal
        self.connections: list[ServerConnection] = []
        self.before: list[Principal] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        raise NotImplementedError

    def opened(self, connection: ServerConnection) -> Principal | None:
        self.before.append(connection.principal)
        self.connections.append(connection)
        return self.principal

    def request(self, request: Request) -> Any: ...

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None: ...

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None: ...

    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...

    def failed(self, number: int, error: Exception) -> None: ...


def _principal_seen(given: Principal | None) -> tuple[Principal, Principal, list[str]]:
    async def run() -> tuple[Principal, Principal, list[str]]:
        handler = _Listening(given)
        listener = await acceptor.serve(handler, "127.0.0.1", 0)
        try:
            connection = await dial("127.0.0.1", listener.port)
            (accepted,) = handler.connections
            payers = list(listener.budgets.clients.answers.principals)
            connection.close()
            return handler.before[0], accepted.principal, payers
        finally:
            await listener.close()

    return asyncio.run(run())


def test_a_connection_without_identity_is_accounted_to_its_host() -> None:
    before, after, payers = _principal_seen(None)
    assert before == after == Principal("127.0.0.1", None, "default")
    assert payers == ["127.0.0.1"]


def test_the_handler_names_the_principal_that_pays() -> None:
    app = Principal("app", "acme", "gold")
    before, after, payers = _principal_seen(app)
    assert (before, after) == (Principal("127.0.0.1"), app)
    assert payers == ["app"]
