"""Real WALs over simulated disks: what tests do with one, and a group's log on one of its own."""

import random
from typing import Any

from lognode.chaos.sim.disk import SimDisk
from lognode.raft.group_log import GroupLog
from lognode.raft.journal import RaftLog
from lognode.raft.types import GroupId
from lognode.raft.wal import Round, Wal

GID = GroupId(1, 1)
FILE_BYTES = 4096


def open_wal(disk: SimDisk, *, file_bytes: int = FILE_BYTES) -> Wal:
    """Recover the WAL on the disk, or begin one, of small files."""
    return Wal.open(disk, entropy=random.Random(7).randbytes, file_bytes=file_bytes)


def sync(wal: Wal) -> None:
    """One whole round."""
    round_ = wal.collect()
    if round_ is not None:
        wal.write(round_)
        wal.complete(round_)


def reclaim(wal: Wal) -> None:
    """What maintenance does now and then."""
    wal.let_go(wal.reclaim())


class WalLog:
    """A group's real log on a WAL of its own, with the double's interface: `MemoryLog`'s side of
    the WAL over the real thing; the rest is the GroupLog's."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._disk = SimDisk(rng)
        self._rounds: dict[int, Round] = {}
        self._open()
        self.sync()

    def _open(self) -> None:
        self._wal = Wal.open(self._disk, entropy=self._rng.randbytes, file_bytes=1 << 18)
        found = self._wal.groups.get(GID)
        self.log: GroupLog = self._wal.create_group(GID) if found is None else found
        self.checked: RaftLog = self.log  # mypy: the real log is what the group asks for

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    @property
    def dirty(self) -> bool:
        return self._wal.dirty

    def collect(self) -> int:
        """What was queued goes to the disk as a round; its number."""
        found = self._wal.collect()
        assert found is not None
        self._rounds[found.number] = found
        return found.number

    def complete(self, number: int) -> None:
        """The round was synced."""
        found = self._rounds.pop(number)
        self._wal.write(found)
        self._wal.complete(found)

    def sync(self) -> None:
        """One round."""
        if self.dirty:
            self.complete(self.collect())

    def crash(self) -> None:
        """Power loss, and recovery."""
        self._disk.lose_power()
        self._rounds.clear()
        self._open()
        assert not self._wal.recovery.damaged
