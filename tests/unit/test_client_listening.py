"""An entrance that closes in the very moment in which somebody is accepted leaves no socket behind;
and it never holds more sockets than it may."""

import asyncio
import contextlib
import gc
import socket
import warnings

import pytest

from lognode.client.accepting.handshake_turns import Pace, arrivals_share, burst_s
from lognode.client.accepting.listening import Entrance


class Guest(asyncio.Protocol):
    """Told of its connection, which it ends unless it is to stay."""

    def __init__(
        self, entrance: list[Entrance], made: list[asyncio.Transport], stays: bool
    ) -> None:
        self._entrance = entrance
        self._made = made
        self._stays = stays

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._made.append(transport)
        if not self._stays:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._entrance[0].gone(self)


def entrance(
    made: list[asyncio.Transport], *, sockets_max: int = 10, stays: bool = False
) -> Entrance:
    found: list[Entrance] = []
    found.append(Entrance(lambda: Guest(found, made, stays), sockets_max=sockets_max))
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("turns", range(5))
def test_L4_a_connection_accepted_while_the_listener_closes_is_known(turns: int) -> None:
    async def main() -> list[asyncio.Transport]:
        made: list[asyncio.Transport] = []
        door = entrance(made)
        await door.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", door.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await door.close()
            for _ in range(4):
                await asyncio.sleep(0)
        assert door.sockets == 0
        return made

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = asyncio.run(main())
        gc.collect()
    assert not found, "nobody closed what was accepted"
    if turns >= 2:
        assert len(made) == 1


def test_a_connection_accepted_as_the_loop_ends_is_closed() -> None:
    """The end of a loop cancels its tasks before they have begun."""

    async def main() -> None:
        door = entrance([])
        await door.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", door.port)):
            door._accept(door._listening[0])
            for task in door._making:
                task.cancel()
            for _ in range(4):
                await asyncio.sleep(0)
            assert door.sockets == 0
            await door.close()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert not found, "nobody closed what was accepted"


def test_open_sockets_are_bounded_and_waiting_clients_get_their_turn() -> None:
    async def main() -> None:
        made: list[asyncio.Transport] = []
        door = entrance(made, sockets_max=3, stays=True)
        await door.listen("127.0.0.1", 0)
        clients = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(10)]
        for at in range(10):
            async with asyncio.timeout(5):
                while len(made) < min(10, at + 3):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert door.sockets == min(3, 10 - at)
            made[at].abort()
        for client in clients:
            client.close()
        await door.close()

    asyncio.run(main())


def test_newcomers_wait_while_short_visitors_have_used_their_time() -> None:
    class Clock:
        now = 0.0

    async def main() -> None:
        made: list[asyncio.Transport] = []
        door = entrance(made, stays=True)
        door._pace = Pace(arrivals_share, lambda: Clock.now, lambda: 10 * Clock.now)
        await door.listen("127.0.0.1", 0)
        door.spent(2 * burst_s)
        with socket.create_connection(("127.0.0.1", door.port)):
            await asyncio.sleep(0.05)
            assert door.sockets == 0
            Clock.now += 0.9 * burst_s / arrivals_share
            await asyncio.sleep(0.05)
            assert door.sockets == 0
            Clock.now += 0.2 * burst_s / arrivals_share
            async with asyncio.timeout(5):
                while not made:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        await door.close()
        for transport in made:
            transport.abort()

    asyncio.run(main())


def test_an_entrance_that_rests_can_be_closed() -> None:
    async def main() -> None:
        door = entrance([])
        door._pace = Pace(arrivals_share, lambda: 1.0, lambda: 1.0)
        door.spent(1.0)
        await door.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", door.port)) as client:
            await asyncio.sleep(0.02)
            await door.close()
            await asyncio.sleep(0.02)
            client.setblocking(False)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert door.sockets == 0

    asyncio.run(main())


def test_nobody_is_let_in_where_the_factory_refuses() -> None:
    async def main() -> None:
        door = Entrance(lambda: None, sockets_max=3)
        await door.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", door.port)) as client:
            client.setblocking(False)
            async with asyncio.timeout(5):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        assert door.sockets == 0
        await door.close()

    asyncio.run(main())


def test_an_address_that_is_taken_is_told_and_nothing_is_left_open() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            door = entrance([])
            with pytest.raises(OSError, match="in use"):
                await door.listen("127.0.0.1", taken.getsockname()[1])
            assert door.port == 0
            await door.close()

    asyncio.run(main())
