"""Reading the pages of a segment file, which LMDB wrote, without LMDB.

LMDB believes the pages of a file: a wrong page ends the process, by an assertion or by a read
beyond the map. So LMDB can read a file only after the file was hashed and all its pages were
checked, 1.3 s a GiB. Here a page is checked when a read touches it, and the file is never mapped.

A wrong page can lead to another value or to none. It never leads out of the file, and never in a
circle, since the depth of a tree is bounded. The callers notice a wrong value: each value has a
checksum over its place and its bytes, and the keys of a block and of the next block enclose every
key that was looked up there.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..client.protocol.errors import CorruptData
from .segment_file import SegmentBytes
from .segment_format import ORDINAL, POSITION, Stored

_PAGE: Final = 4096
_HEADER: Final = struct.Struct("=QHHHH")
"""The page number, padding, flags, and the bounds of the page's free space."""
_NODE: Final = struct.Struct("=HHHH")
"""The low and high half of a value's size, or of a child's page, then flags and the key's size."""
_KEY_BYTES: Final = struct.Struct("=H")
_NUMBER: Final = struct.Struct("=Q")
_LARGE: Final = struct.Struct("=QHHI")
"""The header of the first page of a large value: number, padding, flags, and how many pages."""
_BRANCH, _LEAF, _LARGE_VALUE, _META = 1, 2, 4, 8
_BIG, _SUBTREE, _DUPLICATES = 1, 2, 4
_INNER: Final = 0x40
"""The flag of a page of duplicates within the value of a node."""
_METAS: Final = 2
_META_ROW: Final = struct.Struct("=16xII8xQI4x40xI4x32xQQQ")
"""Magic and version; the map size and page size; the padding and root of the main tree; the last
page used; the number of the transaction."""
_MAGIC: Final = 0xBEEFC0DE
_TREE_BYTES: Final = 48
_TREE_ROOT: Final = 40
"""The size of the row of a tree, and the offset of the root in the row."""
_EMPTY: Final = (1 << 64) - 1
_DEPTH_MAX: Final = 32
"""The most levels of a tree, as in LMDB."""
_BRANCHES_MAX: Final = 8
"""The branches that a file keeps in memory, 4 KiB each."""
_TRUSTED_BYTES: Final = 1 << 20
"""A size up to this is believed without reading the first page of the value before."""


class Page:
    """The nodes of a branch or of a leaf. Raises CorruptData, struct.error for wrong bytes."""

    __slots__ = ("_data", "_nodes", "branch")

    def __init__(self, data: bytes, lower: int, upper: int, *, branch: bool) -> None:
        if not _HEADER.size < lower <= upper <= len(data) or lower % 2:
            raise CorruptData("a page of a tree has no bounds")
        self._data = data
        self._nodes = memoryview(data)[_HEADER.size : lower].cast("H")
        self.branch = branch

    def __len__(self) -> int:
        return len(self._nodes)

    def key(self, at: int) -> bytes:
        """Return the key of a node."""
        begin = self._nodes[at] + _NODE.size
        (size,) = _KEY_BYTES.unpack_from(self._data, begin - _KEY_BYTES.size)
        return self._data[begin : begin + size]

    def ordinal(self, at: int) -> int:
        """Return the key of a node in a tree of numbers."""
        number: int
        (number,) = ORDINAL.unpack_from(self._data, self._nodes[at] + _NODE.size)
        return number

    def child(self, at: int) -> int:
        """Return the page to which a node of a branch leads."""
        low, high, top, _ = _NODE.unpack_from(self._data, self._nodes[at])
        number: int = low | high << 16 | top << 32
        return number

    def value(self, at: int) -> tuple[int, int, bytes]:
        """Return the kind of a node's value, its size, and what the page has of the value."""
        low, high, kind, key_bytes = _NODE.unpack_from(self._data, self._nodes[at])
        size = low | high << 16
        begin = self._nodes[at] + _NODE.size + key_bytes
        held = _NUMBER.size if kind == _BIG else size
        data = self._data[begin : begin + held]
        if len(data) != held:
            raise CorruptData("a page of a tree has a value outside it")
        return kind, size, data

    def last_at_most(self, key: Any, key_at: Callable[[int], Any]) -> int:
        """Return the last node whose key is not above `key`, or -1.

        The first node of a branch is below all keys. `key_at`: `key` or `ordinal`.
        """
        return bisect_right(range(len(self)), key, 1 if self.branch else 0, key=key_at) - 1

    def last_number_at_most(self, number: int) -> int:
        """Return the same for a number in a tree of numbers. The numbers of a leaf mostly follow
        each other."""
        guess = number - self.ordinal(0) if self._nodes and not self.branch else -1
        if 0 <= guess < len(self) and self.ordinal(guess) == number:
            return guess
        return self.last_at_most(number, self.ordinal)

    def first_from(self, key: bytes) -> int:
        """Return the first node of a leaf whose key is not below `key`."""
        return bisect_left(range(len(self)), key, key=self.key)


