"""The store of segment files: `files/` by content id, opened once, removed when nobody names it."""

import os
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from ..client import limits
from ..client.errors import CorruptData
from ..client.invariants import DiskFailure
from .memtable import ValueCache
from .segment_reader import BlockCache, Segment
from .segment_writer import hash_file

_OPEN_MAX = 256


class SegmentStore:
    """Immutable files in one directory, and the caches that reads of a node share.

    An environment may be open once in a process, so everybody shares the one handle.
    """

    def __init__(self, directory: Path, *, open_max: int = _OPEN_MAX) -> None:
        self._directory = directory
        self._open_max = open_max
        self._open: OrderedDict[str, Segment] = OrderedDict()
        self._blocks = BlockCache(limits.block_cache_bytes_max)
        self.values = ValueCache(limits.block_cache_bytes_max)

    def path(self, content_id: str) -> Path:
        """Where the file is, or would be."""
        return self._directory / f"{content_id}.seg"

    def has(self, content_id: str) -> bool:
        """Whether the file is here."""
        return self.path(content_id).exists()

    def add(self, source: Path, content_id: str) -> None:
        """Take a finished, synced file over: rename it into place and sync the directory.

        Raises DiskFailure.
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

    def segment(self, content_id: str) -> Segment:
        """The open segment. Raises CorruptData when it is missing or no segment."""
        segment = self._open.get(content_id)
        if segment is not None:
            self._open.move_to_end(content_id)
            return segment
        if not self.has(content_id):
            raise CorruptData(f"segment {content_id} is missing")
        segment = Segment(self.path(content_id), content_id, self._blocks)
        self._open[content_id] = segment
        while len(self._open) > self._open_max:
            _, old = self._open.popitem(last=False)
            old.close()
        return segment

    def verify(self, content_id: str) -> None:
        """Hash the file. Raises CorruptData when it is not what its name says."""
        found = hash_file(self.path(content_id))
        if found != content_id:
            raise CorruptData(f"segment {content_id} has the SHA-256 {found}")

    def remove_except(self, named: Iterable[str]) -> list[str]:
        """Delete the files that no manifest names; returns their ids."""
        keep = set(named)
        removed = []
        for file in self._directory.glob("*.seg"):
            if file.stem not in keep:
                segment = self._open.pop(file.stem, None)
                if segment is not None:
                    segment.close()
                file.unlink()
                removed.append(file.stem)
        return removed

    def close(self) -> None:
        """Close all segments."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()
