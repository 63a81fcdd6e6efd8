"""The end of a listening socket, with nobody left between accepted and known."""

import asyncio


async def end_listening(server: asyncio.Server) -> None:
    """Close it; each connection that it has accepted is known to its protocol soon after.

    asyncio takes a connection from the socket in one turn of the loop and makes a transport of it
    in the next. Where the server was closed in between that fails (CPython gh-109564), and a socket
    is left that nobody closes. So first no more are taken, and a turn passes.
    """
    loop = asyncio.get_running_loop()
    for socket in server.sockets:
        loop.remove_reader(socket.fileno())
    await asyncio.sleep(0)
    server.close()
