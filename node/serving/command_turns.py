"""Limit the metadata changes of clients: a few requests of each principal at a time.

A node that does not lead the controller forwards such a request over its one link to the leader.
Heartbeats use the same link. With thousands of requests under way the link took no more, heartbeats
waited behind the requests until they timed out, and the controller called nodes DEAD. So each
principal has a few requests under way, and all principals together have a few more, far fewer than
a connection takes. The other requests wait at the node that received them, at the cost of their
sender, and principals take turns.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...client.protocol import limits

T = TypeVar("T")


class CommandTurns:
    """Holds the turns. Every call is on the loop's thread."""

    def __init__(
        self,
        each_max: int = limits.commands_per_principal_max,
        all_max: int = limits.commands_under_way_max,
    ) -> None:
        self._each_max = each_max
        self._all_max = all_max
        self._under_way: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting turns by principal. Among principals with equally many requests under way, the
        first in this dict comes first."""

    async def run(self, principal: str, work: Coroutine[Any, None, T]) -> T:
        """Run the work of a principal's request in the principal's turn."""
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
                self._end(principal)  # the turn was given to a request that is cancelled
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
        """Give a turn to the principal's first request that still waits. The principal then goes
        behind the others that have equally many requests under way."""
        line = self._waiting.pop(principal)
        while line:
            turn = line.popleft()
            if not turn.done():
                self._under_way[principal] += 1
                turn.set_result(None)
                break
        if line:
            self._waiting[principal] = line
