"""Clients' turns to change the metadata: a few requests of each principal at a time.

A node that does not lead the controller hands such a request on over its one link to the node that
does, and heartbeats go over that link too. With thousands of requests under way the link took no
more, heartbeats waited behind the requests until their time was up, and the controller called
nodes DEAD. So a principal has a few requests under way and all principals together have a few more,
far fewer than a connection takes. The others wait at the node where they came in, at the cost of
whoever sent them, and principals take turns.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...client.protocol import limits

T = TypeVar("T")


class CommandTurns:
    """All calls on the loop's thread."""

    def __init__(
        self,
        each_max: int = limits.commands_per_principal_max,
        all_max: int = limits.commands_under_way_max,
    ) -> None:
        self._each_max = each_max
        self._all_max = all_max
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By principal. Of those with equally few under way the first one comes first."""

    async def run(self, principal: str, work: Coroutine[Any, None, T]) -> T:
        """Do the work of a request of the principal in its turn."""
        try:
            await self._begin(principal)
        except BaseException:
            work.close()
            raise
        try:
            return await work
        finally:
            self._end(principal)

    async def _begin(self, principal: str) -> None:
        if principal not in self._waiting and self._may(principal):
            self._under_way[principal] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(principal)  # the turn came, and nobody takes it
            raise

    def _may(self, principal: str) -> bool:
        return (
            self._under_way.total() < self._all_max and self._under_way[principal] < self._each_max
        )

    def _end(self, principal: str) -> None:
        self._under_way[principal] -= 1
        if not self._under_way[principal]:
            del self._under_way[principal]
        for other in sorted(self._waiting, key=self._under_way.__getitem__):
            if self._may(other):
                self._give(other)

    def _give(self, principal: str) -> None:
        """Give the principal's first request that still waits its turn. Others that have as many
        under way come before its next one."""
        line = self._waiting.pop(principal)
        while line:
            turn = line.popleft()
            if not turn.done():
                self._under_way[principal] += 1
                turn.set_result(None)
                break
        if line:
            self._waiting[principal] = line
