"""Watches the free space of the disk, and acts before it runs out.

One statvfs per file system of the data directory runs in a thread, since a disk may hang. It runs
every few seconds while there is plenty of space, more often near the reserve (`disk_room.py`), and
whenever a WAL file is begun. Each look also makes the next WAL file ahead, while the disk has room
for it. Otherwise the round that needs the file would write its zeros first, and every append would
wait 0.2 to 0.5 s.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ...client.protocol.errors import LognodeError
from ...raft.wal import Wal
from ...statemachine.write_back import write_back
from ..directory.disk_room import DiskRoom, Level, next_look_s
from ..lifecycle.handover import Handover
from ..metrics import Metrics
from ..replicas.host import Host
from ..replicas.range_replica import RangeReplica
from ..runtime.slices import in_slices

_FILES = 1
"""WAL files made ahead."""
_MARGIN_BYTES = 4 << 20
"""Space that must remain for meta and the last segments after making a WAL file ahead."""

log = logging.getLogger("lognode.disk")


class DiskWatch:
    """Watches the disk. Runs on every node. `on_change` is called when the level has changed."""

    def __init__(
        self,
        *,
        room: DiskRoom,
        places: Sequence[Path],
        host: Host,
        handover: Handover,
        on_change: Callable[[], None],
        wal: Wal,
        wal_directory: Path,
        metrics: Metrics,
    ) -> None:
        self._wal = wal
        self._wal_directory = wal_directory
        self._begun = asyncio.Event()
        self._room = room
        self._places = places
        self._host = host
        self._handover = handover
        self._on_change = on_change
        self._sparing: asyncio.Task[None] | None = None
        self._stopping = threading.Event()
        self._making: asyncio.Future[None] | None = None
        """The thread that makes a file ahead."""
        self._blind = False
        self._level = Level.AMPLE
        """The level as last reported."""
        self._taken = True
        """Whether entries of other leaders are taken, as last reported."""
        metrics.disk_free_bytes.set_function(lambda: room.free)
        metrics.disk_level.set_function(lambda: room.level)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                await self.look()
                await self._make_spare()
                self._host.send_no_entries(self._room.exhausted_others)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(next_look_s(self._room.to_use, self._room.reserve)):
                        await self._begun.wait()
                self._begun.clear()
        finally:
            if self._sparing is not None:
                self._sparing.cancel()

    async def stop(self) -> None:
        """Give up the file that is being made ahead; return when no thread writes to the disk."""
        self._stopping.set()
        if self._making is not None:
            await asyncio.gather(self._making, return_exceptions=True)

    def look_soon(self) -> None:
        """Check the free space and make the next WAL file: a WAL file was begun."""
        self._begun.set()

    async def look(self) -> None:
        """Check the free space, and act on it."""
        try:
            free = await asyncio.to_thread(_free, self._places)
        except OSError as error:
            if not self._blind:
                log.error("the node cannot read the free space of the disk: %s", error)
            self._blind = True
            return
        self._blind = False
        before = self._level
        self._room.looking()
        unbuilt = await in_slices(r.state.memtable_bytes for r in self._host.ranges())
        self._room.saw(free, sum(unbuilt))
        if self._room.level != before:
            self._level = self._room.level
            self._tell(before)
            self._on_change()
        if self._room.level and (self._sparing is None or self._sparing.done()):
            self._sparing = asyncio.get_running_loop().create_task(self._spare())

    def check_size(self) -> None:
        """Warn when even an empty node would have less than the reserve on this disk."""
        room, file_bytes = self._room, self._wal.file_bytes
        sizes = [os.statvfs(place) for place in self._places]
        size = min(each.f_blocks * each.f_frsize for each in sizes)
        needed = room.reserve + (_FILES + 1) * file_bytes
        if size < needed:
            log.warning(
                "the disk is too small for these settings: the disk has %d bytes, and "
                "appends need %d or more; give smaller --disk-reserve-bytes and "
                "--wal-file-bytes (now %d)",
                size, needed, file_bytes,
                extra={"fields": {"reserve": room.reserve}},
            )  # fmt: skip

    async def _make_spare(self) -> None:
        """Make a WAL file ahead if there is none, and note whether there is one."""
        room, wal = self._room, self._wal
        if not wal.has_spare and room.free >= wal.file_bytes + _MARGIN_BYTES:
            loop = asyncio.get_running_loop()
            self._making = loop.run_in_executor(None, wal.make_spare, self._settle)
            try:
                await asyncio.shield(self._making)
            except OSError as error:
                log.warning("the node could not make a WAL file in advance: %s", error)
        room.tried_wal_file(made=wal.has_spare)
        if room.takes_entries() != self._taken:
            self._taken = room.takes_entries()
            told = {"free": room.free, "file_ahead": wal.has_spare}
            if self._taken:
                log.info("the node accepts entries of other leaders again", extra={"fields": told})
            else:
                log.warning(
                    "the disk is almost full: the node refuses entries of other leaders",
                    extra={"fields": told},
                )

    def _settle(self, name: str) -> None:
        """Write the file back, for seconds; a node that stops gives it up."""
        write_back(self._wal_directory / name, self._stopping)

    def _tell(self, before: Level) -> None:
        """Log each change once, however often the space is checked."""
        room = self._room
        fields = {"free": room.free, "unbuilt": room.free - room.to_use, "reserve": room.reserve,
                  "disk_level": room.level.name}  # fmt: skip
        if not room.level:
            log.info("the disk has enough space again", extra={"fields": fields})
        elif not before:
            log.warning(
                "the disk has little space: ranges that this node leads refuse appends",
                extra={"fields": fields},
            )
        else:
            log.log(
                logging.WARNING if room.level > before else logging.INFO,
                "the disk has less space than before"
                if room.level > before
                else "the disk has more space than before, but still little",
                extra={"fields": fields},
            )

    async def _spare(self) -> None:
        """Hand over the ranges that this node leads to members with room."""
        for replica in [r for r in self._host.ranges() if r.leads]:
            if not self._room.level:
                return
            with contextlib.suppress(LognodeError):  # the next look tries again
                await self._handover.spare(replica, self._roomy(replica), why="lack of disk space")

    def _roomy(self, replica: RangeReplica) -> set[int]:
        others = set(replica.members) - {self._room.node_id}
        return {member for member in others if self._room.has_room(member)}


def _free(places: Sequence[Path]) -> int:
    """Return how many bytes this user may still write, on the fullest of the file systems."""
    found = [os.statvfs(place) for place in places]
    return min(each.f_bavail * each.f_frsize for each in found)
