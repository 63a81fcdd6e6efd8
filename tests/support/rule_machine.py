"""A machine that carries out the rules of `node.rules`, and dies before any of their steps.

It has a real WAL on a simulated disk and a meta store in memory, and no event loop, network or
state machine: a third executor, beside the node and the simulator.
"""

import random
from typing import Any, Final

from lognode.chaos.sim.disk import SimDisk
from lognode.node.directory import meta_keys
from lognode.node.rules import recovering, repairing
from lognode.node.rules.durable_steps import (
    Adopt,
    Begin,
    CheckAside,
    CheckFile,
    CheckFiles,
    CheckPresent,
    CollectFiles,
    Commit,
    CreateLog,
    CutLog,
    Damaged,
    Distrust,
    FetchFile,
    Mark,
    RaiseCommit,
    ResetLog,
    Resume,
    RetireLogs,
    Rows,
    SetAside,
    SettleRows,
    Step,
    Steps,
    Stop,
    Suspend,
    SyncLogs,
)
from lognode.partitions.model import Descriptor, Span
from lognode.raft.group_log import GroupLog
from lognode.raft.types import GroupId
from lognode.raft.wal import Wal
from lognode.statemachine.meta import MemoryMeta
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_writer import SegmentInfo

GID: Final = GroupId(1, 1)
MEMBERS: Final = (1, 2, 3)
DESCRIPTOR: Final = Descriptor(1, 1, 1, Span(b"", None), MEMBERS)


def rows_of(base: Base, descriptor: Descriptor = DESCRIPTOR) -> Rows:
    """The rows of the replica with that base."""
    return Rows.of_range(descriptor, base)


def file_of(name: str) -> SegmentInfo:
    """A segment file as a manifest names it."""
    return SegmentInfo(name, 1, 1, 1, 2, b"a", b"z", 0, 0)


class Machine:
    """One machine with one replica at most."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._disk = SimDisk(self._rng)
        self.meta = MemoryMeta()
        self.begun: dict[GroupId, bool] = {}
        """The replicas that take part, and whether they campaign."""
        self.damaged: dict[GroupId, str] = {}
        self.aside: dict[GroupId, SetAside] = {}
        self.rotten: set[str] = set()
        """Files here whose content does not fit their name."""
        self.suspended: set[str] = set()
        self.mended: set[str] = set()
        self.peers_have_files = True
        self.reason = "a checksum"
        """The reason for which files are in doubt."""
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
        self.suspended.clear()
        self.mended.clear()
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

    def start_repairs(self) -> None:
        """Repair the files for which the start has set the replica aside."""
        for aside in list(self.aside.values()):
            for content_id in aside.bad:
                self.repair(content_id)

    def repair(self, content_id: str, most: int = 1_000) -> int:
        """Repair a file in doubt, with at most `most` steps; return how many were done."""
        left = self._do_some(repairing.doubt(content_id), most)
        for gid in repairing.returning(
            {gid: aside.bad for gid, aside in self.aside.items()}, self.suspended.__contains__
        ):
            left = self._do_some(repairing.bring_back(gid), left) if left else 0
        return most - left

    def serves(self, content_id: str) -> bool:
        """Whether reads of a replica here may be answered from the file."""
        return GID in self.begun and content_id not in self.suspended

    def _do_some(self, steps: Steps, most: int) -> int:
        """Carry out the steps and those that follow them; return how many of `most` are left."""
        for step in steps:
            if not most:
                return 0
            most -= 1
            match step:
                case CheckFile(content_id):
                    most = self._do_some(self._checked(content_id), most)
                case FetchFile(content_id):
                    most = self._do_some(self._fetched(content_id), most)
                case CheckAside(gid) if gid not in self.aside:
                    return most
                case _:
                    self._do(step)
        return most

    def _rows(self) -> dict[GroupId, Any]:
        present = GID in self.begun or GID in self.aside
        return {GID: self.row} if present else {}

    def _checked(self, content_id: str) -> Steps:
        damaged = content_id in self.rotten
        mended = content_id in self.mended
        rows = self._rows()
        return repairing.checked(content_id, self.reason, damaged=damaged, mended=mended, rows=rows)

    def _fetched(self, content_id: str) -> Steps:
        rows = self._rows()
        if not rows:
            return repairing.unneeded(content_id)
        if not self.peers_have_files:
            return repairing.lost(content_id, self.reason, rows)
        self.rotten.discard(content_id)
        self.mended.add(content_id)
        return repairing.fetched(content_id)

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
                    self.aside.pop(gid, None)
            case Mark(gid):
                self.marks[gid.range_id] = gid.generation
            case Begin(gid, campaign):
                self.aside.pop(gid, None)
                self.begun[gid] = campaign
            case CheckFiles():
                self.do(self._files_checked())
            case SetAside(gid):
                self.aside[gid] = step
            case Suspend(content_id):
                self.suspended.add(content_id)
            case Resume(content_id):
                self.suspended.discard(content_id)
            case Distrust(content_id):
                self.meta.commit({}, [meta_keys.sound_key(content_id)])
            case Damaged(gid, reason):
                self.damaged[gid] = reason
            case CollectFiles():
                self.collected += 1
            case CutLog(gid, last):
                self.wal.groups[gid].cut_front(last)
            case CheckPresent() | Adopt() | SettleRows() | CheckAside():
                pass

    def _files_checked(self) -> Steps:
        """Hash the files of the base that no row calls sound (x28)."""
        names = [str(info[0]) for info in self.row["base"]["manifest"]]
        sound = {name for name in names if self.meta.get(meta_keys.sound_key(name))}
        bad = {name: "a checksum" for name in names if name in self.rotten - sound}
        base = self.row["base"]["applied"]
        descriptor = Descriptor.from_wire(self.row["descriptor"])
        key = meta_keys.replica_key(GID)
        stored = recovering.Stored(key, self.row, descriptor, (base[0], base[1]))
        return recovering.files_checked(stored, bad)
