"""Requests that were given up end in slices, and count until they have ended."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from loose_operations import LOOSE, by_number

from lognode.client import connection
from lognode.client.accepting import acceptor
from lognode.client.accepting.abandoned import SLICE_MAX, SLICE_MIN, Abandoned
from lognode.client.accepting.acceptor import ServerConnection
from lognode.client.accepting.listener import Listener
from lognode.client.accepting.request import Request
from lognode.client.connection import Connection
from lognode.client.protocol import Operation, limits
from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.wire import Hello, Welcome

ASKED = 1_024
Serve = Callable[[Request], Any]


class Server:
    """A handler that serves every request in the same way."""

    def __init__(self, serve: Serve) -> None:
        self.request = serve
        self.connections: list[ServerConnection] = []

    def welcome(self, hello: Hello, nonce: bytes) -> Welcome:
        return Welcome(nonce=nonce, cluster="c1", node=7)

    def believe(self, connection: ServerConnection, hello: Hello) -> None: ...

    def opened(self, connection: ServerConnection) -> None:
        self.connections.append(connection)

    def operation(self, connection: ServerConnection, number: int) -> Operation:
        found = by_number(number)
        assert found is not None
        return found

    def message(self, connection: ServerConnection, operation: Operation, body: Any) -> None: ...

    def refused(self, connection: ServerConnection, number: int, error: LognodeError) -> None:
        raise AssertionError(error)

    def closed(self, connection: ServerConnection, error: LognodeError) -> None: ...

    def failed(self, number: int, error: Exception) -> None:
        raise AssertionError(error)


def run(test: Callable[[Listener, Server], Awaitable[None]], serve: Serve) -> None:
    async def main() -> None:
        server = Server(serve)
        listener = await acceptor.serve(server, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(60):
                await test(listener, server)
        finally:
            await listener.close()

    asyncio.run(main())


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event announces."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def dial(listener: Listener) -> Connection:
    return await connection.dial("127.0.0.1", listener.port)


class Works:
    """Works that take `cost_s` of a clock of their own to end, in the turn after `end_work`."""

    def __init__(self, cost_s: float) -> None:
        self.cost_s = cost_s
        self.now = 0.0
        self.turns: list[int] = []
        """How many ended in each turn of the loop."""
        self.abandoned = Abandoned(lambda: self.now)

    def give_up(self, count: int) -> None:
        for _ in range(count):
            self.abandoned.add("ann", Piece(self))

    async def drain(self) -> list[int]:
        while not self.abandoned.idle:
            self.turns.append(0)
            await asyncio.sleep(0)
        return [count for count in self.turns if count]


class Piece:
    def __init__(self, works: Works) -> None:
        self.works = works

    def end_work(self) -> None:
        asyncio.get_running_loop().call_soon(self.end)

    def end(self) -> None:
        self.works.now += self.works.cost_s
        self.works.turns[-1] += 1
        self.works.abandoned.ended("ann", self)


@pytest.mark.parametrize(("cost_s", "most"), [(0.001, SLICE_MIN), (0.00005, 24), (0.0, SLICE_MAX)])
def test_X1_a_slice_follows_from_the_time_that_works_take_to_end(cost_s: float, most: int) -> None:
    async def main() -> list[int]:
        works = Works(cost_s)
        works.give_up(1_000)
        return await works.drain()

    turns = asyncio.run(main())
    assert sum(turns) == 1_000
    assert most - 4 < max(turns) <= most
    assert min(turns[:-1]) >= SLICE_MIN


def test_a_work_that_cannot_be_ended_keeps_no_other_from_its_end() -> None:
    class Stuck:
        def end_work(self) -> None:
            raise ZeroDivisionError

    async def main() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        works, stuck = Works(0.0), Stuck()
        works.abandoned.add("ann", stuck)
        works.give_up(10)
        while works.abandoned.count("ann") > 1:
            works.turns.append(0)
            await asyncio.sleep(0)
        works.abandoned.ended("ann", stuck)
        assert works.abandoned.idle
        return told

    (told,) = asyncio.run(main())
    assert isinstance(told["exception"], ZeroDivisionError)


def test_a_work_that_ends_by_itself_is_not_ended_again() -> None:
    async def main() -> int:
        works = Works(0.0)
        piece = Piece(works)
        works.abandoned.add("ann", piece)
        works.abandoned.ended("ann", piece)
        return len(await works.drain())

    assert asyncio.run(main()) == 0


class Served:
    """What serves requests until it is ended, and counts how many ends a turn of the loop has."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.ends: list[int] = [0]
        self.hold: asyncio.Event | None = None
        """While this is there and not set, no request ends."""

    async def serve(self, request: Request) -> dict[str, Any]:
        self.begun += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self.hold is not None:
                await self.hold.wait()
            self.ended += 1
            self.ends[-1] += 1
        return {}

    async def count_turns(self) -> None:
        while True:
            self.ends.append(0)
            await asyncio.sleep(0)

    async def ask(self, link: Connection, count: int) -> list[asyncio.Task[Any]]:
        before = self.begun
        asked = [asyncio.ensure_future(ask(link)) for _ in range(count)]
        await eventually(lambda: self.begun == before + count)
        return asked


