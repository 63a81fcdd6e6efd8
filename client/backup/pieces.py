"""Entries as objects: where to cut, how they are packed, and the sum of entries.

The seqs of the entries decide where to cut, and an object ends after 4 MiB. So a later backup cuts
entries that did not change mostly at the same places, and makes the same objects.
"""

from hashlib import blake2b
from typing import Any, Final
from zlib import crc32

import msgpack

from ..protocol.types import Entry
from .sealing import damaged

_CUT_EVERY: Final = 4_096
"""An entry in so many is the last of its object."""
_BYTES_MAX: Final = 4 << 20
_ENTRY_BYTES: Final = 32
_SUM_BYTES: Final = 32
_MODULUS: Final = 1 << 8 * _SUM_BYTES


class Cutter:
    """Collects entries, and says where an object ends."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._size = 0

    def add(self, entry: Entry) -> bool:
        """Add an entry; True: the object ends here."""
        self.entries.append(entry)
        self._size += len(entry.key) + len(entry.value or b"") + _ENTRY_BYTES
        for name, value in entry.headers.items() if entry.headers else ():
            self._size += len(name) + len(value) + _ENTRY_BYTES
        return self._size >= _BYTES_MAX or crc32(b"%d" % entry.seq) % _CUT_EVERY == 0

    def taken(self) -> list[Entry]:
        """Return the entries of the object, and begin the next."""
        found, self.entries, self._size = self.entries, [], 0
        return found


def pack(entries: list[Entry]) -> bytes:
    """Return the content of an object of these entries."""
    packed: bytes = msgpack.packb(
        [
            [entry.key for entry in entries],
            [entry.seq for entry in entries],
            [entry.timestamp_ms for entry in entries],
            [entry.value for entry in entries],
            {at: dict(entry.headers) for at, entry in enumerate(entries) if entry.headers},
            [at for at, entry in enumerate(entries) if entry.snapshot],
        ]
    )
    return packed


def unpack(name: str, content: bytes) -> list[Entry]:
    """Return the entries of an object. Raises CorruptData, which names the object."""
    try:
        found: Any = msgpack.unpackb(content, strict_map_key=False)
        keys, seqs, timestamps, values, headers, snapshots = found
        marked = set(snapshots)
        return [
            Entry(key, seq, ms, headers.get(at), value, at in marked)
            for at, (key, seq, ms, value) in enumerate(
                zip(keys, seqs, timestamps, values, strict=True)
            )
        ]
    except (TypeError, ValueError, AttributeError) as error:
        raise damaged(f"object {name}", str(error)) from None


def sum_of(entries: list[Entry], before: int = 0) -> int:
    """Return the sum of the entries' hashes, and of `before`: the same in any order of entries."""
    pack_one = msgpack.Packer(autoreset=True, buf_size=1_024).pack
    total = before
    for key, seq, ms, headers, value, snapshot in entries:
        row = pack_one(
            (key, seq, ms, sorted(headers.items()) if headers else None, value, snapshot)
        )
        total += int.from_bytes(blake2b(row, digest_size=_SUM_BYTES).digest())
    return total % _MODULUS


def added(one: int, other: int) -> int:
    """Return the sum of all entries of two sums."""
    return (one + other) % _MODULUS
