"""Ranges led here that are busier than the policy of their log wants: where their load halves, or
the key that has most of it.

What is to be split travels with the heartbeat to the controller's leader, like ranges that are too
large (`large.py`). A hot key helps nobody there: whoever asks for the status is told of it.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from ...client.protocol import limits
from ...partitions.load_sample import Halves, HotKey
from ...partitions.load_split import LOOK_S, LoadSplit, rests
from ...partitions.planner import Large
from ...raft.types import GroupId
from ..metadata.view import View
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import in_slices

_LOOKING_SHARE: Final = 20
"""Looks at all ranges take at most such a part of the time."""
_TAIL_BYTES: Final = 16 * limits.MIB
"""In memory: appends wait at a split while that is made a segment, and what came meanwhile."""


class HotRanges:
    """Runs on every node. A range that was split is left alone for `rest_s`, by `wall_ms`: by the
    clock of that name the controller's leader dates the ends of operations."""

    def __init__(
        self,
        *,
        host: Host,
        view: View,
        rng: random.Random,
        wall_ms: Callable[[], int],
        rest_s: float,
        metrics: Metrics,
    ) -> None:
        self._host = host
        self._view = view
        self._rng = rng
        self._wall_ms = wall_ms
        self._rest_ms = round(rest_s * 1000)
        self._metrics = metrics
        self.told: list[Large] = []
        """Found at the last look."""
        self._looked: dict[GroupId, LoadSplit] = {}

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(LOOK_S, _LOOKING_SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Go over all ranges once."""
        looked: dict[GroupId, LoadSplit] = {}
        told = await in_slices(self._looks(looked))
        self._looked = looked
        self.told = [each for each in told if each is not None]
        hot = sum(isinstance(load.found, HotKey) for load in looked.values())
        self._metrics.hot_ranges.set(hot)

    def _looks(self, looked: dict[GroupId, LoadSplit]) -> Iterator[Large | None]:
        for replica in self._host.ranges():
            bound = self._bound_of(replica)
            if bound is None:
                replica.sample = replica.hot_key = None
                continue
            load = looked[replica.gid] = self._looked.get(replica.gid) or LoadSplit(self._rng)
            load.look(time.monotonic(), replica.load.used, bound)
            replica.sample = load.sample
            replica.hot_key = load.found if isinstance(load.found, HotKey) else None
            if isinstance(load.found, Halves) and self._may_split(replica):
                yield Large(*replica.gid, load.rate, load.found.at, by_load=True)
            else:
                yield None

    def _bound_of(self, replica: RangeReplica) -> int | None:
        """What the range may be asked for a second; None: anything, or it is not for this node to
        say."""
        if not replica.leads or replica.is_sealed:
            return None
        policy = self._view.policy(replica.descriptor.log_id)
        return None if policy is None else policy.split_rate

    def _may_split(self, replica: RangeReplica) -> bool:
        """Whether its last operation has ended, as far as this node knows, and for long enough, and
        little is in memory. While much is, that goes first, as often as it takes: where builders
        fall behind what is appended, a split would stop the range for longer than it is worth."""
        metadata, gid, state = self._view.metadata, replica.gid, replica.state
        range_ = metadata.ranges.get(gid.range_id)
        if range_ is None or range_.generation != gid.generation or range_.operation:
            return False
        if rests(metadata.last_operations.get(gid.range_id), self._wall_ms(), self._rest_ms):
            return False
        if state.memtable_bytes > _TAIL_BYTES and not state.queue:
            replica.propose_freeze()
        return state.memtable_bytes <= _TAIL_BYTES