async def ask(link: Connection) -> None:
    try:
        await link.request(LOOSE, {})
    except LognodeError:
        return


def served(test: Callable[[Listener, list[ServerConnection], Served], Awaitable[None]]) -> None:
    made = Served()
    run(lambda listener, server: test(listener, server.connections, made), made.serve)


@pytest.mark.parametrize("leaves", [True, False])
def test_X1_requests_of_a_client_that_leaves_or_cancels_end_in_slices(leaves: bool) -> None:
    """All ended in one turn of the loop, which took more than 100 ms."""

    async def test(listener: Listener, connections: list[ServerConnection], made: Served) -> None:
        link = await dial(listener)
        asked = await made.ask(link, ASKED)
        turns = asyncio.ensure_future(made.count_turns())
        if leaves:
            connections[0].abort(LognodeError("gone"))
        else:
            for each in asked:
                each.cancel()
        await eventually(lambda: made.ended == ASKED)
        turns.cancel()
        link.close()
        assert max(made.ends) <= SLICE_MAX
        await eventually(lambda: listener.abandoned.idle)

    served(test)


def test_X1_a_client_that_reconnects_waits_for_the_end_of_its_old_requests() -> None:
    async def test(listener: Listener, connections: list[ServerConnection], made: Served) -> None:
        made.hold = asyncio.Event()
        requests = listener.budgets.clients.requests
        for count in (ASKED - 1, 1):
            link = await dial(listener)
            await made.ask(link, count)
            link.close()
            await eventually(lambda: connections[-1].lost is not None)
        assert listener.connections == 0 or not made.ended
        await eventually(lambda: listener.connections == 0)
        assert listener.abandoned.count("127.0.0.1") == ASKED
        assert requests.held >= ASKED * limits.request_overhead_bytes, "they cost memory still"
        link = await dial(listener)
        late = asyncio.ensure_future(ask(link))
        await eventually(lambda: connections[-1].busy)
        for _ in range(20):
            await asyncio.sleep(0)
        assert made.begun == ASKED
        made.hold.set()
        await eventually(lambda: made.begun == ASKED + 1)
        link.close()
        await late
        await eventually(lambda: listener.abandoned.idle and not requests.principals)

    served(test)


def test_X1_cancelled_requests_count_on_their_connection_until_they_have_ended() -> None:
    async def test(listener: Listener, connections: list[ServerConnection], made: Served) -> None:
        made.hold = asyncio.Event()
        link = await dial(listener)
        for each in await made.ask(link, ASKED):
            each.cancel()
        await eventually(lambda: connections[0].in_flight == 0)
        late = asyncio.ensure_future(ask(link))
        await eventually(lambda: connections[0].busy)
        assert made.begun == ASKED
        made.hold.set()
        await eventually(lambda: made.begun == ASKED + 1)
        link.close()
        await late

    served(test)


def test_a_request_that_was_given_up_makes_no_answer_without_room() -> None:
    made: list[str] = []
    given_up = asyncio.Event()

    async def serve(request: Request) -> dict[str, Any]:
        made.append("begun")
        await given_up.wait()
        await request.room()
        made.append("answer")
        return {}

    async def test(listener: Listener, server: Server) -> None:
        link = await dial(listener)
        asked = asyncio.ensure_future(ask(link))
        await eventually(lambda: bool(made))
        (request,) = server.connections[0]._requests.values()
        server.connections[0].abort(LognodeError("gone"))
        request.connection._abandoned._left.clear()  # it is not this one's turn yet
        given_up.set()
        await eventually(lambda: listener.abandoned.idle)
        await asked
        assert made == ["begun"]

    run(test, serve)
