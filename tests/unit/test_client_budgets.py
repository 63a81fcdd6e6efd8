"""What a connection may cost the side that accepts it, on real loopback sockets."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from loose_operations import LOOSE, ONE_WAY, STREAM

from lognode.client import connection, transport
from lognode.client.accepting import acceptor
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.budget import Budget
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.meter import NodeBudgets
from lognode.client.accepting.readers import Reader
from lognode.client.accepting.request import Request
from lognode.client.protocol import Operation, frame, frames, limits, wire
from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.client.protocol.limits import KIB, MIB
from lognode.client.protocol.operation import Weight
from lognode.client.protocol.principal import Principal
from lognode.client.protocol.wire import Hello, Welcome

Serve = Callable[[Request], Any]
PAGE = bytes(MIB)


class Server:
    """A handler that does what the test says. The principal of a client is its nonce's first byte,
    in hexadecimal."""

    def __init__(self, serve: Serve, weight: int | Weight = 4 * KIB) -> None:
        self.serve = serve
        self.known = {
            each.number: replace(each, weight=weight) for each in (LOOSE, STREAM, ONE_WAY)
        }
        self.connections: list[ServerConnection] = []
        self.messages = 0
        self.ended: list[LognodeError] = []
        self.failures: list[Exception] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c1", node=7)

    def believe(self, connection: ServerConnection, hello: Hello) -> None:
        """Any client."""

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        return self.known[number]

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        raise error

    def opened(self, connection: ServerConnection) -> Principal | None:
        self.connections.append(connection)
        assert connection.hello is not None
        return Principal(connection.hello.nonce[:1].hex())

    def request(self, request: Request) -> Any:
        return self.serve(request)

    def message(
        self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
    ) -> None:
        self.messages += 1

    def closed(self, connection: ServerConnection, error: LognodeError) -> None:
        self.ended.append(error)

    def failed(self, number: int, error: Exception) -> None:
        self.failures.append(error)


class Raw:
    """A client that reads nothing unless it is told to."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._decoder = frame.Decoder()
        self.got: list[frame.Frame] = []

    @classmethod
    async def dial(
        cls,
        listener: Listener,
        principal: str = "00",
        role: wire.Role = "client",
        node: int | None = None,
    ) -> "Raw":
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
        sock.setblocking(False)
        raw = cls(sock)
        await raw._loop.sock_connect(sock, ("127.0.0.1", listener.port))
        nonce = bytes.fromhex(principal) + bytes(wire.nonce_bytes - 1)
        hello = Hello(role=role, nonce=nonce, node=node)
        await raw.send(frame.encode(0, frames.HELLO, hello.to_body()))
        assert (await raw.next()).kind == frames.WELCOME
        return raw

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def ask(self, first: int, count: int, body: dict[str, Any] | None = None) -> None:
        """So many requests in one write."""
        await self.send(
            b"".join(frame.encode(n, LOOSE.number, body or {}) for n in range(first, first + count))
        )

    async def next(self) -> frame.Frame:
        while not self.got:
            data = await self._loop.sock_recv(self.sock, 1 << 18)
            assert data, "the listener has closed the connection"
            for event in self._decoder.feed(data):
                assert isinstance(event, frame.Frame)
                self.got.append(event)
        return self.got.pop(0)

    def close(self) -> None:
        self.sock.close()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(
    test: Callable[[Listener, Server], Awaitable[None]],
    serve: Serve,
    weight: int | Weight = MIB + KIB,
) -> None:
    async def main() -> None:
        server = Server(serve, weight)
        listener = await acceptor.serve(server, "127.0.0.1", 0, budgets=NodeBudgets())
        try:
            async with asyncio.timeout(60):
                await test(listener, server)
        finally:
            await listener.close()
        assert server.failures == []
        await eventually(lambda: listener.connections == 0)
        for budgets in (listener.budgets.clients, listener.budgets.peers):
            for budget in (budgets.answers, budgets.requests):
                await is_empty(budget)

    asyncio.run(main())


async def is_empty(budget: Budget) -> None:
    """Wait until nobody holds anything of the budget."""
    await eventually(lambda: not budget.principals)
    assert (budget.held, budget.tickets) == (0, 0)


