"""Bring the feature level of the cluster to this node's data directory and to the ranges.

The metadata says which level the cluster has. A range follows by a command in its own log, which
its leader proposes here: members that apply that entry change their rules at the same entry. The
directory notes the level, so that a program that does not know the level ends at its start. The
rule is in `rules.levels`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...client.protocol.errors import LognodeError, Unsupported
from ...client.protocol.levels import LEVEL_MAX, LEVEL_MIN, missing
from ...raft.types import GroupId
from ...statemachine import commands
from ...statemachine.meta import MetaStore
from ..directory import feature_level, meta_keys
from ..metadata.view import View
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..rules.levels import REPEAT_S, may_propose, ranges_may_rise, to_note
from ..runtime.slices import one_by_one
from ..runtime.sync_thread import SyncThread

_PERIOD_S: Final = 1.0


class Levels:
    """Runs on every node.

    `view` is the cluster as this node knows it. `sync` runs what writes to `meta`. `on_end` gets
    the error that ends this node.
    """

    def __init__(
        self,
        *,
        host: Host,
        view: View,
        meta: MetaStore,
        sync: SyncThread,
        on_end: Callable[[LognodeError], None],
        metrics: Metrics,
    ) -> None:
        self._host = host
        self._view = view
        self._meta = meta
        self._sync = sync
        self._on_end = on_end
        self.noted: int = meta.get(meta_keys.LEVEL) or LEVEL_MIN
        """The level that the directory has noted, durably."""
        self._proposed: dict[GroupId, float] = {}
        """When a level was last proposed to a range."""
        self._reached: tuple[int, Sequence[RangeReplica]] = (LEVEL_MIN, ())
        """A level, and the ranges of this node when all of them had reached the level."""
        metrics.feature_level.set_function(lambda: view.metadata.feature_level)
        metrics.feature_level_max.set(LEVEL_MAX)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_PERIOD_S)

    async def look(self) -> None:
        """Do once what is due."""
        metadata = self._view.metadata
        why = missing(metadata.feature_level)
        if why is not None:
            self._on_end(Unsupported(why))
            return
        level = to_note(metadata, self.noted)
        if level is not None:
            await self._sync.run(partial(feature_level.note, self._meta, level))
            self.noted = level
        if ranges_may_rise(metadata, self._view.programs):
            await self._propose(metadata.feature_level)

    async def _propose(self, level: int) -> None:
        """As leader, propose the level to the ranges that are below it."""
        ranges, reached = self._host.ranges(), self._reached
        if reached[0] >= level and reached[1] is ranges:
            return  # no range has begun since, and the level of a range never falls
        now = time.monotonic()
        self._proposed = {gid: at for gid, at in self._proposed.items() if now - at < REPEAT_S}
        below = [each for each in ranges if each.state.level < level]
        if not below:
            self._reached = (level, ranges)
        async for replica in one_by_one(below):
            proposed_at = self._proposed.get(replica.gid)
            if replica.stopped or not may_propose(replica.state.level, level, proposed_at, now):
                continue
            if replica.propose_in_passing(commands.LEVEL, level):
                self._proposed[replica.gid] = now
