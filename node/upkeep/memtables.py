"""When memtables are frozen, and in which order their segments are built.

A range's leader proposes FREEZE when its memtable is full, old or cold. Every member freezes at
that index, so that all build the same segments. A member freezes alone only where it must: no
leader is known, or the node's memtables together hold too much. Freezing takes no time. Frozen
memtables wait in a queue for the one builder process, and appends are refused only when the hard
limits are reached.
"""

import asyncio
import time
from collections.abc import Generator
from operator import itemgetter

from ...client.protocol import limits
from ...raft.wal import Wal
from ..directory.disk_room import DiskRoom
from ..replicas.flush import Flusher
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.replica import Memory
from ..runtime.slices import stepped

_PERIOD_S = 0.25
_IDLE_PERIOD_S = 5.0
_RETRY_S = 5.0
_PATIENCE = 2
"""A member that gets no FREEZE freezes alone at this many times the size and age limits."""


class Memtables:
    """Freezes memtables and builds their segments. Runs on every node."""

    def __init__(
        self, *, host: Host, wal: Wal, flusher: Flusher, memory: Memory, room: DiskRoom
    ) -> None:
        self._room = room
        self._host = host
        self._wal = wal
        self._flusher = flusher
        self._memory = memory
        self._turn = asyncio.Lock()
        self._frozen = asyncio.Event()
        self._seen_round = 0
        self._look_at = 0.0

    async def watch(self) -> None:
        """Freeze memtables that are due. Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            now = time.monotonic()
            if self._wal.open_round == self._seen_round and now < self._look_at:
                continue  # nothing was written since: only age can make a freeze due
            self._seen_round, self._look_at = self._wal.open_round, now + _IDLE_PERIOD_S
            await self.look(now)

    async def build(self) -> None:
        """Build segments of frozen memtables. Run until cancelled."""
        while True:
            replica = self._next(time.monotonic())
            if replica is None:
                self._frozen.clear()
                await self._frozen.wait()
            else:
                if not await self._flusher.try_flush_oldest(replica):
                    replica.put_off_flushes(time.monotonic() + _RETRY_S)
                await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Check all memtables once, in slices of the loop's time; one look follows the other."""
        async with self._turn:
            await stepped(self._look(now))

    def _look(self, now: float) -> Generator[None, None, None]:
        held = frozen = most = 0
        live: list[tuple[int, RangeReplica]] = []
        for replica in self._host.ranges():
            if not replica.stopped and replica.state.unflushed:
                self._freeze_if_due(replica, now)
                own = replica.state.frozen_bytes
                size = replica.state.memtable.size
                held, frozen, most = held + own + size, frozen + own, max(most, own)
                if len(replica.state.memtable):
                    live.append((size, replica))
                if self._may_build(replica, now):
                    self._frozen.set()
            yield
        self._memory.measured(held, most)
        excess = held - self._room.memtables_bytes_max - frozen
        if excess > 0:
            live.sort(key=itemgetter(0), reverse=True)
            yield from self._relieve(live, excess, now)

    def _freeze_if_due(self, replica: RangeReplica, now: float) -> None:
        if replica.freeze_proposed:
            return
        live = replica.state.memtable
        if replica.leads and len(live):
            is_old = replica.memtable_age_s(now) > limits.memtable_age_s
            if replica.cooling.is_cold(live.size, now) or is_old:
                replica.propose_freeze()
        elif self._overdue(replica, now):
            replica.freeze()

    def _overdue(self, replica: RangeReplica, now: float) -> bool:
        """Whether the replica must freeze alone.

        Where only tables have changed, no file is built, and the members need not freeze at one
        index.
        """
        live = replica.state.memtable
        patience = _PATIENCE if len(live) else 1
        return (
            replica.memtable_age_s(now) > patience * limits.memtable_age_s
            or live.size >= patience * limits.memtable_bytes_max
        )

    def _relieve(
        self, live: list[tuple[int, RangeReplica]], excess: int, now: float
    ) -> Generator[None, None, None]:
        """Freeze live memtables, the largest first, until their bytes cover the excess.

        `live`: the sizes and replicas, the largest first.
        """
        for size, replica in live:
            if excess <= 0:
                return
            excess -= size
            if not replica.stopped and len(replica.state.memtable):
                if replica.leads:
                    replica.propose_freeze()
                else:
                    replica.freeze()
                if self._may_build(replica, now):
                    self._frozen.set()
            yield

    def _may_build(self, replica: RangeReplica, now: float) -> bool:
        """Whether the replica has a frozen memtable whose file may be built and has room."""
        queue = replica.state.queue
        return (
            bool(queue)
            and not replica.stopped
            and replica.may_flush(now)
            and self._room.may_build(queue[0].memtable.unpacked_bytes)
        )

    def _next(self, now: float) -> RangeReplica | None:
        """Return the replica with the most frozen bytes whose next file fits on the disk."""
        waiting = [
            replica
            for replica in self._host.ranges()
            if replica.state.queue and self._may_build(replica, now)
        ]
        return max(waiting, key=lambda replica: replica.state.frozen_bytes, default=None)
