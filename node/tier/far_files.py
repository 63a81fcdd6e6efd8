"""Files that this node has in the tier only: their reads, and how they come back to the disk.

Footer and filters of such a file are on the local disk (`kept_pages`), the rest is read by range
requests through a cache (`tier_files`). The place of a file is looked up at each request: a new
generation may have the file at another place.

Requests run in threads of their own, so that a store that hangs delays reads of the tier alone.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ...client.protocol.errors import Unavailable
from ...client.protocol.limits import MIB
from ...statemachine.block_cache import BlockCache
from ...statemachine.segment_file import SegmentBytes, SegmentFile
from ...statemachine.segments import SegmentStore
from ..directory.kept_files import KeptFiles
from ..metrics import Metrics
from ..runtime.sync_thread import SyncThread
from ..runtime.workers import Workers
from . import kept_pages
from .chunk_cache import ChunkCache
from .manifest import Held
from .tier_files import TierFile, TierFiles
from .tier_store import TierStore

READERS: Final = 16
"""The most reads that wait for the store at a time: threads that `workers` needs."""
MEMORY_BYTES: Final = 32 * MIB
"""The most bytes of chunks in memory."""

T = TypeVar("T")
log = logging.getLogger("lognode.tier")


class FarFile:
    """A file in the tier, with pages on this disk. Implements `SegmentBytes`."""

    def __init__(self, file: TierFile, pages: kept_pages.KeptPages | None) -> None:
        self._file = file
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
        return self._file.read(offset, count)

    def close(self) -> None:
        """Close the pages."""
        if self._pages is not None:
            self._pages.close()


class FarFiles:
    """The files of one node that have a place in the tier. `tmp`: where files are received."""

    def __init__(
        self, store: TierStore, cache: ChunkCache, kept: KeptFiles, files: SegmentStore, *,
        directory: Path, tmp: Path, sync: SyncThread, workers: Workers, metrics: Metrics,
    ) -> None:  # fmt: skip
        self._store = store
        self._kept = kept
        self._local = files
        self._directory = directory
        self._tmp = tmp
        self._sync = sync
        self._workers = workers
        self.tier_files = TierFiles(store.objects, cache, self._held)
        files.read_elsewhere(self.open, workers.run)
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
        return FarFile(file, kept_pages.opened(self._directory, content_id, file.size))

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a call that waits for the store in one of the threads for reads."""
        return self._workers.run(call)

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
            await self.run(partial(self._write_pages, content_id, file))

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
            await self.run(partial(self._fetch, held, path))
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror or error}") from None
        await self._sync.run(partial(self._local.add, path, content_id))
        log.info("file fetched from the tier", extra={"fields": {"id": content_id}})
        return True

    def _fetch(self, held: Held, path: Path) -> None:
        self._store.fetch(held, path)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

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
