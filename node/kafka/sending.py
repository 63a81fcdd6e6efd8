"""Send an answer to a client, which may take the answer slowly, or not at all.

An answer keeps its memory until its client has taken it. A client that takes nothing loses its
connection after half a minute. While other answers wait for memory, it loses the connection after a
few seconds: so clients that take nothing keep the others of their host waiting no longer than that.
"""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from typing import Final

ANSWER_S: Final = 30.0
"""How long a client may take for an answer."""
STALLED_S: Final = 4.0
"""How long a client may take nothing while others wait for memory."""


async def send(
    writer: asyncio.StreamWriter, answer: bytes, *, others_wait: Callable[[], bool]
) -> None:
    """Send an answer; return when the client has taken it, but for what a connection may keep.

    `others_wait` returns whether other answers wait for memory. Raises TimeoutError when the client
    is too slow, and ConnectionError when it has left.
    """
    writer.write(answer)
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_S
    while True:
        left = _left(writer)
        try:
            async with asyncio.timeout_at(min(until, loop.time() + STALLED_S)):
                await writer.drain()
                return
        except TimeoutError:
            if loop.time() >= until or (_left(writer) >= left and others_wait()):
                raise


def _left(writer: asyncio.StreamWriter) -> int:
    """Return how many bytes the client has not acknowledged, those in the kernel included: the
    kernel takes megabytes, and then nothing for seconds from a slow client."""
    if writer.is_closing():
        return 0
    queued = fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    return writer.transport.get_write_buffer_size() + int.from_bytes(queued, sys.byteorder)