@pytest.fixture
def small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of 2 MiB; 4 MiB of answers for a connection, 12 for a principal, 36 for the node."""
    monkeypatch.setattr("lognode.client.accepting.meter._FRAME_BYTES", 2 * MIB)
    monkeypatch.setattr(limits, "answers_connection_bytes_max", 4 * MIB)
    monkeypatch.setattr(limits, "answers_principal_bytes_max", 12 * MIB)
    monkeypatch.setattr(limits, "answers_node_bytes_max", 36 * MIB)


async def page(request: Request) -> dict[str, Any]:
    """An answer of a MiB, made only once there is room."""
    await request.room()
    return {"page": PAGE}


@pytest.mark.slow
@pytest.mark.usefixtures("small_budgets")
def test_a_reader_that_does_not_read_gets_no_more_answers_made_than_its_connection_may_hold() -> (
    None
):
    made = 0

    async def serve(request: Request) -> dict[str, Any]:
        nonlocal made
        body = await page(request)
        made += 1
        return body

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener)
        await raw.ask(1, 1000)
        answers = listener.budgets.clients.answers
        await eventually(lambda: answers.tickets > 0 and made > 0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert answers.held <= limits.answers_connection_bytes_max
        queued = server.connections[0].queued_bytes
        assert queued <= limits.answers_connection_bytes_max
        # What is above the budget is in the kernel.
        assert made * MIB <= limits.answers_connection_bytes_max + 8 * MIB
        for _ in range(1000):  # and each of them is answered once it reads
            assert (await raw.next()).kind == frames.OK
        raw.close()

    run(test, serve)


@pytest.mark.usefixtures("small_budgets")
def test_one_principal_takes_no_room_of_another() -> None:
    async def test(listener: Listener, server: Server) -> None:
        hogs = [await Raw.dial(listener, f"0{n // 4}") for n in range(16)]
        for hog in hogs:
            await hog.ask(1, 50)
        answers = listener.budgets.clients.answers
        await eventually(lambda: answers.tickets > 100)
        for _ in range(200):
            await asyncio.sleep(0)
        assert answers.held <= limits.answers_node_bytes_max
        assert answers.largest()[0] <= limits.answers_principal_bytes_max
        assert answers.largest()[1] <= limits.answers_connection_bytes_max
        other = await Raw.dial(listener, "77")
        for n in range(1, 21):
            await other.ask(n, 1)
            assert (await other.next()).request_id == n
        for raw in (*hogs, other):
            raw.close()

    run(test, page)


@pytest.mark.usefixtures("small_budgets")
def test_a_client_that_leaves_while_it_waits_for_memory_leaves_nothing_behind() -> None:
    async def test(listener: Listener, server: Server) -> None:
        answers = listener.budgets.clients.answers
        for _ in range(3):
            raw = await Raw.dial(listener)
            await raw.ask(1, 100)
            await eventually(lambda: answers.tickets > 50)
            for n in range(50, 101):  # these are given up, the others go with the connection
                await raw.send(frame.encode(n, frames.CANCEL, {}))
            await eventually(lambda: server.connections[-1].in_flight < 50)
            await eventually(lambda: answers.tickets < 50)
            raw.close()
            await eventually(lambda: listener.connections == 0)
            await eventually(lambda: (answers.held, answers.tickets) == (0, 0))

    run(test, page)


@pytest.mark.usefixtures("small_budgets")
def test_a_client_that_gives_up_during_its_answer_returns_its_memory() -> None:
    async def serve(request: Request) -> None:
        await request.room()
        await asyncio.Event().wait()

    async def test(listener: Listener, server: Server) -> None:
        answers = listener.budgets.clients.answers
        raw = await Raw.dial(listener)
        await raw.ask(1, 2)
        await eventually(lambda: answers.held > 2 * MIB)
        for n in (1, 2):
            await raw.send(frame.encode(n, frames.CANCEL, {}))
        await eventually(lambda: answers.held == 0)
        raw.close()

    run(test, serve)


def test_a_reader_that_makes_no_progress_is_closed_and_one_that_does_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lognode.client.accepting.listener.look_every_s", 0.02)
    monkeypatch.setattr(limits, "reader_patience_s", 1.0)
    monkeypatch.setattr(limits, "reader_progress_bytes", 16 * KIB)

    async def test(listener: Listener, server: Server) -> None:
        slow = await Raw.dial(listener, "01")
        await slow.ask(1, 40)
        dead = await Raw.dial(listener, "02")
        await dead.ask(1, 40)
        loop = asyncio.get_running_loop()

        async def read_slowly() -> None:
            while await loop.sock_recv(slow.sock, 1 << 14):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        began = loop.time()
        reading = asyncio.create_task(read_slowly())
        await eventually(lambda: bool(server.ended))
        assert loop.time() - began >= 1.0
        reading.cancel()
        assert [error.fields["reason"] for error in server.ended] == [acceptor.UNREAD]
        assert "bytes of answers unread and made no progress for" in server.ended[0].message
        assert server.connections[0].lost is None
        assert server.connections[1].lost is server.ended[0]
        slow.close()
        dead.close()

    run(test, page)


def test_progress_is_a_part_of_what_waits_or_all_of_it() -> None:
    step = limits.reader_progress_bytes
    reader = Reader()
    assert reader.silent_s(1.0, 0, 0) == 0.0  # nothing waits
    assert reader.silent_s(2.0, 0, 10 * step) == 0.0
    assert reader.silent_s(31.0, step - 1, 9 * step) == 29.0
    assert reader.silent_s(32.0, step, 9 * step) == 0.0  # progress
    assert reader.silent_s(40.0, step, 20 * step) == 8.0  # more of it is none
    assert reader.silent_s(41.0, 21 * step, 0) == 0.0
    assert reader.silent_s(50.0, 21 * step, 100) == 0.0  # it waits since now
    assert reader.silent_s(51.0, 21 * step + 99, 1) == 1.0
    assert reader.silent_s(52.0, 21 * step + 100, 50) == 0.0  # a little, all of it


@pytest.mark.usefixtures("small_budgets")
def test_a_reader_is_closed_sooner_when_others_wait_for_its_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lognode.client.accepting.listener.look_every_s", 0.02)
    monkeypatch.setattr(limits, "reader_patience_pressed_s", 0.2)

    async def test(listener: Listener, server: Server) -> None:
        dead = [await Raw.dial(listener, "01") for _ in range(20)]
        for raw in dead:
            await raw.ask(1, 40)
        answers = listener.budgets.clients.answers
        await eventually(lambda: answers.largest()[0] > limits.answers_principal_bytes_max - MIB)
        other = await Raw.dial(listener, "01")  # of the same principal
        for n in range(1, 11):
            await other.ask(n, 1)
            assert (await other.next()).request_id == n
        assert {error.fields["reason"] for error in server.ended} == {acceptor.UNREAD}
        assert server.connections[20].lost is None
        for raw in (*dead, other):
            raw.close()

    run(test, page)


def test_pings_whose_answers_are_not_read_pause_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "send_buffer_bytes_max", 128 * KIB)
    pings = b"".join(frame.encode(n, frames.PING, {}) for n in range(1, 20_001))

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener)

        async def flood() -> None:
            while True:
                await raw.send(pings)
                await asyncio.sleep(0)

        ours = server.connections[0]
        kernel = ours._transport._transport.get_extra_info("socket")  # type: ignore[union-attr]
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        task = asyncio.create_task(flood())
        await eventually(lambda: ours.queued_bytes >= limits.send_buffer_bytes_max)
        read = ours.bytes_in
        for _ in range(200):
            await asyncio.sleep(0.001)
            assert ours.queued_bytes <= limits.send_buffer_bytes_max + KIB
        assert ours.bytes_in <= read + 2 * 256 * KIB  # decoded and not answered
        task.cancel()
        raw.close()

    run(test, page)


def test_a_client_with_much_unsent_data_starts_nothing_while_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small answers need no room of their own: what pauses them is what is unsent."""
    started = 0

    def serve(request: Request) -> dict[str, Any]:
        nonlocal started
        started += 1
        return {"small": bytes(32 * KIB)}

    async def test(listener: Listener, server: Server) -> None:
        hog = listener.budgets.clients.answers.open("hog")
        hog.charge(limits.answers_node_bytes_max)
        raw = await Raw.dial(listener)
        await raw.ask(1, 200)
        ours = server.connections[0]
        await eventually(lambda: ours.queued_bytes > limits.unsent_free_bytes)
        for _ in range(100):
            await asyncio.sleep(0)
        assert ours.queued_bytes <= limits.unsent_free_bytes + 40 * KIB
        for n in range(1, 201):  # room or not, who reads goes on
            assert (await raw.next()).request_id == n
        hog.close()
        raw.close()

    run(test, serve, 33 * KIB)


