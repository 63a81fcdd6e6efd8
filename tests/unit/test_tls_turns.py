"""What TLS takes of the processor is the sender's time, on real loopback sockets."""

import asyncio
import contextlib
import gc
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_turns import Turns
from loose_operations import LOOSE, ONE_WAY, by_number
from pki import Pki, pki

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.handshake_turns import Pace
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.meter import NodeBudgets
from lognode.client.accepting.request import Request
from lognode.client.fair_turns import Step
from lognode.client.protocol import Operation, limits, tls
from lognode.client.protocol.certificate import Certificate
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.tls import Channel, ClientTls
from lognode.client.protocol.wire import Hello, Welcome

HOLD_S = 0.03
"""Processor time between two turns of the loop; a few milliseconds on an idle machine."""
FLOOD = 110
"""Two of them fit the door."""


class Server:
    """An echo."""

    def __init__(self) -> None:
        self.opened_for: list[ServerConnection] = []
        self.messages: list[dict[str, Any]] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c", node=1)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...
    def opened(self, connection: ServerConnection) -> None:
        self.opened_for.append(connection)

    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...
    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None: ...

    def request(self, request: Request) -> Any:
        return {"echo": request.body}

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        found = by_number(number)
        assert found is not None
        return found

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.messages.append(body)

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(number) from error


class Told(Channel):
    """Notes when it was given bytes."""

    calls: list["Told"]

    def receive(self, data: bytes | memoryview) -> bytes:
        self.calls.append(self)
        return super().receive(data)


class Listening:
    """The TLS of a listener; `calls` has the channels that were given bytes, in order."""

    def __init__(self, trust: Pki) -> None:
        own = trust.node("server")
        self._own = own.certificate
        self._context = tls.listen_context(trust.ca, own.cert, own.key, ssl.CERT_OPTIONAL)
        self.calls: list[Told] = []

    def channel(self) -> Channel:
        made = Told(self._context, server_side=True, own=self._own)
        made.calls = self.calls
        return made

    def check(self, hello: Hello, certificate: Certificate | None) -> None: ...
    def refused(self, address: str, error: LognodeError) -> None: ...


class Place:
    """A listener with TLS."""

    def __init__(self, trust: Pki) -> None:
        self.trust = trust
        self.server = Server()
        self.tls = Listening(trust)
        self.budgets = NodeBudgets()
        self.listener: Listener

    async def dial(self) -> connection.Connection:
        how = ClientTls(self.trust.tls()).current()
        return await connection.dial("127.0.0.1", self.listener.port, tls=how)


def run(trust: Pki, test: Callable[[Place], Awaitable[None]]) -> None:
    async def main() -> None:
        place = Place(trust)
        place.listener = await acceptor.serve(
            place.server, "127.0.0.1", 0, tls=place.tls, budgets=place.budgets
        )
        try:
            async with asyncio.timeout(30):
                await test(place)
        finally:
            await place.listener.close()

    asyncio.run(main())


@pytest.fixture
def trust(tmp_path: Path) -> Pki:
    """An authority."""
    return pki(tmp_path)


@pytest.fixture(autouse=True)
def _no_garbage_collection() -> Iterator[None]:
    """A node looks at what is old at moments of its own (`node.runtime.garbage`)."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def hello() -> bytes:
    """The first message of a client's handshake."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shaking = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    return outgoing.read()


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  there is no event for it
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def flood(place: Place, source: str) -> Any:
    """Connections from that address that have said nothing yet."""
    loop, lines = asyncio.get_running_loop(), []
    try:
        for _ in range(FLOOD):
            line = socket.socket()
            line.setblocking(False)
            line.bind((source, 0))
            lines.append(line)
            await loop.sock_connect(line, ("127.0.0.1", place.listener.port))
        guests = place.listener._seats
        await eventually(lambda: sum(each.host == source for each in guests.guests) == FLOOD)
        yield lines
    finally:
        for line in lines:
            line.close()


def slow(place: Place) -> None:
    """Let handshakes have a fiftieth of the time and not more, from now on: a loop that has much
    other work to do. All of a flood takes seconds then, also on a fast machine."""
    place.listener.handshakes.pace = Pace(
        0.02, time.perf_counter, lambda: 10.0 * time.perf_counter()
    )


def test_many_handshakes_at_once_leave_the_loop_to_others(trust: Pki) -> None:
    async def test(place: Place) -> None:
        said = hello()
        async with flood(place, "127.0.0.2") as lines:
            turns = Turns()
            for line in lines:
                line.send(said)
            await eventually(lambda: len(place.tls.calls) >= FLOOD)
            assert turns.stop() < HOLD_S

    run(trust, test)


