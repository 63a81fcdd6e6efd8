"""The writes to one file since its last fsync, kept so that they can be undone.

The file itself always has the newest content, so that reads need nothing else. For each change, the
replaced bytes are kept. Undoing all changes, from the last to the first, restores the file of the
fsync; undoing a part restores a state in between.
"""

import random
from dataclasses import dataclass
from typing import Final, Literal, Protocol

BLOCK_BYTES: Final = 4096
"""A disk writes a block whole or not at all; content is torn between blocks."""
How = Literal["lost", "prefix", "torn"]
HOW: Final[tuple[How, ...]] = ("lost", "prefix", "torn")
"""The part of unsynced changes that survives: nothing, the first writes, or any of the blocks."""


class Image(Protocol):
    """The content of a file."""

    def size(self) -> int:
        """The number of bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Read the bytes: fewer at the end, none behind it."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Write the bytes; a gap behind the end is filled with zeros up to `offset`."""

    def resize(self, size: int) -> None:
        """Cut the content, or add zeros."""


@dataclass(frozen=True, slots=True)
class _Undo:
    size: int
    """The size of the file before the change."""
    offset: int
    before: bytes
    """The earlier bytes at `offset`."""
    length: int
    """The number of bytes written at `offset`."""

    def apply(self, image: Image) -> None:
        image.resize(self.size)
        if self.before:
            image.write(self.offset, self.before)


class Unsynced:
    """The changes of one file that no fsync has covered, in order."""

    def __init__(self) -> None:
        self._undos: list[_Undo] = []
        self._synced = 0
        """The number of changes that were covered before these."""

    def __len__(self) -> int:
        return len(self._undos)

    @property
    def count(self) -> int:
        """The number of all changes so far.

        Taken when an fsync begins, it says which changes the fsync covers.
        """
        return self._synced + len(self._undos)

    def will_write(self, image: Image, offset: int, length: int) -> None:
        """Note a write; call this before it.

        A write that then fails, or is partial, does no harm.
        """
        self._undos.append(_Undo(image.size(), offset, image.read(offset, length), length))

    def will_resize(self, image: Image, size: int) -> None:
        """Note a change of size; call this before it."""
        old = image.size()
        self._undos.append(_Undo(old, size, image.read(size, max(0, old - size)), 0))

    def synced(self, count: int) -> None:
        """Note the end of an fsync that began at this count."""
        covered = max(0, count - self._synced)
        del self._undos[:covered]
        self._synced += covered

    def lose(self, image: Image, how: How, rng: random.Random) -> None:
        """Leave only the changes in `image` that survive a power cut."""
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
            image.resize(size)  # the file was cut at its end, and only this change survived


def _blocks(undo: _Undo) -> range:
    end = undo.offset + undo.length
    return range(undo.offset // BLOCK_BYTES, (end + BLOCK_BYTES - 1) // BLOCK_BYTES)