def test_credit_beyond_the_limit_is_not_believed() -> None:
    seen: list[int] = []

    def serve(request: Request) -> dict[str, Any]:
        seen.append(request.credit)
        request.grant(1 << 62)
        seen.append(request.credit)
        return {}

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener)
        for credit in (1 << 62, 5):
            await raw.send(frame.encode(1, STREAM.number, {"credit": credit}))
            assert (await raw.next()).kind == frames.OK
        most = limits.follow_credit_bytes_max
        assert seen == [most, most, 5, most]
        raw.close()

    run(test, serve)


def test_a_frame_takes_its_room_at_its_header_and_those_that_have_begun_can_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten connections send a MiB each to a node that has room for five."""
    monkeypatch.setattr("lognode.client.accepting.meter._FRAME_BYTES", MIB + KIB)
    monkeypatch.setattr(limits, "requests_in_flight_bytes_max", 2 * MIB)
    monkeypatch.setattr(limits, "requests_principal_bytes_max", 5 * MIB)
    monkeypatch.setattr(limits, "requests_node_bytes_max", 5 * MIB)
    whole = frame.encode(1, LOOSE.number, {"data": PAGE})

    async def test(listener: Listener, server: Server) -> None:
        requests = listener.budgets.clients.requests
        raws = [await Raw.dial(listener) for _ in range(10)]
        sending = [asyncio.create_task(raw.send(whole[:-1])) for raw in raws]
        await eventually(lambda: requests.tickets > 0)
        for _ in range(200):
            await asyncio.sleep(0)
        begun = [c for c in server.connections if c.held_bytes[1] >= len(whole)]
        assert 1 <= len(begun) <= 4
        assert requests.held <= 5 * MIB
        waiting = [c for c in server.connections if c not in begun]
        # Nobody has handed over more than it may have without room, and one more read.
        assert all(c.bytes_in <= 2 * 256 * KIB for c in waiting)
        small = await Raw.dial(listener)
        await small.ask(1, 10)
        for n in range(1, 11):  # small frames need no room
            assert (await small.next()).request_id == n

        async def end(raw: Raw, task: "asyncio.Task[None]") -> None:
            await task
            await raw.send(whole[-1:])
            assert (await raw.next()).kind == frames.OK

        await asyncio.gather(*map(end, raws, sending))
        for raw in (*raws, small):
            raw.close()

    run(test, lambda request: {}, 0)


def test_X1_requests_of_many_connections_wait_where_their_principal_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """256 connections had 1,024 small requests each under way, and took a GiB."""
    monkeypatch.setattr("lognode.client.accepting.meter._FRAME_BYTES", 64 * KIB)
    monkeypatch.setattr(limits, "requests_in_flight_bytes_max", 2 * MIB)
    monkeypatch.setattr(limits, "requests_principal_bytes_max", MIB)
    gate = asyncio.Event()

    async def serve(request: Request) -> dict[str, Any]:
        await gate.wait()
        return {}

    async def test(listener: Listener, server: Server) -> None:
        requests = listener.budgets.clients.requests
        raws = [await Raw.dial(listener) for _ in range(20)]
        for raw in raws:
            await raw.ask(1, 500)
        await eventually(lambda: requests.tickets == len(raws))
        for _ in range(200):
            await asyncio.sleep(0)
        assert requests.held <= MIB + len(raws) * 32 * KIB  # 10,000 would take 40 MiB
        other = await Raw.dial(listener, "01")
        await other.ask(1, 3)
        await eventually(lambda: server.connections[-1].held_bytes[1] >= 3 * 4 * KIB)
        gate.set()
        for raw in (*raws, other):
            for n in range(1, 501 if raw is not other else 4):
                assert (await raw.next()).request_id == n
            raw.close()

    run(test, serve, 0)


def test_a_connection_that_waits_for_room_to_read_hears_that_the_other_side_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceptor, "alive_every_s", 0.01)

    async def test(listener: Listener, server: Server) -> None:
        hog = listener.budgets.clients.requests.open("00")
        hog.charge(limits.requests_node_bytes_max)
        raw = await Raw.dial(listener)
        task = asyncio.create_task(raw.send(frame.encode(1, LOOSE.number, {"data": PAGE})))
        assert (await raw.next()).kind == frames.ALIVE
        hog.close()
        while (answer := await raw.next()).kind == frames.ALIVE:
            pass
        assert (answer.request_id, answer.kind) == (1, frames.OK)
        await task
        raw.close()

    run(test, lambda request: {})


def test_nodes_of_the_cluster_have_room_when_clients_have_none() -> None:
    async def test(listener: Listener, server: Server) -> None:
        hogs = []
        for budget in (listener.budgets.clients.answers, listener.budgets.clients.requests):
            hogs.append(budget.open("hog"))
            hogs[-1].charge(budget.limits.node_bytes)
        raw = await Raw.dial(listener, role="node", node=2)
        await raw.ask(1, 3, {"data": bytes(300 * KIB)})
        for n in range(1, 4):
            assert (await raw.next()).request_id == n
        assert listener.budgets.peers.answers.principals
        for hog in hogs:
            hog.close()
        raw.close()

    run(test, page)


def test_a_node_that_asks_to_join_has_the_turns_and_the_room_of_a_client() -> None:
    """Anybody can say to be such a node: 64 of them had a turn of their own each."""

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener, role="node")
        member = await Raw.dial(listener, role="node", node=2)
        for each in (raw, member):
            await each.ask(1, 1)
            assert (await each.next()).request_id == 1
        joining, known = server.connections
        assert joining.share is listener.budgets.turns.share("127.0.0.1")
        assert known.share is None
        assert len(listener.budgets.peers.answers.principals) == 1, "that of the member"
        raw.close()
        member.close()

    run(test, page)


def test_a_flood_of_messages_leaves_turns_to_others() -> None:
    """The flood is two seconds of work for the handler; the other client waits for a few turns."""
    flood = b"".join(frame.encode(0, ONE_WAY.number, {"n": n}) for n in range(20_000))

    class Busy(Server):
        def message(
            self, connection: ServerConnection, operation: Operation, body: dict[str, Any]
        ) -> None:
            super().message(connection, operation, body)
            until = time.perf_counter() + 0.0001
            while time.perf_counter() < until:
                pass

    async def main() -> None:
        server = Busy(lambda request: {})
        listener = await acceptor.serve(server, "127.0.0.1", 0)
        floods = [await Raw.dial(listener) for _ in range(4)]
        tasks = [asyncio.create_task(raw.send(flood)) for raw in floods]
        await eventually(lambda: server.messages > 0)
        other = await connection.dial("127.0.0.1", listener.port)
        for n in range(20):
            before = server.messages
            assert await other.request(LOOSE, {"n": n}) == {}
            # Each flooding connection had a few slices meanwhile, and no more.
            assert server.messages - before < 4_000
        assert server.messages < 80_000
        for task in tasks:
            task.cancel()
        other.close()
        for raw in floods:
            raw.close()
        await listener.close()

    asyncio.run(main())


def test_a_connection_that_is_closed_with_bytes_unread_ends_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "linger_s", 0.05)

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener)
        await raw.ask(1, 12)
        await eventually(lambda: server.connections[0].queued_bytes > MIB)
        server.connections[0].refuse(Unavailable("test"))
        assert listener.budgets.clients.answers.held > MIB  # it still has them
        await eventually(lambda: listener.connections == 0)
        assert listener.budgets.clients.answers.held == 0
        raw.close()

    run(test, page)


def test_a_frame_counts_as_a_whole_until_its_last_piece_has_left() -> None:
    async def serve(request: Request) -> dict[str, Any]:
        await request.room()
        return {"data": bytes(8 * MIB)}

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener)
        await raw.ask(1, 1)
        ours = server.connections[0]
        await eventually(lambda: ours.queued_bytes > 0)
        for _ in range(3):
            await eventually(lambda: ours.queued_bytes < 8 * MIB - 256 * KIB)
            assert 8 * MIB <= listener.budgets.clients.answers.held < 8 * MIB + 512 * KIB
            await raw._loop.sock_recv(raw.sock, 1 << 16)
        raw.close()

    run(test, serve, lambda body: 8 * MIB)


def test_large_frames_leave_in_pieces_and_arrive_whole() -> None:
    sizes = [1, 100, 300 * KIB, 5, 2 * MIB + 1, 7, 256 * KIB, 3 * MIB]

    async def serve(request: Request) -> dict[str, Any]:
        return {"data": bytes([request.request_id]) * sizes[request.request_id - 1]}

    async def test(listener: Listener, server: Server) -> None:
        raw = await Raw.dial(listener)
        await raw.ask(1, len(sizes))
        for n, size in enumerate(sizes, 1):
            answer = await raw.next()
            assert answer.body == {"data": bytes([answer.request_id]) * size}
            assert answer.request_id == n
        ours = server.connections[0]
        await eventually(lambda: ours.queued_bytes == 0)
        assert ours._transport.taken_bytes == ours.bytes_out
        raw.close()

    run(test, serve)
