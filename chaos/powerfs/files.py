"""What was written to one file since its last fsync, as what it takes to undo it.

The file itself always has what was written last, so that reading it asks nobody. Of each change the
bytes are kept that it replaced; undone from the last to the first they give the file as it was at
the fsync, and undone in part as it was in between.
"""

import random
from dataclasses import dataclass
from typing import Final, Literal, Protocol

BLOCK_BYTES: Final = 4096
"""What a disk writes whole or not at all; content is torn between blocks."""
How = Literal["lost", "prefix", "torn"]
HOW: Final[tuple[How, ...]] = ("lost", "prefix", "torn")
"""Of what was not synced nothing survives, or what was written first, or any of its blocks."""


class Image(Protocol):
    """The content of a file."""

    def size(self) -> int:
        """In bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Fewer bytes at the end, none behind it."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Behind the end there are zeros up to `offset`."""

    def resize(self, size: int) -> None:
        """Cut it, or add zeros."""


@dataclass(frozen=True, slots=True)
class _Undo:
    size: int
    """Of the file before."""
    offset: int
    before: bytes
    """What there was at `offset`."""
    length: int
    """How many bytes were written at `offset`."""

    def apply(self, image: Image) -> None:
        image.resize(self.size)
        if self.before:
            image.write(self.offset, self.before)


class Unsynced:
    """The changes of one file that no fsync has covered, in order."""

    def __init__(self) -> None:
        self._undos: list[_Undo] = []
        self._synced = 0
        """How many changes before these were covered."""

    def __len__(self) -> int:
        return len(self._undos)

    @property
    def count(self) -> int:
        """Of all changes ever: taken when an fsync begins, it says what that covers."""
        return self._synced + len(self._undos)

    def will_write(self, image: Image, offset: int, length: int) -> None:
        """To be called before; a write that fails then, or in part, does no harm."""
        self._undos.append(_Undo(image.size(), offset, image.read(offset, length), length))

    def will_resize(self, image: Image, size: int) -> None:
        """To be called before."""
        old = image.size()
        self._undos.append(_Undo(old, size, image.read(size, max(0, old - size)), 0))

    def synced(self, count: int) -> None:
        """An fsync has ended that began at this count."""
        covered = max(0, count - self._synced)
        del self._undos[:covered]
        self._synced += covered

    def lose(self, image: Image, how: How, rng: random.Random) -> None:
        """Leave of the changes in `image` what survives a power cut."""
        if how == "torn":
            self._tear(image, rng)
        else:
            self._undo(image, 0 if how == "lost" else rng.randrange(len(self._undos) + 1))
        self.synced(self.count)

    def _undo(self, image: Image, keep: int) -> None:
        for undo in reversed(self._undos[keep:]):
            undo.apply(image)

    def _tear(self, image: Image, rng: random.Random) -> None:
        size = image.size()
        blocks = sorted({block for undo in self._undos for block in _blocks(undo)})
        written = {block: image.read(block * BLOCK_BYTES, BLOCK_BYTES) for block in blocks}
        self._undo(image, 0)
        for block in blocks:
            if written[block] and rng.random() < 0.5:
                image.write(block * BLOCK_BYTES, written[block])
        if size < image.size() and rng.random() < 0.5:
            image.resize(size)  # the end of the file was cut, and only that survived


def _blocks(undo: _Undo) -> range:
    end = undo.offset + undo.length
    return range(undo.offset // BLOCK_BYTES, (end + BLOCK_BYTES - 1) // BLOCK_BYTES)
