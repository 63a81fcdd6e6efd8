"""Finding the sound parts of one WAL file, whatever stands between them.

A recycled file holds old bytes after its end; a damaged file may hold anything. Only headers of
batches with the file's own signature count, each with a round. Rounds have consecutive numbers, so
a lost batch is noticed even where nothing of it is left.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from ..client.protocol.errors import CorruptData
from . import wal_format
from .types import Disk
from .wal_format import BatchHead, Header

_PREFIX: Final = "wal-"
_SPARE: Final = "spare-"
_ROUND_AHEAD_MAX: Final = 1 << 20
_CHUNK: Final = 1 << 20


def file_name(number: int) -> str:
    """Return the name of file `number`."""
    return f"{_PREFIX}{number:010d}"


def spare_name(number: int) -> str:
    """Return the name of a spare that was, or is to become, file `number`."""
    return f"{_SPARE}{number:010d}"


def file_number(name: str) -> int | None:
    """Return the number of a WAL file; None for any other name."""
    digits = name.removeprefix(_PREFIX)
    number = int(digits) if digits.isascii() and digits.isdecimal() else 0
    return number if file_name(number) == name else None


def is_spare(name: str) -> bool:
    """Whether the file is a spare; its content does not count."""
    return name.startswith(_SPARE) and name.removeprefix(_SPARE).isdecimal()


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap: no sound batch of `round` from `offset` on, after `before` batches of the file."""

    offset: int
    round: int
    before: int


@dataclass(slots=True)
class FileScan:
    """The content of a file. Without a sound header its content cannot be told from noise."""

    number: int
    header: Header | None = None
    short: bool = False
    """The file is shorter than it was made: no crash does that."""
    data: bytes = b""
    batches: list[BatchHead] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    torn: list[BatchHead] = field(default_factory=list)
    """Sound headers with an unsound payload: they tell which rounds were synced when they were
    made."""
    end: Gap = field(default_factory=lambda: Gap(0, 0, 0))
    """The place after the last sound batch."""


def read_header(disk: Disk, number: int) -> Header | None:
    """Return the file's header; None without a sound header of this number.

    Raises OSError, and CorruptData for a file of another version: treating such a file as damaged
    would cost every replica of the node.
    """
    data = disk.read(file_name(number), 0, wal_format.HEADER_BYTES)
    header = wal_format.decode_header(data)
    version = wal_format.other_version(data) if header is None else None
    if version is not None:
        raise CorruptData(
            f"WAL file {file_name(number)} has format {version}, and this lognode reads "
            f"format {wal_format.VERSION}: start the lognode that wrote the file. Or "
            "start a new node with an empty directory and --join"
        )
    return header if header is not None and header.number == number else None


def scan(disk: Disk, number: int, followed_by: int | None) -> FileScan:
    """Read a file. `followed_by`: the first round of the next file, if known.

    Raises OSError, and CorruptData as `read_header` does. Memory: the file's size from its header.
    """
    header = read_header(disk, number)
    if header is None:
        return FileScan(number)
    size = disk.size(file_name(number))
    data = disk.read(file_name(number), 0, min(size, header.size))
    found = FileScan(number, header, size < header.size, data)
    search = _Search(data, header.signature, found.torn)
    offset, round_ = wal_format.HEADER_BYTES, header.first_round
    while True:
        head = search.batch_at(offset, round_)
        if head is None:
            # The batch with NEXT tells nothing that the next file does not tell.
            if followed_by is not None and round_ >= followed_by - 1:
                break
            head = search.next_batch(offset, round_)
            if head is None:
                break
            if head.round > round_:
                found.gaps.append(Gap(offset, round_, len(found.batches)))
        found.batches.append(head)
        offset, round_ = head.end, head.round + 1
    found.end = Gap(offset, round_, len(found.batches))
    return found


class _Search:
    """Searches for batches of one signature; batches with an unsound payload go to `torn`."""

    def __init__(self, data: bytes, signature: bytes, torn: list[BatchHead]) -> None:
        self._data = data
        self._signature = signature
        self._torn = torn
        self._content_end: int | None = None

    def batch_at(self, offset: int, round_: int) -> BatchHead | None:
        """Return the sound batch of exactly that round at the offset, or None."""
        head = wal_format.decode_head(self._data, offset, self._signature)
        if head is None or head.round != round_:
            return None
        return self._whole(head)

    def next_batch(self, offset: int, round_: int) -> BatchHead | None:
        """Return the first sound batch of that round or a later round, at the offset or after it.

        Candidates are bytes that could be the round of a batch. Users may write such bytes, but
        those pass no header's checksum.
        """
        if self._content_end is None:
            self._content_end = _content_end(self._data)
        last = round_ + _ROUND_AHEAD_MAX
        pattern = _rounds(round_, last)
        at = offset + wal_format.ROUND_AT
        while (place := pattern.search(self._data, at, self._content_end + 8)) is not None:
            at = place.start() + 1
            told = int.from_bytes(self._data[place.start() : place.start() + 8], "big")
            if not round_ <= told <= last:
                continue
            begin = place.start() - wal_format.ROUND_AT
            head = wal_format.decode_head(self._data, begin, self._signature)
            if head is not None and head not in self._torn and self._whole(head):
                return head
        return None

    def _whole(self, head: BatchHead) -> BatchHead | None:
        if wal_format.payload_sound(self._data, head, self._signature):
            return head
        self._torn.append(head)
        return None


def _rounds(first: int, last: int) -> "re.Pattern[bytes]":
    """Match eight bytes that may be a round from `first` to `last`, or not much above `last`."""
    patterns = []
    for prefix in sorted({(round_ >> 24).to_bytes(5, "big") for round_ in (first, last)}):
        zeros = prefix == bytes(5)  # no round is 0, and files are full of zeros
        patterns.append(re.escape(prefix) + (rb"(?!\0\0\0)" if zeros else b""))
    return re.compile(b"(?=" + b"|".join(patterns) + b")", re.DOTALL)


def _content_end(data: bytes) -> int:
    """Return the offset after the last byte that is not zero."""
    end = len(data)
    while end:
        start = max(0, end - _CHUNK)
        kept = len(data[start:end].rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0
