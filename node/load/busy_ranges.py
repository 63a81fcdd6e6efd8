"""Finds ranges led here that are busier than their log's policy allows, and where to split them.

The result is the key at which the load halves, or the hot key that has most of it. Splits are sent
with the heartbeat to the controller's leader, as for large ranges (`large.py`). A hot key cannot be
split, so it is only reported in the status.
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
"""Checks of all ranges take at most one part in this many of the time."""
_TAIL_BYTES: Final = 16 * limits.MIB
"""The limit of memtable bytes at a split: appends wait while these become a segment."""


class HotRanges:
    """Runs on every node.

    A range that was split is left alone for `rest_s`. `wall_ms` must be the clock by which the
    controller's leader dates the ends of operations.
    """

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
        """Ranges to split that the last check found."""
        self._looked: dict[GroupId, LoadSplit] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            began = time.monotonic()
            await self.look()
            await asyncio.sleep(max(LOOK_S, _LOOKING_SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Check all ranges once."""
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
                replica.watch_keys(None, None)
                continue
            load = looked[replica.gid] = self._looked.get(replica.gid) or LoadSplit(self._rng)
            load.look(time.monotonic(), replica.load.used, bound)
            hot = load.found if isinstance(load.found, HotKey) else None
            replica.watch_keys(load.sample, hot)
            if isinstance(load.found, Halves) and self._may_split(replica):
                yield Large(*replica.gid, load.rate, load.found.at, by_load=True)
            else:
                yield None

    def _bound_of(self, replica: RangeReplica) -> int | None:
        """Return the range's limit of requests a second; None: no limit, or not led here."""
        if not replica.leads or replica.is_sealed:
            return None
        policy = self._view.policy(replica.descriptor.log_id)
        return None if policy is None else policy.split_rate

    def _may_split(self, replica: RangeReplica) -> bool:
        """Whether the range has rested since its last operation and has little in memory.

        A large memtable is flushed first, as often as needed. Where builders fall behind
        the appends, a split would stop the range for longer than it is worth.
        """
        metadata, gid, state = self._view.metadata, replica.gid, replica.state
        range_ = metadata.ranges.get(gid.range_id)
        if range_ is None or range_.generation != gid.generation or range_.operation:
            return False
        if rests(metadata.last_operations.get(gid.range_id), self._wall_ms(), self._rest_ms):
            return False
        if state.memtable_bytes > _TAIL_BYTES and not state.queue:
            replica.propose_freeze()
        return state.memtable_bytes <= _TAIL_BYTES
