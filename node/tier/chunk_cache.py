"""A cache of chunks of files in a tier: in memory, and on the local disk.

Both parts are bounded in bytes, and in both the chunk that was used longest ago goes first. Files
of a tier are named by their content, so a chunk is never out of date. A chunk on the disk begins
with a checksum of its name and content: a chunk that was cut or changed counts as missing. The disk
may lose any chunk, so nothing is synced. A disk that fails or is full only makes the cache smaller.

Threads may call everything; the event loop calls only `in_memory`, which never waits for a disk.
"""

import contextlib
import fcntl
import os
import re
import struct
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from ...client.protocol import limits
from ...client.protocol.errors import InvalidArgument, Unavailable

CHUNK_BYTES: Final = 64 * limits.KIB
_CRC: Final = struct.Struct(">I")
_NAME: Final = re.compile(r"([0-9a-f]{64})\.([0-9]{1,9})")
_LOCK: Final = "lock"
_UNFINISHED: Final = ".part"


class ChunkName(NamedTuple):
    """A chunk: the content id of its file, and its position among the chunks of the file."""

    content_id: str
    at: int

    @property
    def text(self) -> str:
        """The name of the chunk's file."""
        return f"{self.content_id}.{self.at}"


class ChunkCache:
    """See the module. `memory_bytes_max` and `disk_bytes_max`: bytes of chunks.

    `chunk_bytes`: the size of every chunk but the last of a file. It divides the size of a part.
    Chunks of another size, which an earlier version left, count as missing.
    """

    def __init__(
        self, directory: Path, *, memory_bytes_max: int, disk_bytes_max: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:  # fmt: skip
        """Open the directory, and use the chunks that an earlier process left there.

        Raises Unavailable for a directory that cannot be used, InvalidArgument for a directory that
        another process uses.
        """
        self.chunk_bytes = chunk_bytes
        self._directory = directory
        self._memory_bytes_max = memory_bytes_max
        self._disk_bytes_max = disk_bytes_max
        self._lock = threading.Lock()
        self._memory: OrderedDict[ChunkName, bytes] = OrderedDict()
        self._disk: OrderedDict[ChunkName, int] = OrderedDict()
        self.memory_bytes = self.disk_bytes = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._hold()
            self._find()
        except OSError as error:
            raise Unavailable(
                f"cannot use {directory} as a cache: {error.strerror or error}. Name a directory "
                "that this user may write",
            ) from None

    def close(self) -> None:
        """Leave the directory to another process. Chunks stay there."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def in_memory(self, name: ChunkName) -> bytes | None:
        """Return a chunk that is in memory, or None."""
        with self._lock:
            found = self._memory.get(name)
            if found is not None:
                self._memory.move_to_end(name)
            return found

    def has(self, name: ChunkName) -> bool:
        """Whether the chunk is in memory, or seems to be on the disk."""
        with self._lock:
            return name in self._memory or name in self._disk

    def get(self, name: ChunkName) -> bytes | None:
        """Return a chunk, or None. Waits for the disk."""
        found = self.in_memory(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self._disk:
                return None
            self._disk.move_to_end(name)
        found = self._read(name)
        if found is None:
            self._drop(name)
        else:
            self._remember(name, found)
        return found

    def put(self, name: ChunkName, content: bytes) -> None:
        """Keep a chunk. Waits for the disk."""
        self._remember(name, content)
        size = _CRC.size + len(content)
        if size > self._disk_bytes_max:
            return
        for old in self._make_room(size):
            with contextlib.suppress(OSError):
                self._path(old).unlink(missing_ok=True)
        if self._write(name, content):
            with self._lock:
                self.disk_bytes += size - self._disk.pop(name, 0)
                self._disk[name] = size

    def forget(self, content_id: str) -> None:
        """Forget all chunks of a file: some of them are damaged."""
        with self._lock:
            names = {name for name in (*self._memory, *self._disk) if name.content_id == content_id}
            for name in names & self._memory.keys():
                self.memory_bytes -= len(self._memory.pop(name))
        for name in names:
            self._drop(name)

    def _remember(self, name: ChunkName, content: bytes) -> None:
        with self._lock:
            self.memory_bytes += len(content) - len(self._memory.pop(name, b""))
            self._memory[name] = content
            while self.memory_bytes > self._memory_bytes_max:
                _, old = self._memory.popitem(last=False)
                self.memory_bytes -= len(old)

    def _make_room(self, size: int) -> list[ChunkName]:
        """Take the chunks out of the table that give way to a chunk of this size."""
        gone = []
        with self._lock:
            while self._disk and self.disk_bytes + size > self._disk_bytes_max:
                name, old = self._disk.popitem(last=False)
                self.disk_bytes -= old
                gone.append(name)
        return gone

    def _drop(self, name: ChunkName) -> None:
        with self._lock:
            self.disk_bytes -= self._disk.pop(name, 0)
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: ChunkName) -> Path:
        return self._directory / name.text

    def _read(self, name: ChunkName) -> bytes | None:
        try:
            data = self._path(name).read_bytes()
        except OSError:
            return None
        content = data[_CRC.size :]
        if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != self._checksum(name, content):
            return None
        return content

    def _write(self, name: ChunkName, content: bytes) -> bool:
        """Write a chunk; return whether the disk has the chunk now."""
        path = self._path(name)
        # Two threads may write one chunk.
        beside = path.with_name(f"{path.name}.{threading.get_ident()}{_UNFINISHED}")
        try:
            beside.write_bytes(_CRC.pack(self._checksum(name, content)) + content)
            beside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            return False
        return True

    def _hold(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgument(
                f"another process uses {self._directory} as its cache. Name another directory",
                what="cache",
            ) from None

    def _find(self) -> None:
        """Take over the chunks that are here, the oldest first."""
        found = []
        for entry in os.scandir(self._directory):
            told = _NAME.fullmatch(entry.name)
            if told is not None:
                state = entry.stat()
                found.append((state.st_mtime_ns, ChunkName(told[1], int(told[2])), state.st_size))
            elif entry.name.endswith(_UNFINISHED):
                Path(entry.path).unlink()
        for _, name, size in sorted(found):
            self._disk[name] = size
            self.disk_bytes += size
        for old in self._make_room(0):
            self._path(old).unlink()

    def _checksum(self, name: ChunkName, content: bytes) -> int:
        place = f"{name.text} {self.chunk_bytes}".encode()
        return int(google_crc32c.extend(google_crc32c.value(place), content))
