"""Pages: what a read returns, as columns, and where the next read goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..client.types import Entry, Headers


@dataclass(slots=True)
class Page:
    """Entries as columns of equal length. `next` is the position after the last one; `more`
    says whether the read stopped because the page was full."""

    keys: list[bytes] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    """By position in the page: most records have none."""
    snapshots: list[int] = field(default_factory=list)
    """Positions of records marked snapshot=True."""
    next: int = 1
    more: bool = False
    end_key: bytes | None = None
    """Of a read in the order of seq: it has the keys below alone; the others are read by
    themselves, from where this read began. None: it has all that were asked for."""
    size: int = 0

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, entry: Entry) -> None:
        """Append one entry."""
        position = len(self.seqs)
        self.keys.append(entry.key)
        self.seqs.append(entry.seq)
        self.timestamps.append(entry.timestamp_ms)
        self.values.append(entry.value)
        if entry.headers:
            self.headers[position] = entry.headers
        if entry.snapshot:
            self.snapshots.append(position)
        self.size += len(entry.key) + len(entry.value or b"") + 32

    def extend(self, following: "Page") -> None:
        """Append what was read next."""
        begin = len(self.seqs)
        self.keys += following.keys
        self.seqs += following.seqs
        self.timestamps += following.timestamps
        self.values += following.values
        self.headers.update((begin + at, found) for at, found in following.headers.items())
        self.snapshots += [begin + at for at in following.snapshots]
        self.size += following.size
        self.next, self.more = following.next, following.more

    def entries(self) -> list[Entry]:
        """The page as entries."""
        snapshots = frozenset(self.snapshots)
        return [
            Entry(key, seq, timestamp, self.headers.get(i), value, i in snapshots)
            for i, (key, seq, timestamp, value) in enumerate(
                zip(self.keys, self.seqs, self.timestamps, self.values, strict=True)
            )
        ]

    def to_wire(self) -> dict[str, Any]:
        """The page as it travels; one key is sent once."""
        keys: bytes | Sequence[bytes] = self.keys
        if self.keys and self.keys[0] == self.keys[-1] and len(set(self.keys)) == 1:
            keys = self.keys[0]
        body = {
            "keys": keys,
            "seqs": self.seqs,
            "timestamps": self.timestamps,
            "values": self.values,
            "headers": self.headers or None,
            "snapshots": self.snapshots or None,
            "next": self.next,
            "more": self.more,
        }
        if self.end_key is not None:
            body["end_key"] = self.end_key
        return body
