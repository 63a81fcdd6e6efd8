"""Looks after the state of consumer groups in ranges: of deleted groups, and of dead letters."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ..replicas.range_replica import RangeReplica
from ..runtime.slices import one_by_one

_PERIOD_S: Final = 5.0


class GroupStates:
    """Looks at the ranges of this node. `ranges` returns these."""

    def __init__(self, ranges: Callable[[], Iterable[RangeReplica]]) -> None:
        self._ranges = ranges
        self._look: Callable[[RangeReplica], None] | None = None

    def look_with(self, look: Callable[[RangeReplica], None]) -> None:
        """Set what looks, on a leader, after the groups of a range."""
        self._look = look

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            async for replica in one_by_one(list(self._ranges())):
                if replica.leads and replica.state.groups and self._look is not None:
                    self._look(replica)