class Pages:
    """The pages of a file. Raises CorruptData, OSError, and NotPrepared as `SegmentFile` does."""

    def __init__(self, file: SegmentBytes) -> None:
        self._file = file
        self._count = file.size // _PAGE
        if file.size % _PAGE or self._count <= _METAS:
            raise CorruptData(f"the file has {file.size} bytes, which are not whole pages")
        self._branches: dict[int, Page] = {}
        """The branches that were read first: the roots, which every lookup needs."""
        self._leaves: dict[int, tuple[int, Page]] = {}
        """The leaf of each tree that was read last: a read of many blocks stays there."""
        self._main = max(self._meta(0), self._meta(1))[1]

    def tree(self, name: bytes) -> int:
        """Return the root of a named tree."""
        found = self._find(self._main, name)
        if found is None:
            raise CorruptData(f"the file has no {name.decode()}")
        kind, size, data = found
        if kind != _SUBTREE or size != _TREE_BYTES:
            raise CorruptData(f"the row of {name.decode()} is not that of a tree")
        return _root(data)

    def get(self, root: int, key: bytes) -> Stored | None:
        """Return the value of a key, or None without it."""
        return self._value(self._find(root, key))

    def part(self, root: int, ordinal: int) -> Stored | None:
        """Return the value of a number in a tree of numbers, or None without it."""
        return self._value(self._find(root, ordinal, numbers=True))

    def locate(self, root: int, key: bytes, position: bytes) -> int:
        """Return the ordinal of the last row of the index that is not above (key, position).

        Without such a row, return -1. The rows of the index have the ordinals 0, 1, 2 and so on.
        """
        page, at = self._leaf(root, key)
        if at < 0:
            return self._ordinal_in(page, 0, b"")
        if page.key(at) != key:
            position = b"\xff" * POSITION.size
        return self._ordinal_in(page, at, position)

    def rows(self, root: int, key: bytes, position: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of the index from (key, position) on: keys and positions."""
        for page, at in self._nodes_from(root, key, 0):
            found = page.key(at)
            for each in self._positions(page, at, position if found == key else b""):
                yield found, each

    # Rows with several positions: LMDB keeps these in a page within the node, or in another tree.

    def _ordinal_in(self, page: Page, at: int, position: bytes) -> int:
        """Return the ordinal of the node's last position up to this, or of the row before."""
        kind, _, data = page.value(at)
        if kind == 0:
            return _ordinal(data) if data <= position else _ordinal(data) - 1
        inner = _inner(data) if kind == _DUPLICATES else None
        if inner is not None:
            rank = inner.last_at_most(position, inner.key)
        elif kind == _DUPLICATES | _SUBTREE:
            inner, rank = self._leaf(_root(data), position)
        else:
            raise CorruptData("a row of the index is of an unknown kind")
        return _ordinal(inner.key(rank)) if rank >= 0 else _ordinal(inner.key(0)) - 1

    def _positions(self, page: Page, at: int, low: bytes) -> Iterator[bytes]:
        """Yield the positions of a node from `low` on."""
        kind, _, data = page.value(at)
        if kind == 0:
            if data >= low:
                yield data
        elif kind == _DUPLICATES:
            inner = _inner(data)
            yield from map(inner.key, range(inner.first_from(low), len(inner)))
        elif kind == _DUPLICATES | _SUBTREE:
            yield from (leaf.key(n) for leaf, n in self._nodes_from(_root(data), low, 0))
        else:
            raise CorruptData("a row of the index is of an unknown kind")

    # Trees.

    def _leaf(self, root: int, key: Any, *, numbers: bool = False) -> tuple[Page, int]:
        """Return the leaf where the key belongs, and the last node not above the key, or -1.

        `numbers`: the key is a number, in a tree of numbers.
        """
        number = root
        for _ in range(_DEPTH_MAX):
            last = self._leaves.get(root)
            page = last[1] if last is not None and last[0] == number else self._page(number)
            at = page.last_number_at_most(key) if numbers else page.last_at_most(key, page.key)
            if not page.branch:
                self._leaves[root] = number, page
                return page, at
            number = page.child(at)
        raise CorruptData("a tree has no leaf")

    def _find(self, root: int, key: Any, *, numbers: bool = False) -> tuple[int, int, bytes] | None:
        """Return the kind, size and bytes in the page of the value of a key, or None."""
        if root == _EMPTY:
            return None
        page, at = self._leaf(root, key, numbers=numbers)
        if at < 0 or (page.ordinal(at) if numbers else page.key(at)) != key:
            return None
        return page.value(at)

    def _nodes_from(self, number: int, key: bytes, depth: int) -> Iterator[tuple[Page, int]]:
        """Yield the nodes of the leaves below a page, from the first not below `key` on."""
        if depth == _DEPTH_MAX:
            raise CorruptData("a tree has no leaf")
        page = self._page(number)
        if not page.branch:
            yield from ((page, at) for at in range(page.first_from(key), len(page)))
            return
        begin = page.last_at_most(key, page.key)
        for at in range(begin, len(page)):
            yield from self._nodes_from(page.child(at), key if at == begin else b"", depth + 1)

    def _page(self, number: int) -> Page:
        kept = self._branches.get(number)
        if kept is not None:
            return kept
        if not _METAS <= number < self._count:
            raise CorruptData(f"a tree leads to page {number} of {self._count}")
        data = bytes(self._file.read(number * _PAGE, _PAGE))
        found, _, flags, lower, upper = _HEADER.unpack_from(data)
        if found != number or flags not in (_BRANCH, _LEAF):
            raise CorruptData(f"page {number} is not of a tree")
        page = Page(data, lower, upper, branch=flags == _BRANCH)
        if page.branch and len(self._branches) < _BRANCHES_MAX:
            self._branches[number] = page
        return page

    def _value(self, found: tuple[int, int, bytes] | None) -> Stored | None:
        if found is None:
            return None
        kind, size, data = found
        if kind == 0:
            return data
        if kind != _BIG:
            raise CorruptData("a value is of an unknown kind")
        (head,) = _NUMBER.unpack(data)
        begin, count = head * _PAGE, _HEADER.size + size
        if size > _TRUSTED_BYTES:
            self._check_large(self._file.read(begin, _HEADER.size), head, count)
        held = self._file.read(begin, count)
        self._check_large(held, head, count)
        return held[_HEADER.size :]

    def _check_large(self, data: memoryview, head: int, count: int) -> None:
        """Check the head of a large value, which needs `count` bytes with its header."""
        number, _, flags, pages = _LARGE.unpack_from(data)
        if (number, flags) != (head, _LARGE_VALUE) or count > pages * _PAGE:
            raise CorruptData(f"the value at page {head} does not exist")

    def _meta(self, number: int) -> tuple[int, int]:
        """Return the transaction and the root of the main tree of one of the two metas."""
        data = self._file.read(number * _PAGE, _PAGE)
        found, _, flags, _, _ = _HEADER.unpack_from(data)
        magic, version, map_bytes, page_bytes, _, root, last, transaction = _META_ROW.unpack_from(
            data
        )
        if (found, flags, magic, version) != (number, _META, _MAGIC, 1):
            raise CorruptData(f"page {number} does not begin a file of LMDB")
        if page_bytes != _PAGE or map_bytes < self._file.size or last >= self._count:
            raise CorruptData(f"page {number} is of a file of another size")
        return transaction, root


def _inner(data: bytes) -> Page:
    """Return the page within a node that has the positions of a key."""
    _, _, flags, lower, upper = _HEADER.unpack_from(data)
    if flags & (_INNER | _LEAF) != _INNER | _LEAF:
        raise CorruptData("a row of the index has no positions")
    return Page(data, lower, upper, branch=False)


def _root(row: bytes) -> int:
    root: int
    (root,) = _NUMBER.unpack_from(row, _TREE_ROOT)
    return root


def _ordinal(position: bytes) -> int:
    if len(position) != POSITION.size:
        raise CorruptData("an index entry has another size")
    ordinal: int = POSITION.unpack(position)[1]
    return ordinal
