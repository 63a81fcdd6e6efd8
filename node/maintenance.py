"""What has to be done now and then: flush full or old memtables, free WAL files, watch the loop."""

import asyncio
import logging
import time

from ..client import limits
from ..raft.wal import Wal
from .controller_replica import ControllerReplica
from .flush import Flusher
from .host import Host
from .metrics import Metrics
from .range_replica import RangeReplica
from .rounds import Rounds
from .sync_thread import SyncThread

_PERIOD_S = 0.25
_WAL_FILES_MAX = 6
"""Above it the ranges that pin the oldest file are flushed, however small their memtables."""
_WAL_FILES_CONTROLLER = 2
"""Above it the controller's metadata is checkpointed when it pins the oldest file: it is small."""
_WAL_FILES_PINNED_MAX = 64
"""Above it the log is no longer kept for those who fetch a base: they will need another one."""
_RETRY_S = 5.0
_PRODUCERS_S = 60.0

log = logging.getLogger("lognode.maintenance")


class Maintenance:
    """Runs on every node."""

    def __init__(
        self,
        *,
        host: Host,
        wal: Wal,
        sync: SyncThread,
        rounds: Rounds,
        flusher: Flusher,
        metrics: Metrics,
    ) -> None:
        self._host = host
        self._wal = wal
        self._sync = sync
        self._rounds = rounds
        self._flusher = flusher
        self._metrics = metrics
        self._not_before: dict[object, float] = {}
        self._producers_due = time.monotonic() + _PRODUCERS_S
        self._lag = 0.0
        self._lag_until = 0.0

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            due = time.monotonic() + _PERIOD_S
            await asyncio.sleep(_PERIOD_S)
            self._note_lag(time.monotonic() - due)
            self._measure()
            for replica in self._to_flush():
                if not await self._flusher.try_flush(replica):
                    self._not_before[replica.gid] = time.monotonic() + _RETRY_S
            await self._unpin_wal()
            self._retire_producers()
            await self._reclaim_wal()

    def _retire_producers(self) -> None:
        now = time.monotonic()
        if now < self._producers_due:
            return
        self._producers_due = now + _PRODUCERS_S
        for replica in self._host.ranges():
            replica.retire_unused_producers()

    async def _unpin_wal(self) -> None:
        """Checkpoint the groups whose entries keep the oldest WAL file, and cut their logs.

        Without it a range that is written once and then idle would keep all files after its own.
        """
        pins = self._wal.oldest_pins()
        oldest = min(pins.values(), default=0)
        for gid in [gid for gid, file in pins.items() if file == oldest]:
            replica = self._host.groups.get(gid)
            if replica is None or replica.stopped:
                continue
            if isinstance(replica, ControllerReplica):
                if self._wal.file_count > _WAL_FILES_CONTROLLER and not replica.is_sealed:
                    await self._host.checkpoint_controller(replica)
            elif isinstance(replica, RangeReplica) and self._wal.file_count > _WAL_FILES_MAX:
                if self._wal.file_count > _WAL_FILES_PINNED_MAX:
                    replica.log_pins.clear()
                await self._flusher.release(replica)

    async def _reclaim_wal(self) -> None:
        files = self._wal.reclaim()
        self._rounds.kick()
        if files:
            await self._sync.run(lambda: self._wal.let_go(files))

    def _to_flush(self) -> list[RangeReplica]:
        now = time.monotonic()
        replicas = [
            replica
            for replica in self._host.ranges()
            if not replica.stopped
            and not replica.flushing
            and replica.state.unflushed
            and self._not_before.get(replica.gid, 0.0) <= now
        ]
        full = [
            r
            for r in replicas
            if r.state.memtable_full or now - r.memtable_since > limits.memtable_age_s
        ]
        if not full and replicas:
            total = sum(r.state.memtable_bytes for r in replicas)
            if total > limits.memtables_bytes_max:
                full = [max(replicas, key=lambda r: r.state.memtable_bytes)]
        return full

    def _note_lag(self, lag: float) -> None:
        now = time.monotonic()
        if lag > self._lag or now > self._lag_until:
            self._lag, self._lag_until = lag, now + 10.0

    def _measure(self) -> None:
        metrics = self._metrics
        metrics.loop_lag_seconds.set(self._lag)
        roles = {"leader": 0, "follower": 0, "candidate": 0}
        for replica in self._host.groups.values():
            roles[replica.group.role] += 1
        for role, count in roles.items():
            metrics.replicas.labels(role).set(count)
        idle = sum(replica.group.idle for replica in self._host.groups.values())
        metrics.idle_replicas.set(idle)
        metrics.damaged_replicas.set(len(self._host.damaged))
        metrics.memtable_bytes.set(sum(r.state.memtable_bytes for r in self._host.ranges()))
