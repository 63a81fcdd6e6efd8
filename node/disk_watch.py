"""Watching the disk: how much room is left, and what is done as soon as it is little.

One statvfs per file system of the data directory, in a thread since a disk may hang: once every
few seconds while there is plenty, more often the nearer the reserve is (`disk_room.py`).
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..client.errors import LognodeError
from .disk_room import DiskRoom, Level, next_look_s
from .handover import Handover
from .host import Host
from .metrics import Metrics
from .range_replica import RangeReplica

log = logging.getLogger("lognode.disk")


class DiskWatch:
    """Runs on every node. `on_change` is called when the level has changed."""

    def __init__(
        self,
        *,
        room: DiskRoom,
        places: Sequence[Path],
        host: Host,
        handover: Handover,
        on_change: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._room = room
        self._places = places
        self._host = host
        self._handover = handover
        self._on_change = on_change
        self._sparing: asyncio.Task[None] | None = None
        self._blind = False
        metrics.disk_free_bytes.set_function(lambda: room.free)
        metrics.disk_level.set_function(lambda: room.level)

    async def run(self) -> None:
        """Never returns; cancel it."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(next_look_s(self._room.free, self._room.reserve))
        finally:
            if self._sparing is not None:
                self._sparing.cancel()

    async def look(self) -> None:
        """See how much is free, and act on it."""
        try:
            free = await asyncio.to_thread(_free, self._places)
        except OSError as error:
            if not self._blind:
                log.error("cannot see how much room the disk has: %s", error)
            self._blind = True
            return
        self._blind = False
        before = self._room.level
        if self._room.saw(free):
            self._tell(before)
            self._on_change()
        if self._room.level and (self._sparing is None or self._sparing.done()):
            self._sparing = asyncio.get_running_loop().create_task(self._spare())

    def _tell(self, before: Level) -> None:
        """One line a change, however often it is looked at."""
        room = self._room
        fields = {"free": room.free, "reserve": room.reserve, "disk_level": room.level.name}
        if not room.level:
            log.info("the disk has room again", extra={"fields": fields})
        elif not before:
            log.warning(
                "little disk is left: appends to ranges led here are refused",
                extra={"fields": fields},
            )
        else:
            log.log(
                logging.WARNING if room.level > before else logging.INFO,
                "less disk is left" if room.level > before else "more disk is left, and little",
                extra={"fields": fields},
            )

    async def _spare(self) -> None:
        """Hand the ranges that this node leads to members with room."""
        for replica in [r for r in self._host.ranges() if r.leads]:
            if not self._room.level:
                return
            with contextlib.suppress(LognodeError):  # the next look tries again
                await self._handover.spare(replica, self._roomy(replica), why="lack of room")

    def _roomy(self, replica: RangeReplica) -> set[int]:
        others = set(replica.members) - {self._room.node_id}
        return {member for member in others if self._room.has_room(member)}


def _free(places: Sequence[Path]) -> int:
    """Bytes that this user may still write, where there are fewest."""
    found = [os.statvfs(place) for place in places]
    return min(each.f_bavail * each.f_frsize for each in found)
