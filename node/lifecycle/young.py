"""Replicas of new ranges that are not settled yet: their number at one time is limited.

A new range costs an election. Thousands of elections at once delay each other's messages until they
time out and begin again, and they delay older ranges too. All members begin the ranges of a log in
the same order, so that members are mostly busy with the same ranges.

A leader sends heartbeats to members that have not begun the range yet, and its group cannot rest
before they have. A node that began ranges faster than others would flood the others with
heartbeats, and make them slower still. So a range that this node leads is settled once all members
that are up follow the leader.
"""

import asyncio
import time
from typing import Final
from weakref import WeakKeyDictionary

from ..replicas.range_replica import RangeReplica

YOUNG_MAX: Final = 128
_PATIENCE_S: Final = 5.0
"""A range that is not settled by then waits for a member that cannot begin it. Other ranges no
longer wait for it."""
_POLL_S: Final = 0.02


class Young:
    """The unsettled replicas that were begun here."""

    def __init__(self) -> None:
        self._begun: WeakKeyDictionary[RangeReplica, float] = WeakKeyDictionary()
        """When each was begun; a retired replica is not kept alive here."""
        self._turn = asyncio.Lock()

    def add(self, replica: RangeReplica) -> None:
        """Note that the replica was begun now."""
        self._begun[replica] = time.monotonic()

    async def few(self) -> None:
        """Return when another replica may be begun."""
        async with self._turn:
            while self._count() >= YOUNG_MAX:  # noqa: ASYNC110  leaders send no notice
                await asyncio.sleep(_POLL_S)

    def _count(self) -> int:
        since = time.monotonic() - _PATIENCE_S
        for replica, at in list(self._begun.items()):
            if at <= since or replica.stopped or replica.is_settled:
                del self._begun[replica]
        return len(self._begun)
