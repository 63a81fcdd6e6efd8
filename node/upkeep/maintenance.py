"""Periodic work: free WAL files, retire producers, watch the loop."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from functools import partial

from ...client.protocol.errors import CorruptData, LognodeError
from ...raft.types import GroupId
from ...raft.wal import Wal
from ..directory.disk_room import DiskRoom
from ..metrics import Metrics
from ..replicas.controller_replica import ControllerReplica
from ..replicas.flush import Flusher
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..replicas.rounds import Rounds
from ..runtime import turn_time
from ..runtime.slices import one_by_one
from ..runtime.sync_thread import SyncThread

_PERIOD_S = 0.25
_BUSY_PERIOD_S = 0.05
"""Period while there are too many WAL files."""
_IDLE_PERIOD_S = 5.0
_WAL_FILES_MAX = 6
"""Above this number, ranges that pin the oldest file are flushed, however small their memtables."""
_WAL_FILES_SCARCE = 2
"""The same limit with little room on the disk."""
_WAL_FILES_CONTROLLER = 2
"""Above this number, the small metadata of the controller is checkpointed when it pins the oldest
file."""
_WAL_FILES_PINNED_MAX = 64
"""Above this number, the log is no longer kept for members that fetch a base: they will need
another base."""
_UNPIN_S = 1.0
_RECLAIM_ROUNDS = 8
"""Rounds that one call waits for, to rewrite the needed parts of files before the files go."""
_PRODUCERS_S = 60.0
_COUNTED_S = 0.1
"""How long counts over all replicas serve the gauges of a page of metrics."""
_WINDOW_S = 10.0
"""How long a metric shows the largest value that it had."""

log = logging.getLogger("lognode.maintenance")


class _Largest:
    """The largest value of about the last ten seconds."""

    def __init__(self) -> None:
        self.value = 0.0
        self._until = 0.0

    def note(self, value: float, now: float) -> None:
        if value > self.value or now > self._until:
            self.value, self._until = value, now + _WINDOW_S


class _Replicas:
    """What the metrics tell of all replicas, counted in one pass for all gauges of a page.

    A pass over 4,352 replicas takes 10 ms. Each of six gauges took that time.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._at = float("-inf")
        self._roles: Counter[str] = Counter()
        self._idle = self._memtable_bytes = self._segment_bytes = 0

    def with_role(self, role: str) -> int:
        """Return how many replicas have the role."""
        self._look()
        return self._roles[role]

    def idle(self) -> int:
        """Return how many replicas rest."""
        self._look()
        return self._idle

    def memtable_bytes(self) -> int:
        """Return the bytes of all memtables."""
        self._look()
        return self._memtable_bytes

    def segment_bytes(self) -> int:
        """Return the bytes of all segment files, each counted once however many ranges share it."""
        self._look()
        return self._segment_bytes

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._at < _COUNTED_S:
            return
        roles: Counter[str] = Counter()
        sizes: dict[str, int] = {}
        idle = memtable_bytes = 0
        for replica in self._host.groups.values():
            roles[replica.group.role] += 1
            idle += replica.group.idle
            if isinstance(replica, RangeReplica):
                memtable_bytes += replica.state.memtable_bytes
                for info in replica.state.manifest:
                    sizes[info.content_id] = info.size
        self._roles, self._idle, self._memtable_bytes = roles, idle, memtable_bytes
        self._segment_bytes = sum(sizes.values())
        self._at = time.monotonic()


