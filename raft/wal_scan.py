"""Finding what is sound in one WAL file, whatever stands between.

A file holds old bytes behind its end once it is recycled, and anything at all once it is damaged.
What counts is what the file's own signature vouches for: headers of batches, each with a round.
Rounds follow each other without a gap, so that a lost batch is missed even where nothing is left
of it.
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
    """The name of file `number`."""
    return f"{_PREFIX}{number:010d}"


def spare_name(number: int) -> str:
    """The name under which a file waits to be used: it was, or is to become, file `number`."""
    return f"{_SPARE}{number:010d}"


def file_number(name: str) -> int | None:
    """The number of a file of the WAL; None for any other name."""
    digits = name.removeprefix(_PREFIX)
    number = int(digits) if digits.isascii() and digits.isdecimal() else 0
    return number if file_name(number) == name else None


def is_spare(name: str) -> bool:
    """Whether the file waits to be used; what it holds is nothing."""
    return name.startswith(_SPARE) and name.removeprefix(_SPARE).isdecimal()


@dataclass(frozen=True, slots=True)
class Gap:
    """From `offset` on there is no sound batch of `round`; `before` of the file's are before."""

    offset: int
    round: int
    before: int


@dataclass(slots=True)
class FileScan:
    """What a file holds. Without a sound header nothing in it can be told from noise."""

    number: int
    header: Header | None = None
    short: bool = False
    """It is shorter than it was made: no crash does that."""
    data: bytes = b""
    batches: list[BatchHead] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    torn: list[BatchHead] = field(default_factory=list)
    """Sound headers whose payload is not: they tell what was synced when they were made."""
    end: Gap = field(default_factory=lambda: Gap(0, 0, 0))
    """Behind the last sound batch."""


def read_header(disk: Disk, number: int) -> Header | None:
    """The file's header; None where there is no sound one of this number.

    Raises OSError, and CorruptData for a file of another version: to take it for a damaged one
    would cost every replica of the node.
    """
    data = disk.read(file_name(number), 0, wal_format.HEADER_BYTES)
    header = wal_format.decode_header(data)
    version = wal_format.other_version(data) if header is None else None
    if version is not None:
        raise CorruptData(
            f"WAL file {file_name(number)} is of format {version}, and this lognode reads format "
            f"{wal_format.VERSION}: start the lognode that wrote it, or let this one --join with "
            "an empty directory as another node"
        )
    return header if header is not None and header.number == number else None


def scan(disk: Disk, number: int, followed_by: int | None) -> FileScan:
    """Read a file. `followed_by`: the first round of the file after it, where that is known.

    Raises OSError, CorruptData as `read_header`. Memory: the file's size as its header tells it.
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
            # The batch with NEXT tells nothing that the file after it does not.
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
    """Looks for batches of one signature; those whose payload is not sound go to `torn`."""

    def __init__(self, data: bytes, signature: bytes, torn: list[BatchHead]) -> None:
        self._data = data
        self._signature = signature
        self._torn = torn
        self._content_end: int | None = None

    def batch_at(self, offset: int, round_: int) -> BatchHead | None:
        """The sound batch of that very round there."""
        head = wal_format.decode_head(self._data, offset, self._signature)
        if head is None or head.round != round_:
            return None
        return self._whole(head)

    def next_batch(self, offset: int, round_: int) -> BatchHead | None:
        """The first sound batch of that round or a later one, there or behind.

        Candidates are bytes that could be the round of one. What users write can look like that,
        but passes no header's checksum.
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
    """Where eight bytes may stand that are a round from `first` to `last`, not much above it."""
    patterns = []
    for prefix in sorted({(round_ >> 24).to_bytes(5, "big") for round_ in (first, last)}):
        zeros = prefix == bytes(5)  # there is no round 0, and files are full of zeros
        patterns.append(re.escape(prefix) + (rb"(?!\0\0\0)" if zeros else b""))
    return re.compile(b"(?=" + b"|".join(patterns) + b")", re.DOTALL)


def _content_end(data: bytes) -> int:
    """The offset behind the last byte that is not zero."""
    end = len(data)
    while end:
        start = max(0, end - _CHUNK)
        kept = len(data[start:end].rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0
