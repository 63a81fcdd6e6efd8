"""Metadata that are surely as new as a request: one question serves many requests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_AGAIN_S: Final = 0.1
"""The pause after a question that the controller's leader did not answer."""


class FreshMetadata:
    """Brings this node's metadata up to date, once for all requests that wait.

    `confirmed` brings the metadata up to those of a leader of the controller that a quorum has
    confirmed, and returns whether such a leader answered.
    """

    def __init__(self, confirmed: Callable[[], Awaitable[bool]]) -> None:
        self._confirmed = confirmed
        self._as_of = float("-inf")
        """The metadata have all that was committed by this time."""
        self._lock = asyncio.Lock()

    async def since(self, moment: float) -> None:
        """Return when the metadata have all that was committed by `moment`, a past time of the
        loop. While no leader of the controller answers, this does not return."""
        loop = asyncio.get_running_loop()
        while self._as_of < moment:
            async with self._lock:
                if self._as_of >= moment:
                    return
                begun = loop.time()
                if await self._confirmed():
                    self._as_of = begun
                    return
            await asyncio.sleep(_AGAIN_S)
