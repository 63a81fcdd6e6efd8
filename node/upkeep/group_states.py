"""Makes ranges forget the state of consumer groups that were deleted."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ..replicas.range_replica import RangeReplica

_PERIOD_S: Final = 5.0
_RANGES_A_TURN: Final = 64


class GroupStates:
    """Looks at the ranges of this node. `ranges` returns these."""

    def __init__(self, ranges: Callable[[], Iterable[RangeReplica]]) -> None:
        self._ranges = ranges
        self._forget: Callable[[RangeReplica], None] | None = None

    def forget_with(self, forget: Callable[[RangeReplica], None]) -> None:
        """Set what proposes, on a leader, to forget the groups that were deleted."""
        self._forget = forget

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            for at, replica in enumerate(list(self._ranges())):
                if at % _RANGES_A_TURN == 0:
                    await asyncio.sleep(0)
                if replica.leads and replica.state.groups and self._forget is not None:
                    self._forget(replica)
