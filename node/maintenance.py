"""What has to be done now and then: flush full or old memtables, free WAL files, watch the loop."""

import asyncio
import contextlib
import logging
import time
from functools import partial

from ..client import limits
from ..client.errors import CorruptData, LognodeError
from ..raft.types import GroupId
from ..raft.wal import Wal
from .controller_replica import ControllerReplica
from .flush import Flusher
from .host import Host
from .metrics import Metrics
from .range_replica import RangeReplica
from .rounds import Rounds
from .sync_thread import SyncThread

_PERIOD_S = 0.25
_IDLE_PERIOD_S = 5.0
_WAL_FILES_MAX = 6
"""Above it the ranges that pin the oldest file are flushed, however small their memtables."""
_WAL_FILES_CONTROLLER = 2
"""Above it the controller's metadata is checkpointed when it pins the oldest file: it is small."""
_WAL_FILES_PINNED_MAX = 64
"""Above it the log is no longer kept for those who fetch a base: they will need another one."""
_UNPIN_S = 1.0
_RECLAIM_ROUNDS = 8
"""Rounds that one call waits for, to rewrite what is needed of files before they go."""
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
        self._producers_due = time.monotonic() + _PRODUCERS_S
        self._seen_round = 0
        self._look_at = 0.0
        self._lag = 0.0
        self._lag_until = 0.0
        self._export()

    async def run(self) -> None:
        """Never returns; cancel it."""
        while True:
            due = time.monotonic() + _PERIOD_S
            await asyncio.sleep(_PERIOD_S)
            now = time.monotonic()
            self._note_lag(now - due)
            if self._wal.open_round == self._seen_round and now < self._look_at:
                continue  # nothing was written since: only its age can have made something due
            self._seen_round, self._look_at = self._wal.open_round, now + _IDLE_PERIOD_S
            for replica in self._to_flush():
                if not await self._flusher.try_flush(replica):
                    replica.flush_not_before = time.monotonic() + _RETRY_S
            await self._unpin_wal()
            self._retire_producers()
            await self._reclaim_wal()

    def _retire_producers(self) -> None:
        now = time.monotonic()
        if now < self._producers_due:
            return
        self._producers_due = now + _PRODUCERS_S
        for replica in self._host.ranges():
            with contextlib.suppress(LognodeError):  # not now: nobody waits for it
                replica.retire_unused_producers()

    async def _unpin_wal(self) -> None:
        """Checkpoint the groups whose entries keep the oldest WAL file, and cut their logs.

        Without it a range that is written once and then idle would keep all files after its own.
        Hundreds of them take seconds: what is not done in one is left to the next call.
        """
        pins = self._wal.oldest_pins()
        oldest = min(pins.values(), default=0)
        until = time.monotonic() + _UNPIN_S
        for gid in [gid for gid, file in pins.items() if file == oldest]:
            if time.monotonic() > until:
                return
            replica = self._host.groups.get(gid)
            if isinstance(replica, ControllerReplica) and not replica.is_sealed:
                if self._wal.file_count > _WAL_FILES_CONTROLLER and not replica.stopped:
                    await self._host.checkpoint_controller(replica)
            elif self._wal.file_count > _WAL_FILES_MAX:
                if isinstance(replica, RangeReplica) and not replica.stopped:
                    if self._wal.file_count > _WAL_FILES_PINNED_MAX:
                        replica.log_pins.clear()
                    await self._flusher.release(replica)
                self._rewrite(gid, oldest)

    def _rewrite(self, gid: GroupId, oldest: int) -> None:
        """What cannot be checkpointed, since nobody commits it or it is damaged, moves along."""
        raft_log = self._wal.groups.get(gid)
        if raft_log is None or raft_log.oldest_file != oldest:
            return
        try:
            self._wal.rewrite(gid)
        except CorruptData as error:
            replica = self._host.groups.get(gid)
            if replica is not None:
                self._host.damage(replica, error)
        self._rounds.kick()

    async def _reclaim_wal(self) -> None:
        """Let the oldest files go that nothing needs: a bounded piece of work a round."""
        for _ in range(_RECLAIM_ROUNDS):
            files = self._wal.reclaim()
            if files:
                await self._sync.run(partial(self._wal.let_go, files))
                return
            if not self._wal.dirty:
                return
            await self._rounds.durable()

    def _to_flush(self) -> list[RangeReplica]:
        now = time.monotonic()
        replicas = [
            replica
            for replica in self._host.ranges()
            if not replica.stopped
            and not replica.flushing
            and replica.state.unflushed
            and replica.flush_not_before <= now
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

    def _export(self) -> None:
        """Gauges that go over all replicas are computed when they are asked for."""
        metrics, host = self._metrics, self._host
        metrics.loop_lag_seconds.set_function(lambda: self._lag)
        for role in ("leader", "follower", "candidate"):
            metrics.replicas.labels(role).set_function(partial(self._count, role))
        metrics.idle_replicas.set_function(
            lambda: sum(replica.group.idle for replica in host.groups.values())
        )
        metrics.wal_files.set_function(lambda: self._wal.file_count)
        metrics.damaged_replicas.set_function(lambda: len(host.damaged))
        metrics.memtable_bytes.set_function(
            lambda: sum(replica.state.memtable_bytes for replica in host.ranges())
        )

    def _count(self, role: str) -> int:
        return sum(replica.group.role == role for replica in self._host.groups.values())
