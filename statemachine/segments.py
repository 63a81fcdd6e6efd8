"""The store of segment files: `files/` by content id, opened once, removed when nobody names it."""

import os
from collections import Counter, OrderedDict
from collections.abc import Iterable
from pathlib import Path

from ..client import limits
from ..client.errors import CorruptData
from ..client.invariants import DiskFailure
from .memtable import ColumnCache
from .segment_reader import BlockCache, Segment
from .segment_writer import hash_file

_OPEN_MAX = 256


class SegmentStore:
    """Immutable files in one directory, and the caches that reads of a node share.

    An environment may be open once in a process, so everybody shares the one handle. LMDB trusts
    its pages: a damaged one can end the process. So no file is opened that this process has not
    hashed once, or made (executions 1.28). A node does that at start, on a thread; where it did
    not, the first open does.
    """

    def __init__(self, directory: Path, *, open_max: int = _OPEN_MAX) -> None:
        self._directory = directory
        self._open_max = open_max
        self._open: OrderedDict[str, Segment] = OrderedDict()
        self._verified: set[str] = set()
        self._held: Counter[str] = Counter()
        self._blocks = BlockCache(limits.block_cache_bytes_max)
        self.columns = ColumnCache(limits.column_cache_bytes_max)

    def path(self, content_id: str) -> Path:
        """Where the file is, or would be."""
        return self._directory / f"{content_id}.seg"

    def has(self, content_id: str) -> bool:
        """Whether the file is here."""
        return self.path(content_id).exists()

    def hold(self, content_id: str) -> None:
        """Keep the file, named or not, until `release`: a manifest is about to name it."""
        self._held[content_id] += 1

    def release(self, content_id: str) -> None:
        """The end of a `hold`."""
        self._held[content_id] -= 1
        if not self._held[content_id]:
            del self._held[content_id]

    def add(self, source: Path, content_id: str) -> None:
        """Take a finished, synced file over: rename it into place and sync the directory.

        The caller has just hashed it. Raises DiskFailure.
        """
        try:
            os.replace(source, self.path(content_id))
            fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise DiskFailure(
                f"moving {source} to {self.path(content_id)} failed: {error.strerror or error}"
            ) from error
        self._verified.add(content_id)

    def segment(self, content_id: str) -> Segment:
        """The open segment. Raises CorruptData when it is missing or no segment."""
        segment = self._open.get(content_id)
        if segment is not None:
            self._open.move_to_end(content_id)
            return segment
        if content_id not in self._verified:
            self.verify(content_id)
        segment = Segment(self.path(content_id), content_id, self._blocks)
        self._open[content_id] = segment
        while len(self._open) > self._open_max:
            # Not closed here: a read over many segments may hold it, and closes it by letting go.
            self._open.popitem(last=False)
        return segment

    def verify(self, content_id: str) -> None:
        """Hash the file: 0.7 s a GB. Raises CorruptData when it is not what its name says."""
        try:
            found = hash_file(self.path(content_id))
        except FileNotFoundError:
            raise CorruptData(f"segment {content_id} is missing") from None
        except OSError as error:
            raise CorruptData(f"segment {content_id} cannot be read: {error}") from None
        if found != content_id:
            raise CorruptData(f"segment {content_id} is damaged: its SHA-256 is {found}")
        self._verified.add(content_id)

    def is_verified(self, content_id: str) -> bool:
        """Whether this process has hashed the file, or made it, and nothing spoke against it."""
        return content_id in self._verified

    def doubt(self, content_ids: Iterable[str]) -> None:
        """A read found one of these damaged: none is opened again before it is hashed anew."""
        for content_id in content_ids:
            self._verified.discard(content_id)
            self._open.pop(content_id, None)  # a read may hold it, and closes it by letting go

    def discard(self, content_id: str) -> None:
        """Delete a file that is not what its name says, so that a sound one can take its place."""
        self.doubt([content_id])
        self.path(content_id).unlink(missing_ok=True)

    def remove_except(self, named: Iterable[str]) -> list[str]:
        """Delete the files that no manifest names and nobody holds; returns their ids."""
        keep = set(named) | set(self._held)
        removed = []
        for file in self._directory.glob("*.seg"):
            if file.stem not in keep:
                segment = self._open.pop(file.stem, None)
                if segment is not None:
                    segment.close()
                file.unlink()
                self._verified.discard(file.stem)
                removed.append(file.stem)
        return removed

    def close(self) -> None:
        """Close all segments."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()
