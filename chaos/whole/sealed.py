"""TLS of asyncio over simulated sockets, as asyncio's loops make it over real ones.

Only HTTP uses this: the product's own protocol has its TLS inside (`client/protocol/tls.py`).
OpenSSL draws its own entropy, so ciphertext is not a function of the seed. Its lengths are, with
the certificates of this folder.
"""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loop import SimLoop


async def sealed(
    loop: "SimLoop", context: ssl.SSLContext, protocol: asyncio.BaseProtocol,
    attach: Callable[[asyncio.BaseProtocol], Awaitable[Any]], *, host: str | None,
    handshake_s: float | None,
) -> tuple[Any, asyncio.BaseProtocol]:  # fmt: skip
    """Return the transport inside TLS of a new connection, and its protocol.

    `attach` gives a connection to the protocol that it gets. `host`: the name that the other side
    must have; None on the accepting side. Raises ssl.SSLError and OSError.
    """
    made = loop.create_future()
    outer: Any = SSLProtocol(
        loop, protocol, context, made, server_side=host is None, server_hostname=host,
        ssl_handshake_timeout=handshake_s,  # type: ignore[arg-type]  # any number
    )  # fmt: skip
    transport = outer._app_transport
    await attach(outer)
    try:
        await made
    except BaseException:
        transport.close()
        raise
    return transport, protocol
