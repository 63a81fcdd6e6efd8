"""Turns of long polls: a client leaves most requests of a connection to everything else.

Each range of each consumer asks its leader, which may take its time. A connection has a bounded
number of requests under way. With more ranges than turns, every poll is short, so that all get a
turn, and acknowledgements never wait behind polls.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

polls_max: Final = 512
"""Half of the requests that one connection may have under way."""
wait_ms_default: Final = 10_000
"""How long a leader waits for a key. The connection notices sooner that a node is lost."""
_WAIT_SHORT_MS: Final = 250


class PollTurns:
    """The turns of one client. Each poller calls `joined` once, and `left` at its end."""

    def __init__(self, most: int = polls_max) -> None:
        self._most = most
        self._turns = asyncio.Semaphore(most)
        self._pollers = 0

    @property
    def wait_ms(self) -> int:
        """How long a poll may take now."""
        return wait_ms_default if self._pollers <= self._most else _WAIT_SHORT_MS

    def joined(self) -> None:
        """Note another poller."""
        self._pollers += 1

    def left(self) -> None:
        """Note that a poller has ended."""
        self._pollers -= 1

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Wait for a turn, and have it in the context."""
        async with self._turns:
            yield
