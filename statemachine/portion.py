"""Portions: what a read of everything returns, as blocks have it, an object a block."""

from typing import Any

from ..client.chunks import Chunk, joined
from ..client.types import Entry
from .page import Page

_ENTRY_BYTES = 12
"""Of a chunk, for each entry, beside its key and value."""


class Portion:
    """Entries in the order in which they were added.

    With an `end_key` it has the keys below it alone, as in `Page`.
    """

    def __init__(self, end_key: bytes | None = None) -> None:
        self.end_key = end_key
        self.size = 0
        self._count = 0
        self._chunks: list[Chunk] = []
        self._rows = Page()
        """Of what lies in no block, what was added since the last chunk."""

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Entry) -> None:
        """Append one entry."""
        self._rows.add(entry)
        self._count += 1
        self.size += len(entry.key) + len(entry.value or b"") + _ENTRY_BYTES

    def take(self, chunk: Chunk) -> None:
        """Append those of a block."""
        self._end_rows()
        self._chunks.append(chunk)
        self._count += chunk.rows
        self.size += chunk.size

    def extend(self, following: "Portion") -> None:
        """Append what was read next."""
        self._end_rows()
        self._chunks += following.chunks()
        self._count += len(following)
        self.size += following.size

    def chunks(self) -> list[Chunk]:
        """All entries."""
        self._end_rows()
        return self._chunks

    def to_wire(self) -> dict[str, Any]:
        """The portion as it travels."""
        body: dict[str, Any] = {"chunks": joined(self.chunks())}
        if self.end_key is not None:
            body["end_key"] = self.end_key
        return body

    def _end_rows(self) -> None:
        rows = self._rows
        if rows.seqs:
            self._chunks.append(
                Chunk.of(
                    rows.keys, rows.seqs, rows.timestamps, rows.values, rows.headers, rows.snapshots
                )
            )
            self._rows = Page()