def test_a_handshake_waits_for_no_more_than_a_step_of_each_other_host(trust: Pki) -> None:
    async def test(place: Place) -> None:
        said = hello()
        slow(place)
        async with flood(place, "127.0.0.2") as lines, flood(place, "127.0.0.3") as others:
            for line in (*lines, *others):
                line.send(said)
            await eventually(lambda: place.listener.handshakes.waiting > FLOOD)
            client = await place.dial()
            assert place.listener.handshakes.waiting > FLOOD
            own = place.server.opened_for[0]._transport.channel
            assert own is not None
            order = [each is own for each in place.tls.calls]
            began = order.index(True)
            steps = order[began:].count(True)
            # Between two steps of its own comes one of each flood, and those that are done while
            # the client thinks: few, as handshakes have a fiftieth of the time.
            assert order[began:].count(False) <= 12 * steps
            assert await client.request(LOOSE, {"n": 1}) == {"echo": {"n": 1}}
            client.close()
            await client.wait_closed()

    run(trust, test)


class Lines:
    """Turns that come when the test says so."""

    clock = staticmethod(time.perf_counter)

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.spent_s: list[float] = []

    def begin(self, step: Step) -> None:
        self.later(step)

    def later(self, step: Step) -> None:
        self.steps.append(step)

    def spent(self, seconds: float) -> None:
        self.spent_s.append(seconds)

    def turn(self) -> None:
        """The next turn comes, and is over at once."""
        self.steps.pop(0)(0.0)


def test_bytes_are_decrypted_in_turns_and_a_bounded_number_in_each(trust: Pki) -> None:
    async def test(place: Place) -> None:
        client = await place.dial()
        (served,) = place.server.opened_for
        transport = served._transport
        lines = Lines()
        transport.turns = lines
        before, calls = transport.plain_in, len(place.tls.calls)
        value = bytes(2 * limits.MIB)
        client.send(ONE_WAY, {"n": value})
        await eventually(lambda: transport.bytes_in > 2 * limits.KIB + before)
        await asyncio.sleep(0.05)
        assert (transport.plain_in, len(place.tls.calls)) == (before, calls), "decrypted at once"
        arrived, turns, most = transport.bytes_in, 0, 0
        while not place.server.messages:
            await eventually(lambda: bool(lines.steps))
            had = transport.plain_in
            assert len(lines.steps) == 1, "a connection stands in line once"
            lines.turn()
            turns += 1
            most = max(most, transport.plain_in - had)
            if turns == 1:
                assert transport.bytes_in == arrived, "read on although bytes wait here"
        assert 0 < most <= 64 * limits.KIB
        assert turns >= len(value) // (64 * limits.KIB)
        assert len(lines.spent_s) >= turns
        assert all(seconds > 0.0 for seconds in lines.spent_s)
        assert place.server.messages == [{"n": value}]
        client.close()
        await client.wait_closed()

    run(trust, test)


def test_a_principal_pays_for_its_handshake_and_for_the_encryption_of_its_answers(
    trust: Pki,
) -> None:
    async def test(place: Place) -> None:
        share, paid = place.budgets.turns.share("127.0.0.1"), []
        share.on_spent = paid.append
        client = await place.dial()
        await eventually(lambda: bool(place.server.opened_for))
        (served,) = place.server.opened_for
        assert served.share is share
        # At least what was signed and verified: some hundred microseconds.
        assert sum(paid) > 0.0001
        sealed = 0
        seal = Channel.seal

        def counted(channel: Channel, data: bytes | bytearray | memoryview) -> bytes:
            nonlocal sealed
            sealed += channel.server_side
            return seal(channel, data)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Channel, "seal", counted)
            before = len(paid)
            await client.request(LOOSE, {"n": bytes(limits.MIB)})
            assert len(paid) - before > sealed >= 4
        client.close()
        await client.wait_closed()

    run(trust, test)


def test_a_stranger_costs_no_share_of_a_client(trust: Pki) -> None:
    """A handshake that proves nothing is nobody's: neither the host's nor another client's."""

    async def test(place: Place) -> None:
        share, paid = place.budgets.turns.share("127.0.0.1"), []
        share.on_spent = paid.append
        reader, writer = await asyncio.open_connection("127.0.0.1", place.listener.port)
        writer.write(hello())
        assert await reader.read(1)
        writer.transport.abort()
        assert paid == []

    run(trust, test)


def test_a_frame_of_many_pieces_arrives_whole(trust: Pki) -> None:
    """Whatever turns come between."""

    async def test(place: Place) -> None:
        client = await place.dial()
        for size in (0, 1, 16_000, 16_384, 65_535, 65_536, 65_537, 300_000, 3 * limits.MIB):
            value = bytes(range(256)) * (size // 256 + 1)
            assert await client.request(LOOSE, {"n": value[:size]}) == {"echo": {"n": value[:size]}}
        client.close()
        await client.wait_closed()

    run(trust, test)
