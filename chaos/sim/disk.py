"""A simulated disk: a power loss may lose unsynced data, whole or in sectors.

Writes go to a volatile image, as into a page cache. `sync` makes a file's content durable,
`sync_directory` its names. A process kill keeps the volatile image. A power loss keeps durable data
plus a random part of the rest, in any order and torn at sectors, as ALICE found real file systems
to behave (Pillai et al., OSDI 2014).
"""

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...raft.types import Disk

SECTOR_BYTES = 512


class Died(BaseException):
    """The simulated machine ends at this disk operation. Not an Exception: nothing catches it."""


@dataclass(slots=True)
class _File:
    content: bytearray
    durable: bytearray
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)


class SimDisk(Disk):
    """`operations` counts the calls that change anything, so that a crash can be put before each.

    `on_sync(name)` is called after a sync finished.
    """

    def __init__(self, rng: random.Random, on_sync: Callable[[str], None] | None = None) -> None:
        self._rng = rng
        self._on_sync = on_sync
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}
        self._renamed: dict[str, str] = {}
        """New name to old since the last sync of the directory: a rename is atomic."""
        self.operations = 0
        self.die_at: int | None = None
        self.fail_at: int | None = None
        """The operation that raises OSError(EIO), as do all later operations."""
        self.full = False
        """Whether the disk is full: files can be overwritten and deleted, but not extended."""

    # Faults.

    def lose_power(self) -> None:
        """Keep durable data and a random part of the rest."""
        rng = self._rng
        survivors: dict[str, _File] = {}
        names_made: dict[str, bool] = {}
        for name in sorted(set(self._durable_names) | set(self._files)):
            durable = self._durable_names.get(name)
            volatile = self._files.get(name)
            # A creation or deletion that was not synced may or may not survive.
            made = True
            if durable is not volatile:
                first = self._first_name(name)
                if first not in names_made:
                    names_made[first] = rng.random() < 0.5
                made = names_made[first]
            file = volatile if made else durable
            if file is not None:
                survivors[name] = file
        for file in survivors.values():
            image = bytearray(file.durable)
            for offset, data in file.unsynced:
                self._settle(image, offset, data)
            if len(image) > len(file.durable) and rng.random() < 0.5:
                # Its length was not durable either.
                del image[rng.randrange(len(file.durable), len(image)) :]
            file.content = image
            file.durable = bytearray(image)
            file.unsynced.clear()
        self._files = survivors
        self._durable_names = dict(survivors)
        self._renamed.clear()
        self.die_at = self.fail_at = None

    def write_back(self) -> None:
        """Write everything back to the disk, as the kernel does sooner or later."""
        self._durable_names = dict(self._files)
        self._renamed.clear()
        for file in self._files.values():
            file.durable = bytearray(file.content)
            file.unsynced.clear()

    def flip_bit(self, name: str, offset: int, bit: int = 0) -> None:
        """Flip a bit, on the disk and in the cache."""
        file = self._files[name]
        for image in (file.content, file.durable):
            if offset < len(image):
                image[offset] ^= 1 << bit

    def cut_short(self, name: str, size: int) -> None:
        """Lose the end of a synced file, as a broken file system does."""
        file = self._files[name]
        del file.content[size:], file.durable[size:]
        file.unsynced = [(at, data[: size - at]) for at, data in file.unsynced if at < size]

    def lose_all(self) -> None:
        """Replace the disk: no file is left."""
        self._files.clear()
        self._durable_names.clear()
        self._renamed.clear()

    def _settle(self, image: bytearray, offset: int, data: bytes) -> None:
        rng = self._rng
        fate = rng.random()
        if len(image) < offset + len(data):
            image.extend(bytes(offset + len(data) - len(image)))
        if fate < 0.4:
            return
        if fate < 0.7:
            image[offset : offset + len(data)] = data
            return
        position = 0
        while position < len(data):
            step = min(SECTOR_BYTES - (offset + position) % SECTOR_BYTES, len(data) - position)
            if rng.random() < 0.5:
                image[offset + position : offset + position + step] = data[
                    position : position + step
                ]
            position += step

    def boundary(self) -> None:
        """Count a step of another store on the same machine, so that a crash can be put there.

        Raises OSError as a transaction of that store would, also on a full disk.
        """
        self._operation()
        self._grow()

    def _operation(self) -> None:
        self.operations += 1
        if self.die_at is not None and self.operations >= self.die_at:
            raise Died
        if self.fail_at is not None and self.operations >= self.fail_at:
            raise OSError(errno.EIO, "simulated disk error")

    def names(self) -> list[str]:
        return sorted(self._files)

    def _grow(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")

    # Disk.

    def create(self, name: str, size: int) -> None:
        self._operation()
        self._grow()
        if name in self._files:
            raise FileExistsError(errno.EEXIST, "file exists", name)
        self._files[name] = _File(bytearray(size), bytearray(), [(0, bytes(size))])

    def size(self, name: str) -> int:
        return len(self._file(name).content)

    def read(self, name: str, offset: int, length: int) -> bytes:
        return bytes(self._file(name).content[offset : offset + length])

    def write(self, name: str, offset: int, buffers: Sequence[bytes]) -> None:
        self._operation()
        file = self._file(name)
        data = b"".join(buffers)
        end = offset + len(data)
        if len(file.content) < end:
            self._grow()
            file.content.extend(bytes(end - len(file.content)))
        file.content[offset:end] = data
        file.unsynced.append((offset, data))

    def truncate(self, name: str, size: int) -> None:
        self._operation()
        file = self._file(name)
        del file.content[size:]
        del file.durable[size:]
        file.unsynced = [(at, data[: size - at]) for at, data in file.unsynced if at < size]

    def rename(self, old: str, new: str) -> None:
        self._operation()
        self._files[new] = self._files.pop(old)
        self._renamed[new] = self._first_name(old)

    def delete(self, name: str) -> None:
        self._operation()
        self._file(name)
        del self._files[name]

    def sync(self, name: str) -> None:
        self._operation()
        file = self._file(name)
        for offset, data in file.unsynced:
            end = offset + len(data)
            if len(file.durable) < end:
                file.durable.extend(bytes(end - len(file.durable)))
            file.durable[offset:end] = data
        file.unsynced.clear()
        if self._on_sync is not None:
            self._on_sync(name)

    def sync_directory(self) -> None:
        self._operation()
        self._durable_names = dict(self._files)
        self._renamed.clear()

    def _first_name(self, name: str) -> str:
        return self._renamed.get(name, name)

    def _file(self, name: str) -> _File:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None