class Maintenance:
    """Does the periodic work. Runs on every node."""

    def __init__(
        self,
        *,
        host: Host,
        wal: Wal,
        sync: SyncThread,
        rounds: Rounds,
        flusher: Flusher,
        metrics: Metrics,
        room: DiskRoom,
    ) -> None:
        self._room = room
        self._host = host
        self._wal = wal
        self._sync = sync
        self._rounds = rounds
        self._flusher = flusher
        self._metrics = metrics
        self._producers_due = time.monotonic() + _PRODUCERS_S
        self._seen_round = 0
        self._look_at = 0.0
        self._lag = _Largest()
        self._turns = turn_time.of_running_loop()
        self._turn_cpu = _Largest()
        self._long_turns = 0
        """The number of long turns that the metric has."""
        self._export()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            busy = self._wal.file_count > self._files_max
            period_s = _BUSY_PERIOD_S if busy else _PERIOD_S
            due = time.monotonic() + period_s
            await asyncio.sleep(period_s)
            now = time.monotonic()
            self._lag.note(now - due, now)
            self._note_turns(now)
            if self._wal.open_round == self._seen_round and now < self._look_at:
                continue  # nothing was written since: only age can make work due
            self._seen_round, self._look_at = self._wal.open_round, now + _IDLE_PERIOD_S
            await self._unpin_wal()
            self._retire_producers()
            await self._reclaim_wal()

    def _retire_producers(self) -> None:
        now = time.monotonic()
        if now < self._producers_due:
            return
        self._producers_due = now + _PRODUCERS_S
        for replica in self._host.ranges():
            with contextlib.suppress(LognodeError):  # not now: no caller waits for it
                replica.retire_unused_producers()

    async def _unpin_wal(self) -> None:
        """Checkpoint the groups whose entries keep the oldest WAL file, and cut their logs.

        Otherwise a range that is written once and then idle would keep all files after its own.
        Hundreds of groups take seconds: work that does not fit into one call is left to the next
        call.
        """
        if self._wal.file_count <= min(self._files_max, _WAL_FILES_CONTROLLER):
            return
        pins = self._wal.oldest_pins()
        oldest = min(pins.values(), default=0)
        until = time.monotonic() + _UNPIN_S
        async for gid in one_by_one([gid for gid, file in pins.items() if file == oldest]):
            if time.monotonic() > until:
                return
            replica = self._host.groups.get(gid)
            if isinstance(replica, ControllerReplica) and not (
                replica.is_sealed or replica.stopped
            ):
                if self._wal.file_count > _WAL_FILES_CONTROLLER:
                    await self._host.checkpoint_controller(replica)
                if self._wal.file_count > self._files_max:
                    self._rewrite(gid, oldest)  # without a quorum no checkpoint has its last entry
            elif self._wal.file_count > self._files_max:
                if isinstance(replica, RangeReplica) and not replica.stopped:
                    if self._wal.file_count > _WAL_FILES_PINNED_MAX:
                        replica.log_pins.clear()
                    if self._room.may_build(replica.state.unpacked_bytes):
                        await self._flusher.release(replica)
                self._rewrite(gid, oldest)

    @property
    def _files_max(self) -> int:
        """Return the limit of WAL files; it is lower while room is scarce."""
        return _WAL_FILES_SCARCE if self._room.level else _WAL_FILES_MAX

    def _rewrite(self, gid: GroupId, oldest: int) -> None:
        """Rewrite the group's entries into a new file: they are not committed, or damaged."""
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
        """Free the oldest files that nothing needs: a bounded piece of work a round."""
        for _ in range(_RECLAIM_ROUNDS):
            files = self._wal.reclaim()
            if files:
                await self._sync.run(partial(self._wal.let_go, files))
                return
            if not self._wal.dirty:
                return
            await self._rounds.durable()

    def _note_turns(self, now: float) -> None:
        self._turn_cpu.note(self._turns.take_longest_s(), now)
        self._metrics.long_turns.inc(self._turns.long_turns - self._long_turns)
        self._long_turns = self._turns.long_turns

    def _export(self) -> None:
        """Register gauges that go over all replicas: they are computed when they are read."""
        metrics, host = self._metrics, self._host
        metrics.loop_lag_seconds.set_function(lambda: self._lag.value)
        metrics.turn_cpu_seconds.set_function(lambda: self._turn_cpu.value)
        replicas = _Replicas(host)
        for role in ("leader", "follower", "candidate"):
            metrics.replicas.labels(role).set_function(partial(replicas.with_role, role))
        metrics.idle_replicas.set_function(replicas.idle)
        metrics.wal_files.set_function(lambda: self._wal.file_count)
        metrics.damaged_replicas.set_function(lambda: len(host.damaged) + len(host.halted))
        metrics.segment_bytes.set_function(replicas.segment_bytes)
        metrics.memtable_bytes.set_function(replicas.memtable_bytes)
        for cache, held in (
            ("log", lambda: sum(log.cached_bytes for log in self._wal.groups.values())),
            ("blocks", lambda: host.store.block_bytes),
            ("columns", lambda: host.store.columns.bytes),
            ("copies", lambda: host.store.copies.bytes),
        ):
            metrics.cached_bytes.labels(cache).set_function(held)
