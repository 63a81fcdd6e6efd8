"""TLS over a socket that is read only when the attack says so.

asyncio's own TLS reads ahead: an attack that does not read would read after all.
"""

import argparse
import asyncio
import socket
import ssl

_READ_BYTES = 1 << 16


def context(options: argparse.Namespace) -> ssl.SSLContext | None:
    """TLS 1.3 with the files of the options; None without them."""
    if not options.ca:
        return None
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.minimum_version = ssl.TLSVersion.TLSv1_3
    found.load_verify_locations(options.ca)
    if options.cert:
        found.load_cert_chain(options.cert, options.private)
    return found


class Channel:
    """What passes over a connected socket, which does not block: plain until `secure` is done."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._into, self._out_of = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Shake hands. Raises OSError."""
        tls = context.wrap_bio(self._into, self._out_of, server_hostname=host)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
        await self._flush()
        self._tls = tls

    async def recv(self, size: int = _READ_BYTES) -> bytes:
        """Read some bytes; b"" at the end. Raises OSError."""
        if self._tls is None:
            return await self._loop.sock_recv(self.sock, size)
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                await self._fill()
            except ssl.SSLError:
                return b""

    async def sendall(self, data: bytes) -> None:
        """Write all of it; wait for as long as the other side does not take it. Raises OSError."""
        if self._tls is None:
            await self._loop.sock_sendall(self.sock, data)
            return
        for at in range(0, len(data), _READ_BYTES):  # as much as is buffered at a time
            self._tls.write(data[at : at + _READ_BYTES])
            await self._flush()

    async def _flush(self) -> None:
        if data := self._out_of.read():
            await self._loop.sock_sendall(self.sock, data)

    async def _fill(self) -> None:
        data = await self._loop.sock_recv(self.sock, _READ_BYTES)
        if not data:
            raise ConnectionError("the node has ended the connection")
        self._into.write(data)
