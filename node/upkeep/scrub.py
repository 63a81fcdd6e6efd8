"""Scrubbing: every segment file is read and hashed again, over and over, at a low rate (S12).

A file that is never read may rot unnoticed until the last sound copy is lost with another node's
disk. A file whose content no longer matches its name is repaired in place (`segment_repair.py`).
"""

import asyncio
import hashlib
import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any

from ...client.protocol.errors import CorruptData
from ...raft.types import GroupId
from ...statemachine.segments import SegmentStore
from ..directory.disk_room import DiskRoom
from ..metrics import Metrics
from ..replicas.host import Host
from ..runtime.rate import TokenBucket

_PASS_S = 3_600.0
"""No file is hashed more often than this, so that a node with few data does not read all day."""
_LOOK_S = 60.0

log = logging.getLogger("lognode.scrub")


class Scrub:
    """Runs on every node.

    `bytes_per_s` 0: never scrub. `doubt` gets a replica's damaged file.
    """

    def __init__(
        self,
        *,
        host: Host,
        store: SegmentStore,
        bytes_per_s: int,
        doubt: Callable[[GroupId, str, CorruptData], None],
        room: DiskRoom,
        metrics: Metrics,
    ) -> None:
        self._room = room
        self._host = host
        self._store = store
        self._bytes_per_s = bytes_per_s
        self._bucket = TokenBucket(bytes_per_s, time.monotonic)
        self._doubt = doubt
        self._metrics = metrics
        self._seen: dict[str, float] = {}
        """When each file was last hashed."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._bytes_per_s and self._room.may_fetch:  # else repair would be impossible
                await self.look(time.monotonic() - _PASS_S)

    async def look(self, before: float) -> None:
        """Hash the files that were last hashed before that time and are still here."""
        held = self._held()
        self._seen = {name: self._seen.get(name, self._first(name)) for name in held}
        for content_id in sorted(held, key=self._seen.__getitem__):
            if self._seen[content_id] <= before:
                await self._scrub(content_id, held[content_id])
                self._seen[content_id] = time.monotonic()

    def _first(self, content_id: str) -> float:
        """Return when to count a new file as hashed: never, if it was not read back yet."""
        return time.monotonic() if content_id in self._host.sound else -math.inf

    def _held(self) -> dict[str, GroupId]:
        """Return the files that should be on the disk: not those that are in the tier only."""
        return {
            info.content_id: replica.gid
            for replica in self._host.ranges()
            for info in replica.state.durable_base.manifest
            if self._store.is_listed(info.content_id) or not self._host.kept.place(info.content_id)
        }

    async def _scrub(self, content_id: str, gid: GroupId) -> None:
        if self._store.is_suspended(content_id):
            return
        try:
            found = await self._hash(content_id)
        except FileNotFoundError:
            found = "none: it is missing"
        except OSError as error:
            found = f"none: {error.strerror or error}"
        if found == content_id:
            await self._host.sound.add([content_id])
        elif content_id in self._held():
            damage = f"segment {content_id} is damaged: its SHA-256 is {found}"
            self._doubt(gid, content_id, CorruptData(damage, segment=content_id))

    async def _hash(self, content_id: str) -> str:
        digest = hashlib.sha256()
        fd = await asyncio.to_thread(
            os.open, self._store.path(content_id), os.O_RDONLY | os.O_CLOEXEC
        )
        try:
            offset = 0
            while True:
                await asyncio.sleep(self._bucket.reserve(self._bucket.piece_bytes))
                read = await asyncio.to_thread(_step, fd, offset, self._bucket.piece_bytes, digest)
                self._metrics.scrubbed_bytes.inc(read)
                offset += read
                if not read:
                    return digest.hexdigest()
        finally:
            os.close(fd)


def _step(fd: int, offset: int, count: int, digest: Any) -> int:
    """Hash a piece from the disk, not from the page cache; return its length."""
    if not offset:
        os.fsync(fd)  # unwritten data would stay in the cache
    os.posix_fadvise(fd, offset, count, os.POSIX_FADV_DONTNEED)
    data = os.pread(fd, count, offset)
    digest.update(data)
    return len(data)
