"""A listener that ends in the very moment in which somebody is accepted leaves no socket behind."""

import asyncio
import gc
import socket
import warnings

import pytest

from lognode.client.listening import end_listening


class Closing(asyncio.Protocol):
    """Told of each connection, which it ends."""

    def __init__(self, made: list[asyncio.BaseTransport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(transport)
        transport.close()


@pytest.mark.parametrize("turns", range(4))
def test_L4_who_is_accepted_while_the_listener_ends_is_known(turns: int) -> None:
    async def main() -> list[asyncio.BaseTransport]:
        made: list[asyncio.BaseTransport] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Closing(made), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            for _ in range(turns):
                await asyncio.sleep(0)
            await end_listening(server)
            for _ in range(4):
                await asyncio.sleep(0)
        return made

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = asyncio.run(main())
        gc.collect()
    assert not found, "nobody closed what was accepted"
    if turns >= 2:
        assert len(made) == 1
