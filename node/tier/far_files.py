"""Files that this node has in the tier only: their reads, and how they come back to the disk.

Footer and filters of such a file are on the local disk (`kept_pages`), the rest is read by range
requests through a cache (`tier_files`). The place of a file is looked up at each request: a new
generation may have the file at another place.

Requests run in threads of their own, so that a store that hangs delays reads of the tier alone. No
read waits longer than `_WAIT_S`, and while a read hangs no other read begins: a directory of a file
server that is down gives no answer at all.

A file that the tier has lost, since somebody removed an object there, is not young or old: it stays
missing. After `_GONE_S` the error names the file and says what to do, and members are asked for the
file, which comes back to the disk. The replica is not damaged: without the file all else goes on.

A directory that is not mounted lacks all objects, and has lost none. So before a file counts as
lost, the place must have the tier of this node. Otherwise each file that a reader asks for would
come from a member, and stay on the disk, since no file leaves the disk while the tier is away; and
a damaged file would end its replica, as if no other copy were left.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from ...client.protocol.errors import CorruptData, LognodeError, Unavailable
from ...client.protocol.limits import MIB
from ...statemachine.block_cache import BlockCache
from ...statemachine.segment_file import SegmentBytes, SegmentFile
from ...statemachine.segments import SegmentStore
from ..directory.kept_files import KeptFiles
from ..metrics import Metrics
from ..runtime.bounded_waits import BoundedWaits
from ..runtime.sync_thread import SyncThread
from ..runtime.workers import Workers
from . import kept_pages
from .chunk_cache import ChunkCache
from .local_file import parts_of
from .manifest import Held
from .tier_files import GONE, TierFile, TierFiles
from .tier_store import TierStore

READERS: Final = 16
"""The most reads that wait for the store at a time: threads that `workers` needs."""
MEMORY_BYTES: Final = 32 * MIB
"""The most bytes of chunks in memory."""

_WAIT_S: Final = 35.0
"""How long a read waits: a store in S3 repeats its requests for 30 s."""
_HUNG_RETRY_S: Final = 5.0
_GONE_S: Final = 30.0
"""How long an object of a file is missing, and the pause between questions to members."""

T = TypeVar("T")
log = logging.getLogger("lognode.tier")


class FarFile:
    """A file in the tier, with pages on this disk. Implements `SegmentBytes`.

    `on_gone` gets the error of a read for which the tier lacks an object, and may raise another.
    """

    def __init__(
        self, file: TierFile, pages: kept_pages.KeptPages | None,
        on_gone: Callable[[Unavailable], None],
    ) -> None:  # fmt: skip
        self._file = file
        self._on_gone = on_gone
        self._pages = pages
        self.size = file.size
        self._cache: BlockCache | None = None

    @property
    def cache(self) -> BlockCache | None:
        """As in `SegmentFile`."""
        return self._cache

    @cache.setter
    def cache(self, cache: BlockCache | None) -> None:
        self._cache = cache
        self._file.cache = cache

    def read(self, offset: int, count: int) -> memoryview:
        """Return these bytes, as `TierFile.read` does."""
        if self._pages is not None:
            try:
                found = self._pages.read(offset, count, self._cache)
            except OSError:
                found = None  # the tier has the bytes too
            if found is not None:
                return found
        try:
            return self._file.read(offset, count)
        except Unavailable as error:
            if error.fields.get("reason") == GONE:
                self._on_gone(error)
            raise

    def close(self) -> None:
        """Close the pages."""
        if self._pages is not None:
            self._pages.close()


class FarFiles:
    """The files of one node that have a place in the tier. `tmp`: where files are received."""

    def __init__(
        self, store: TierStore, cache: ChunkCache, kept: KeptFiles, files: SegmentStore, *,
        directory: Path, tmp: Path, sync: SyncThread, workers: Workers, metrics: Metrics,
        ask: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`ask`: asks members for a file that the tier has lost."""
        self._store = store
        self._kept = kept
        self._local = files
        self._directory = directory
        self._tmp = tmp
        self._sync = sync
        self._workers = workers
        self._waits = BoundedWaits(workers, _WAIT_S)
        self._ask = ask
        self._gone: dict[str, tuple[float, float]] = {}
        """Since when an object of each file is missing, and when members are asked again."""
        self.tier_files = TierFiles(store.objects, cache, self._held)
        files.read_elsewhere(self.open, self.run)
        metrics.tier_only_files.set_function(lambda: len(self._only()))
        metrics.tier_only_bytes.set_function(lambda: sum(self._only()))

    def stop(self) -> None:
        """Stop. A request under way ends by itself."""
        self._workers.leave()

    def _held(self, content_id: str) -> Held | None:
        place = self._kept.place(content_id)
        return None if place is None else Held(*place)

    def open(self, content_id: str) -> FarFile | None:
        """Return a file, None without a place. Any thread."""
        file = self.tier_files.open(content_id)
        if file is None:
            return None
        pages = kept_pages.opened(self._directory, content_id, file.size)
        return FarFile(file, pages, partial(self.is_gone, content_id))

    async def run(self, call: Callable[[], T]) -> T:
        """Run a read that waits for the store in one of the threads for reads.

        Raises Unavailable for a store that hangs, and the errors of the call.
        """
        if self._waits.is_hung:
            self._fail("the store does not answer a request of before")
        try:
            return await self._waits.run(call)
        except TimeoutError:
            self._fail(f"the store gave no answer in {_WAIT_S:.0f} s")
        except Unavailable as error:
            if error.fields.get("reason") == GONE:
                self._ask_members()
            raise

    def _fail(self, why: str) -> NoReturn:
        raise self._store.objects.failed(
            Unavailable, f"the tier gives no answer: {why}. Check the mount or the network",
            reason="tier", retry_after=_HUNG_RETRY_S,
        )  # fmt: skip

    # Files that the tier has lost.

    def is_gone(self, content_id: str, error: Unavailable) -> None:
        """Note that an object of a file is missing. Any thread. Raises a better error in time.

        A file that is missing where the tier is not mounted is not noted.
        """
        self._check_place()
        now = time.monotonic()
        since, _ = self._gone.setdefault(content_id, (now, now + _GONE_S))
        if now - since >= _GONE_S:
            raise self._store.objects.failed(
                Unavailable,
                f"segment {content_id} is in the tier only, and an object of the segment has been "
                f"missing there for {now - since:.0f} s ({error.message}). The members are asked "
                "for the segment. If none has the segment, restore the object from a copy of the "
                "store",
                reason=GONE, retry_after=_GONE_S,
            )  # fmt: skip

    def _check_place(self) -> None:
        """Raise Unavailable unless the place has the tier of this node. Waits for the store."""
        try:
            is_here = self._store.token() == self._kept.token
        except LognodeError:
            is_here = False
        if not is_here:
            raise self._store.objects.failed(
                Unavailable,
                "the place does not have the tier with the files of this node. If the place is a "
                "directory, check its mount",
                reason="tier", retry_after=_HUNG_RETRY_S,
            )  # fmt: skip

    def _ask_members(self) -> None:
        """Ask members for files that have been missing for long."""
        now = time.monotonic()
        for content_id, (since, again_at) in list(self._gone.items()):
            if self._local.is_listed(content_id):
                del self._gone[content_id]
            elif now >= again_at:
                self._gone[content_id] = since, now + _GONE_S
                self._ask(content_id)

    async def keep_pages(self, content_id: str) -> None:
        """Copy the pages that stay when the local file goes. Raises CorruptData, OSError."""
        await asyncio.to_thread(self._copy_pages, content_id)

    def _copy_pages(self, content_id: str) -> None:
        file = SegmentFile(self._local.path(content_id), content_id)
        try:
            self._write_pages(content_id, file)
        finally:
            file.close()

    def _write_pages(self, content_id: str, file: SegmentBytes) -> None:
        unfinished = self._tmp / f"pages-{content_id}"
        kept_pages.write(file, content_id, unfinished)
        unfinished.replace(kept_pages.path_of(self._directory, content_id))

    async def fetch_pages(self, content_id: str) -> None:
        """Copy the pages that stay from the tier. Raises the errors of the store, and OSError."""
        file = self.tier_files.open(content_id)
        if file is not None:
            await self._workers.run(partial(self._write_pages, content_id, file))

    async def forget_pages(self) -> None:
        """Remove the pages of files without a place."""
        named = self._kept.names
        await asyncio.to_thread(kept_pages.remove_except, self._directory, named)

    async def bring_back(self, content_id: str) -> bool:
        """Fetch a whole file from the tier to the disk; False: the file has no place.

        A reader has found damage: what was read before goes first. The place stays until the node
        speaks again. Raises Unavailable, and CorruptData for a file that is damaged in the tier.
        """
        held = self._held(content_id)
        if held is None:
            return False
        path = self._tmp / f"tier-{content_id}"
        await asyncio.to_thread(self._forget, content_id)
        try:
            await self._fetch(held, path)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from None
        await self._sync.run(partial(self._local.add, path, content_id))
        log.info("file fetched from the tier", extra={"fields": {"id": content_id}})
        return True

    async def _fetch(self, held: Held, path: Path) -> None:
        """Write a file of the tier to a path. Each part waits no longer than a read: members are
        asked when the store hangs. No thread for the store writes, since it may come back late."""
        await asyncio.to_thread(path.unlink, missing_ok=True)
        try:
            for at in range(parts_of(held.size)):
                content = await self.run(partial(self._store.part, held, at))
                await asyncio.to_thread(_append, path, content)
            await asyncio.to_thread(self._store.check, held, path)
        except CorruptData:
            await self.run(self._check_place)
            raise

    def _forget(self, content_id: str) -> None:
        kept_pages.remove(self._directory, content_id)
        self.tier_files.forget(content_id)

    def _only(self) -> list[int]:
        """Return the sizes of the files that this node has in the tier only."""
        here, kept = self._local.is_listed, self._kept
        return [place.size for name, place in kept.by_id.items() if not here(name)]

    def row(self) -> dict[str, Any]:
        """Return the part of a status."""
        return {
            "only_files": len(self._only()),
            "only_bytes": sum(self._only()),
            **self.tier_files.row(),
        }


def _append(path: Path, content: bytes) -> None:
    """Append to a file, and sync the file."""
    with path.open("ab") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
