"""A machine that carries out the rules of `node.rules`, and dies before any of their steps.

It has a real WAL on a simulated disk and a meta store in memory, and no event loop, network or
state machine: a third executor, beside the node and the simulator.
"""

import random
from typing import Any, Final

from lognode.chaos.sim.disk import SimDisk
from lognode.node.directory import meta_keys
from lognode.node.rules import recovering
from lognode.node.rules.durable_steps import (
    Adopt,
    Begin,
    CheckFiles,
    CheckPresent,
    CollectFiles,
    Commit,
    CreateLog,
    CutLog,
    Damaged,
    Mark,
    RaiseCommit,
    ResetLog,
    RetireLogs,
    Rows,
    SetAside,
    Step,
    Steps,
    Stop,
    SyncLogs,
)
from lognode.partitions.model import Descriptor, Span
from lognode.raft.group_log import GroupLog
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.statemachine.meta import MemoryMeta
from lognode.statemachine.range_state import Base

GID: Final = GroupId(1, 1)
MEMBERS: Final = (1, 2, 3)
DESCRIPTOR: Final = Descriptor(1, 1, 1, Span(b"", None), MEMBERS)


def rows_of(base: Base, descriptor: Descriptor = DESCRIPTOR) -> Rows:
    """The rows of the replica with that base."""
    return Rows.of_range(descriptor, base)


class Machine:
    """One machine with one replica at most."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._disk = SimDisk(self._rng)
        self.meta = MemoryMeta()
        self.begun: dict[GroupId, bool] = {}
        """The replicas that take part, and whether they campaign."""
        self.damaged: dict[GroupId, str] = {}
        self.aside: dict[GroupId, Any] = {}
        self.marks: dict[int, int] = {}
        self.collected = 0
        self._open()

    def _open(self) -> None:
        self.wal = Wal.open(self._disk, entropy=self._rng.randbytes, file_bytes=1 << 16)
        self.sync()

    @property
    def log(self) -> GroupLog:
        """The replica's log."""
        return self.wal.groups[GID]

    @property
    def row(self) -> Any:
        """The replica's row, or None."""
        return self.meta.get(meta_keys.replica_key(GID))

    def sync(self) -> None:
        """Write and sync all that is queued in the WAL."""
        while self.wal.dirty:
            round_ = self.wal.collect()
            assert round_ is not None
            self.wal.write(round_)
            self.wal.complete(round_)

    def append(self, last: int, term: int) -> None:
        """Append entries up to `last`, durably."""
        for index in range(self.log.last_index + 1, last + 1):
            self.log.append(index, term, b"entry")
        self.sync()

    def crash(self, *, power: bool) -> None:
        """End the process with what is queued in the WAL; with `power`, unsynced data too."""
        if power:
            self._disk.lose_power()
        self._open()
        self.begun.clear()
        self.damaged.clear()
        self.aside.clear()
        self.marks = {
            int(key.removeprefix(meta_keys.MARK)): generation
            for key, generation in self.meta.items(meta_keys.MARK)
        }
        rows = self.meta.items(meta_keys.REPLICA)
        for key, row in rows:
            base = row["base"]["applied"]
            descriptor = Descriptor.from_wire(row["descriptor"])
            stored = recovering.Stored(key, row, descriptor, (base[0], base[1]))
            reason = self.wal.recovery.damaged.get(stored.gid)
            self.do(recovering.recover(stored, self.wal.groups.get(stored.gid), reason))
        known = [recovering.row_gid(key) for key, _ in rows]
        self.do(recovering.unknown_logs(self.wal.groups, known, self.marks))
        self.sync()

    def do(self, steps: Steps, most: int | None = None) -> None:
        """Carry out the steps, or the first `most` of them."""
        for step in steps[:most]:
            if isinstance(step, CheckPresent) and step.gid not in self.wal.groups:
                return
            self._do(step)

    def _do(self, step: Step) -> None:
        match step:
            case Commit(puts, deletes, prefixes):
                self.meta.commit(puts, deletes, prefixes)
            case CreateLog(gid, (index, term)):
                self.wal.create_group(gid, index=index, term=term)
            case ResetLog(gid, base):
                self.wal.groups[gid].reset(*base)
            case RaiseCommit(gid, commit):
                self.wal.groups[gid].set_commit(commit)
            case SyncLogs():
                self.sync()
            case RetireLogs(gids):
                for gid in gids:
                    self.wal.retire_group(gid)
            case Stop(gids):
                for gid in gids:
                    self.begun.pop(gid, None)
            case Mark(gid):
                self.marks[gid.range_id] = gid.generation
            case Begin(gid, campaign):
                self.begun[gid] = campaign
            case CheckFiles(gid):
                self.begun[gid] = False
            case SetAside(gid, bad):
                self.aside[gid] = bad
            case Damaged(gid, reason):
                self.damaged[gid] = reason
            case CollectFiles():
                self.collected += 1
            case CutLog(gid, last):
                self.wal.groups[gid].cut_front(last)
            case CheckPresent() | Adopt():
                pass
