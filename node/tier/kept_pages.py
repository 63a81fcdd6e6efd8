"""The pages of a given-up file that stay on the local disk: footer, dictionary, trees, and filters.

They are about one percent of a file. With them a read of a key asks the tier only for files that
may have the key, and an append whose condition is that a key is new needs no tier.

The pages lie in a file with holes, `ID.kept` beside the segments, each page at the place that it
has in the segment. Behind the end of the segment follows the list of the pages, with a checksum.
The file is a copy of what the tier has. If the file is missing or damaged, the pages come from the
tier. What a reader takes from them has checksums of its own.
"""

import contextlib
import os
import struct
from bisect import bisect_right
from pathlib import Path
from typing import Final

import google_crc32c
import msgpack

from ...client.protocol import limits
from ...client.protocol.errors import CorruptData
from ...statemachine.block_cache import BlockCache
from ...statemachine.segment_file import SegmentBytes, SegmentFile
from ...statemachine.segment_reader import Segment

SUFFIX: Final = ".kept"
_END: Final = struct.Struct(">QII")
"""At the end: the bytes of the segment, those of the list of pages, and a checksum of all."""
_LIST_BYTES_MAX: Final = 16 * limits.MIB
_PAGE: Final = 4096


def path_of(directory: Path, content_id: str) -> Path:
    """Return the path of the pages of a file."""
    return directory / f"{content_id}{SUFFIX}"


class _Noted:
    """The bytes of a segment, which notes what is read. Implements `SegmentBytes`."""

    def __init__(self, file: SegmentBytes) -> None:
        self._file = file
        self.size = file.size
        self.cache: BlockCache | None = None
        self.pages: set[int] = set()

    def read(self, offset: int, count: int) -> memoryview:
        """Return these bytes."""
        self.pages.update(range(offset // _PAGE, -(-(offset + count) // _PAGE)))
        return self._file.read(offset, count)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write(file: SegmentBytes, content_id: str, path: Path) -> int:
    """Write the pages of a file that are to stay, synced; return their bytes.

    Blocks for the disk. Raises CorruptData for a damaged file, and OSError.
    """
    noted = _Noted(file)
    segment = Segment(noted, content_id, BlockCache(limits.MIB))
    for key in segment.footer.bloom_keys:
        segment.may_hold(key)  # reads the filter that begins with the key
    runs: list[list[int]] = []
    for page in sorted(noted.pages):
        begin, end = page * _PAGE, min((page + 1) * _PAGE, file.size)
        if runs and runs[-1][1] == begin:
            runs[-1][1] = end
        else:
            runs.append([begin, end])
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for begin, end in runs:
            _write(fd, begin, file.read(begin, end - begin))
        listed: bytes = msgpack.packb(runs)
        crc = google_crc32c.value(content_id.encode() + listed)
        _write(fd, file.size, memoryview(listed + _END.pack(file.size, len(listed), crc)))
        os.fsync(fd)
    finally:
        os.close(fd)
    return sum(end - begin for begin, end in runs)


def _write(fd: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        offset, data = offset + written, data[written:]


class KeptPages:
    """The pages of one file. Raises OSError and CorruptData for a file that cannot be used."""

    def __init__(self, directory: Path, content_id: str, size: int) -> None:
        """Open the pages of a segment of this size. Blocks for the disk."""
        self._file = SegmentFile(path_of(directory, content_id), content_id)
        try:
            runs = _runs(self._file, content_id, size)
        except BaseException:
            self._file.close()
            raise
        self._begins = [begin for begin, _ in runs]
        self._ends = [end for _, end in runs]

    def read(self, offset: int, count: int, cache: BlockCache | None) -> memoryview | None:
        """Return bytes of the segment, None for bytes that are not here.

        Raises NotPrepared as `SegmentFile` does. `cache`: as there.
        """
        at = bisect_right(self._begins, offset) - 1
        if at < 0 or offset + count > self._ends[at]:
            return None
        self._file.cache = cache
        return self._file.read(offset, count)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _runs(file: SegmentFile, content_id: str, size: int) -> list[list[int]]:
    """Return where the pages are that the file has."""
    told, count, crc = _END.unpack(file.read(max(0, file.size - _END.size), _END.size))
    if told != size or size + count + _END.size != file.size or count > _LIST_BYTES_MAX:
        raise CorruptData(f"the pages of segment {content_id} are of another file")
    listed = bytes(file.read(size, count))
    if google_crc32c.value(content_id.encode() + listed) != crc:
        raise CorruptData(f"the list of pages of segment {content_id} is damaged")
    runs: list[list[int]] = msgpack.unpackb(listed)
    return runs


def opened(directory: Path, content_id: str, size: int) -> KeptPages | None:
    """Return the pages of a file, None if there are none that can be used. Blocks for the disk."""
    try:
        return KeptPages(directory, content_id, size)
    except (OSError, CorruptData):
        return None


def remove(directory: Path, content_id: str) -> None:
    """Remove the pages of a file. Blocks for the disk."""
    with contextlib.suppress(OSError):
        path_of(directory, content_id).unlink(missing_ok=True)


def remove_except(directory: Path, named: frozenset[str]) -> None:
    """Remove the pages of files that have no place in the tier any more. Blocks for the disk."""
    with contextlib.suppress(OSError):
        for path in directory.glob(f"*{SUFFIX}"):
            if path.stem not in named:
                path.unlink(missing_ok=True)
