"""The size limits of a page: the rule of every answer that carries entries.

The asker of a page names a limit of entries and a limit of bytes. A page holds at least one entry,
whatever the size of that entry. A page takes another entry only while both limits allow the entry.
The bytes are those in a frame: keys, values and headers, and the overhead of msgpack or a chunk for
each entry.

The limit of bytes is at most `page_bytes_max`. So a page at its limit fits `frame_bytes_max`, even
with one largest entry more, and no read fails because of large entries. Pages of keys follow the
same rule (`node/reads.keys`).

A node makes a page in several parts, one a turn of the loop. All parts share the limits of the
page: `begun` tells a part that the page has an entry already.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..client.protocol.chunks import Chunk
from ..client.protocol.types import Entry, Headers

ENTRY_BYTES: Final = 32
"""The most bytes of an entry in a frame, besides its key, value and headers. In a page: seq and
timestamp, 9 each; the heads of key and value, 3 and 5; a snapshot mark, 3. In a chunk: seq and
timestamp, 8 each; the lengths of key and value, 2 and 4; the repeats of the key, 4; the mark, 3."""
CHUNK_BYTES: Final = 96
"""The most bytes of a chunk in a frame, besides its entries: the heads of 13 columns."""
_HEADERS_BYTES: Final = 6
"""The position of an entry that has headers, and the head of their map."""
_HEADER_BYTES: Final = 6
"""The heads of a header's name and value."""


def headers_bytes(headers: Headers | None) -> int:
    """Return how many bytes the headers of an entry have in a frame, at most."""
    if not headers:
        return 0
    texts = sum(map(len, headers)) + sum(map(len, headers.values()))
    return _HEADERS_BYTES + _HEADER_BYTES * len(headers) + texts


def entry_bytes(entry: Entry) -> int:
    """Return how many bytes the entry has in a frame, at most."""
    size = ENTRY_BYTES + len(entry.key)
    if entry.value is not None:
        size += len(entry.value)
    return size + headers_bytes(entry.headers) if entry.headers else size


def entries_bytes(entries: Sequence[Entry]) -> list[int]:
    """Return the same for each entry. No Python function runs for an entry without headers."""
    if any(entry[3] for entry in entries):
        return list(map(entry_bytes, entries))
    return [
        ENTRY_BYTES + len(key) + (0 if value is None else len(value))
        for key, _, _, _, value, _ in entries
    ]


def chunk_bytes(chunk: Chunk) -> int:
    """Return how many bytes the chunk has in a frame, at most."""
    headers = sum(map(headers_bytes, (chunk.headers or {}).values()))
    return CHUNK_BYTES + chunk.size + headers + 3 * len(chunk.snapshots or ())


@dataclass(slots=True, kw_only=True)
class Room:
    """The limits of a page, or of a part of a page, and the size of its content."""

    limit: int = sys.maxsize
    """The most entries."""
    bytes_max: int = sys.maxsize
    begun: bool = False
    """Whether the page has an entry, in this part or an earlier one."""
    count: int = 0
    size: int = 0
    """The most bytes of the content in a frame."""
    refused: bool = False
    """Whether an entry had too many bytes for the remaining room."""

    def __len__(self) -> int:
        return self.count

    @property
    def entries_left(self) -> int:
        """Return how many more entries the page may take."""
        return self.limit - self.count

    @property
    def bytes_left(self) -> int:
        """Return how many more bytes the page may take; an only entry may have more."""
        return self.bytes_max - self.size

    @property
    def full(self) -> bool:
        """Return whether the page takes no more entries."""
        return self.refused or self.count >= self.limit

    def takes(self, size: int, count: int = 1) -> bool:
        """Count `count` entries of `size` bytes together, or return False and count nothing."""
        if self.count + count > self.limit:
            return False
        if self.size + size > self.bytes_max and (self.begun or count > 1):
            self.refused = True
            return False
        self.count += count
        self.size += size
        self.begun = True
        return True

    def joined(self, part: "Room") -> None:
        """Count the content of the part, which used the room left here."""
        self.count += part.count
        self.size += part.size
        self.begun = part.begun
        self.refused = part.refused
