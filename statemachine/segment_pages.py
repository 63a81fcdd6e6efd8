"""Whether LMDB can be trusted with the pages of a segment file.

LMDB believes its pages: a wrong page ends the process, by an assertion or by a read beyond the map.
So before a file is opened, its pages are walked from the first to the last. Each page states its
own number and kind, the pages of large values follow their head, and every node of a tree lies in
its page and points into the file. Damage while the file is open is not found here: the process may
end then, and the next open finds the damage.

The walk takes 0.1 to 0.4 ms a MiB, all of it in Python: a node runs it on a thread that lets the
loop have the interpreter after every step.
"""

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..client.protocol.errors import CorruptData

_PAGE: Final = 4096
_HEADER: Final = struct.Struct("=QHHHH")
"""The page number, padding, flags, and the bounds of the page's free space."""
_COUNT: Final = struct.Struct("=I")
_NODE: Final = struct.Struct("=HHHH")
"""The low and high half of a value's size, or of a child's page, then flags and the key's size."""
_NUMBER: Final = struct.Struct("=Q")
_BRANCH, _LEAF, _OVERFLOW, _META = 1, 2, 4, 8
_BIG, _SUBTREE, _DUPLICATES = 1, 2, 4
_HEADER_BYTES: Final = 16
_METAS: Final = 2
_META_ROW: Final = struct.Struct("=16x8x8xQI4x40xI4x32xQQ")
"""The map size and page size; the padding and root of the main tree; the last page used."""
_TREE_ROOT: Final = 40
"""The offset of the root in the row of a tree."""
_EMPTY: Final = (1 << 64) - 1
_LOOKED_A_STEP: Final = 500
"""Pages and nodes a step: about 0.5 ms."""


def check_pages(path: Path, on_step: Callable[[], None] = lambda: None) -> int:
    """Check all pages and return the size of the file. Raises CorruptData, OSError.

    `on_step` is called between steps.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        size = len(pages)
        if size % _PAGE or size <= _METAS * _PAGE:
            raise CorruptData(f"the file has {size} bytes, which are not whole pages")
        walk = _Walk(pages)
        at = 0
        try:
            while at < walk.count:
                at += walk.check_page(at)
                if walk.looked >= _LOOKED_A_STEP:
                    walk.looked = 0
                    on_step()
        except struct.error:
            raise CorruptData(f"page {at} ends too early") from None
        return size


class _Walk:
    """A walk over the pages of one file."""

    def __init__(self, pages: mmap.mmap) -> None:
        self._pages = pages
        self.count = len(pages) // _PAGE
        self.looked = 0
        """Pages and nodes checked since the last step."""

    def check_page(self, at: int) -> int:
        """Check a page. Return how many pages it covers."""
        begin = at * _PAGE
        self.looked += 1
        number, _, flags, lower, upper = _HEADER.unpack_from(self._pages, begin)
        if number != at or (flags == _META) != (at < _METAS):
            raise CorruptData(f"page {at} has the number of another page")
        if flags == _META:
            self._check_meta(at)
        elif flags == _OVERFLOW:
            return self._length(at)
        elif flags in (_BRANCH, _LEAF):
            self._check_nodes(at, begin, lower, upper, _PAGE, branch=flags == _BRANCH)
        else:
            raise CorruptData(f"page {at} has an unknown kind")
        return 1

    def _check_meta(self, at: int) -> None:
        map_bytes, page_bytes, _, root, last = _META_ROW.unpack_from(self._pages, at * _PAGE)
        if page_bytes != _PAGE or map_bytes < len(self._pages) or last >= self.count:
            raise CorruptData(f"page {at} is of a file of another size")
        self._check_root(at, root)

    def _check_root(self, at: int, root: int) -> None:
        if root != _EMPTY and not _METAS <= root < self.count:
            raise CorruptData(f"page {at} leads out of the file")

    def _length(self, at: int) -> int:
        """Return the pages of the large value that begins at a page."""
        length: int
        (length,) = _COUNT.unpack_from(self._pages, at * _PAGE + _HEADER_BYTES - _COUNT.size)
        if not 0 < length <= self.count - at:
            raise CorruptData(f"the value at page {at} ends behind the file")
        return length

    def _check_nodes(
        self, at: int, begin: int, lower: int, upper: int, room: int, *, branch: bool
    ) -> None:
        """Check the nodes of a page, or of a page in a page: `room` bytes from `begin` on."""
        if not _HEADER_BYTES <= lower <= upper <= room or lower % 2:
            raise CorruptData(f"page {at} has no bounds")
        nodes = struct.unpack_from(
            f"={(lower - _HEADER_BYTES) // 2}H", self._pages, begin + _HEADER_BYTES
        )
        if nodes and not (upper <= min(nodes) and max(nodes) <= room - _NODE.size):
            raise CorruptData(f"page {at} has a node outside it")
        self.looked += len(nodes)
        for node in nodes:
            low, high, flags, key_bytes = _NODE.unpack_from(self._pages, begin + node)
            value = node + _NODE.size + key_bytes
            if branch:
                if value > room:
                    raise CorruptData(f"page {at} has a key outside it")
                self._check_root(at, low | high << 16 | flags << 32)
            else:
                self._check_value(at, begin + value, room - value, low | high << 16, flags)

    def _check_value(self, at: int, begin: int, room: int, size: int, flags: int) -> None:
        kind = flags & (_BIG | _SUBTREE | _DUPLICATES)
        if kind != flags or (_NUMBER.size if kind == _BIG else size) > room:
            raise CorruptData(f"page {at} has a value outside it")
        if kind == _BIG:
            (head,) = _NUMBER.unpack_from(self._pages, begin)
            self._check_root(at, head)
            number, _, found, *_ = _HEADER.unpack_from(self._pages, head * _PAGE)
            if (number, found) != (head, _OVERFLOW) or (
                _HEADER_BYTES + size > self._length(head) * _PAGE
            ):
                raise CorruptData(f"page {at} leads to a value that does not exist")
        elif kind & _SUBTREE:
            (root,) = _NUMBER.unpack_from(self._pages, begin + _TREE_ROOT)
            self._check_root(at, root)
        elif kind == _DUPLICATES:
            _, _, _, lower, upper = _HEADER.unpack_from(self._pages, begin)
            self._check_nodes(at, begin, lower, upper, size, branch=False)
