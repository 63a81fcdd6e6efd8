"""The statuses that askers look at: one status serves all who ask for it within a second.

A status has a row for each range of the cluster, and a page of the console asks again and again. So
the door makes one status for each client, which askers with the same token share, and few statuses
at a time.
"""

import asyncio
from typing import Any, Final

from ...client.client import AsyncClient

Status = dict[str, Any]
_KEPT_S: Final = 1.0
"""The largest age of a status."""
_AT_A_TIME: Final = 4


class Looks:
    """Gets statuses, and keeps each for a second."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_AT_A_TIME)
        self._looks: dict[AsyncClient, asyncio.Task[Status]] = {}

    def __len__(self) -> int:
        return len(self._looks)

    async def status(self, client: AsyncClient) -> Status:
        """Return the status that the client sees, which no caller may change. Raises the errors of
        `AsyncClient.status`."""
        look = self._looks.get(client)
        if look is None:
            look = self._looks[client] = asyncio.create_task(self._look(client))
            look.add_done_callback(lambda done: self._ended(client, done))
        return await asyncio.shield(look)

    async def _look(self, client: AsyncClient) -> Status:
        async with self._room:
            return await client.status()

    def _ended(self, client: AsyncClient, look: asyncio.Task[Status]) -> None:
        failed = look.cancelled() or look.exception() is not None
        asyncio.get_running_loop().call_later(
            0.0 if failed else _KEPT_S, self._looks.pop, client, None
        )
