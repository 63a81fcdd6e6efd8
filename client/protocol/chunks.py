"""Entries as columns of bytes: the format of a block in a file, and of an export on the wire.

A node forwards the columns without an object per entry. A reader of columns builds its own from the
same bytes (Apache Arrow also has the values in one buffer, with offsets instead of lengths). A
reader of entries unpacks them. Numbers are little-endian, as in files.
"""

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress, groupby, pairwise, repeat
from typing import Any, Final, NamedTuple, Self

import msgpack

from . import limits
from .errors import RemoteProtocolError
from .frame import Piecewise
from .native import native
from .patterns import Patterns
from .types import Headers

ABSENT: Final = 0xFFFFFFFF
"""The length of a null value."""
_CUT_TOGETHER: Final = 64
"""Texts of equal length that are cut together."""
_LOW_BYTES: Final = bytes(range(128))
"""The last bytes of numbers below 2^63."""
_CODES: Final = {4: "I", 8: "Q"}
"""The type codes of columns that Arrow supports, by bytes."""
Body = dict[str, Any]


class Chunk(NamedTuple):
    """Entries, at least one, in reading order."""

    rows: int
    first_seq: int
    first_ms: int
    """The base of the seqs and timestamps: `first_seq` and `first_ms`."""
    key_lengths: bytes
    """u16: the length of each key."""
    repeats: bytes | None
    """u32: the number of consecutive entries of each key; None: one each."""
    keys: bytes
    seqs: bytes
    """u32 or u64 per entry."""
    timestamps: bytes
    """u32 or u64 per entry."""
    value_lengths: bytes
    """u32 per entry."""
    values: bytes
    headers: Mapping[int, Headers] | None
    """Headers by position: most entries have none."""
    snapshots: Sequence[int] | None
    """Positions of logical snapshots."""

    @classmethod
    def of(
        cls,
        keys: Sequence[bytes],
        seqs: Sequence[int],
        timestamps: Sequence[int],
        values: Sequence[bytes | None],
        headers: Mapping[int, Headers],
        snapshots: Sequence[int],
    ) -> Self:
        """Return a chunk of columns of Python objects, which have equal length."""
        lengths = array("I", [ABSENT if value is None else len(value) for value in values])
        return cls(
            len(keys), 0, 0, array("H", map(len, keys)).tobytes(), None, b"".join(keys),
            array("Q", seqs).tobytes(), array("Q", timestamps).tobytes(),
            lengths.tobytes(), b"".join(filter(None, values)), headers or None, snapshots or None,
        )  # fmt: skip

    @classmethod
    def from_wire(cls, row: Any) -> Self:
        """Return the chunk of a row that `protocol.reads.CHUNK` has checked.

        Raises RemoteProtocolError when the columns do not fit together.
        """
        try:
            found = cls(*row)
            found._check()
        except ValueError as error:
            raise RemoteProtocolError(f"a chunk of entries is not valid: {error}") from None
        return found

    @property
    def size(self) -> int:
        """Bytes of the columns."""
        return sum(len(column) for column in self[3:10] if column is not None)

    @property
    def seq_code(self) -> str:
        """The `array` type code of the seqs."""
        return _CODES[len(self.seqs) // self.rows]

    @property
    def timestamp_code(self) -> str:
        """The `array` type code of the timestamps."""
        return _CODES[len(self.timestamps) // self.rows]

    def unpacked_keys(self) -> list[bytes]:
        """Return the key of each entry."""
        keys = _cut(self.keys, "H", self.key_lengths)
        if self.repeats is None:
            return keys
        return list(chain.from_iterable(map(repeat, keys, numbers("I", self.repeats))))

    def without_heads(self, size: int) -> "Chunk":
        """Return the chunk with `size` bytes less in front of each key."""
        keys = [key[size:] for key in _cut(self.keys, "H", self.key_lengths)]
        lengths = array("H", map(len, keys)).tobytes()
        return self._replace(key_lengths=lengths, keys=b"".join(keys))

    def unpacked_values(self) -> list[bytes | None]:
        """Return the value of each entry."""
        lengths = numbers("I", self.value_lengths)
        absent = _places(lengths, ABSENT)
        if not absent:
            return [*_cut(self.values, "I", self.value_lengths)]
        for at in absent:
            lengths[at] = 0
        values: list[bytes | None] = [*_cut_unevenly(self.values, lengths)]
        for at in absent:
            values[at] = None
        return values

    def unpacked_seqs(self) -> list[int]:
        """Return the seq of each entry."""
        return _raised(numbers(self.seq_code, self.seqs), self.first_seq)

    def unpacked_timestamps(self) -> list[int]:
        """Return the timestamp of each entry, in milliseconds."""
        return _raised(numbers(self.timestamp_code, self.timestamps), self.first_ms)

    def matching(self, patterns: Patterns) -> "Chunk | None":
        """Return the entries whose keys match, or None if no key matches. Each key is matched once,
        and no Python function runs for each entry."""
        keys = _cut(self.keys, "H", self.key_lengths)
        flags = patterns.flags(keys)
        if all(flags):
            return self
        if not any(flags):
            return None
        rows, repeats = flags, None
        if self.repeats is not None:
            counts = numbers("I", self.repeats)
            rows = list(chain.from_iterable(map(repeat, flags, counts)))
            repeats = array("I", compress(counts, flags)).tobytes()

        def kept(code: str, column: bytes, among: Sequence[bool] = rows) -> bytes:
            return array(code, compress(numbers(code, column), among)).tobytes()

        places = list(accumulate(rows, initial=0))
        headers = {places[at]: found for at, found in (self.headers or {}).items() if rows[at]}
        return Chunk(
            places[-1], self.first_seq, self.first_ms, kept("H", self.key_lengths, flags), repeats,
            b"".join(compress(keys, flags)), kept(self.seq_code, self.seqs),
            kept(self.timestamp_code, self.timestamps), kept("I", self.value_lengths),
            b"".join(filter(None, compress(self.unpacked_values(), rows))), headers or None,
            [places[at] for at in self.snapshots or () if rows[at]] or None,
        )  # fmt: skip

    def _check(self) -> None:
        count = self.rows
        due = len(self.key_lengths) // 2
        if self.repeats is not None:
            due = totals("I", self.repeats)[0] if len(self.repeats) == 4 * due else 0
        sizes, absent = totals("I", self.value_lengths)
        fits = (
            due == count
            and len(self.value_lengths) == 4 * count
            and len(self.seqs) in (4 * count, 8 * count)
            and len(self.timestamps) in (4 * count, 8 * count)
            and totals("H", self.key_lengths)[0] == len(self.keys)
            and sizes - ABSENT * absent == len(self.values)
        )
        places = {*(self.headers or ()), *(self.snapshots or ())}
        if not fits or (places and max(places) >= count):
            raise ValueError("the columns of the chunk have different lengths")
        for name, base, column in (
            ("seq", self.first_seq, self.seqs), ("timestamp", self.first_ms, self.timestamps)
        ):  # fmt: skip
            if _is_beyond(base, column, len(column) // count):
                raise ValueError(f"a {name} of the chunk is above {limits.number_max}")


def _is_beyond(base: int, column: bytes, width: int) -> bool:
    """Return whether a number of the column, of `width` bytes each, is too large with its base."""
    if width == 4 and base <= limits.number_max - ABSENT:
        return False
    if not base:
        return bool(column[7::8].translate(None, _LOW_BYTES))
    return base + max(numbers(_CODES[width], column)) > limits.number_max


def numbers(code: str, column: bytes) -> "array[int]":
    """Return the numbers of a column. Raises ValueError when the column ends within a number."""
    found = array(code)
    found.frombytes(column)
    return found


def totals(code: str, column: bytes | memoryview) -> tuple[int, int]:
    """Return the sum of the numbers of a column, and how many of them have all bits set.

    `code`: "H" or "I". Raises ValueError when the column ends within a number.
    """
    width = array(code).itemsize
    found: tuple[int, int] | None = None if native is None else native.totals(column, width)
    if found is None:
        every = numbers(code, bytes(column))
        found = sum(every), every.count((1 << 8 * width) - 1)
    return found


class Chunks(list[Chunk], Piecewise):
    """The chunks of a page. In a frame they are joined to as few chunks as possible, with the same
    entries."""

    def pieces(self) -> list[bytes]:
        """Return the joined chunks in msgpack. The columns are pieces as they are: joining them
        first would copy each byte once more."""
        groups = [list(alike) for _, alike in groupby(self, _form)]
        packer = msgpack.Packer()
        found = [packer.pack_array_header(len(groups))]
        for group in groups:
            columns = _columns(group)
            found.append(packer.pack_array_header(len(columns)))
            for column in columns:
                if type(column) is tuple:
                    found.append(_bytes_header(sum(map(len, column))))
                    found += column
                else:
                    found.append(packer.pack(column))
        return found


def of_page(page: Body) -> list[Chunk]:
    """Return the chunks of a page of an export. Raises RemoteProtocolError."""
    return list(map(Chunk.from_wire, page["chunks"]))


def matching(chunks: Iterable[Chunk], patterns: Patterns) -> list[Chunk]:
    """Return the entries of the chunks whose keys match, as chunks."""
    found = (chunk.matching(patterns) for chunk in chunks)
    return [chunk for chunk in found if chunk is not None]


def unpacked(page: Body) -> Body:
    """Return a page of an export with columns of Python objects, like the pages of all other reads.

    Raises RemoteProtocolError.
    """
    keys: list[bytes] = []
    seqs: list[int] = []
    timestamps: list[int] = []
    values: list[bytes | None] = []
    headers: dict[int, Headers] = {}
    snapshots: list[int] = []
    for chunk in of_page(page):
        begin = len(keys)
        keys += chunk.unpacked_keys()
        seqs += chunk.unpacked_seqs()
        timestamps += chunk.unpacked_timestamps()
        values += chunk.unpacked_values()
        headers.update((begin + at, found) for at, found in (chunk.headers or {}).items())
        snapshots += map(begin.__add__, chunk.snapshots or ())
    rest = {name: value for name, value in page.items() if name != "chunks"}
    return {
        **rest, "keys": keys, "seqs": seqs, "timestamps": timestamps, "values": values,
        "headers": headers or None, "snapshots": snapshots or None,
    }  # fmt: skip


def _form(chunk: Chunk) -> tuple[int, int, str, str]:
    """Return the properties that two chunks must share to be joined."""
    return chunk.first_seq, chunk.first_ms, chunk.seq_code, chunk.timestamp_code


def _columns(chunks: Sequence[Chunk]) -> list[Any]:
    """Return the fields of the chunk that has the entries of all; bytes in pieces, as a tuple."""
    first = chunks[0]
    repeats = None
    if any(chunk.repeats is not None for chunk in chunks):
        repeats = tuple(
            array("I", [1]).tobytes() * chunk.rows if chunk.repeats is None else chunk.repeats
            for chunk in chunks
        )
    headers: dict[int, Headers] = {}
    snapshots: list[int] = []
    count = 0
    for chunk in chunks:
        headers.update((count + at, found) for at, found in (chunk.headers or {}).items())
        snapshots += map(count.__add__, chunk.snapshots or ())
        count += chunk.rows

    def column(name: str) -> tuple[bytes, ...]:
        return tuple(getattr(chunk, name) for chunk in chunks)

    return [
        count, first.first_seq, first.first_ms, column("key_lengths"), repeats, column("keys"),
        column("seqs"), column("timestamps"), column("value_lengths"), column("values"),
        headers or None, snapshots or None,
    ]  # fmt: skip


def _bytes_header(size: int) -> bytes:
    """Return what msgpack writes before so many bytes."""
    if size < 1 << 8:
        return bytes((0xC4, size))
    if size < 1 << 16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def _cut(data: bytes, code: str, lengths: bytes) -> list[bytes]:
    """Return the texts of a column. C code cuts texts of equal length, in half the time."""
    width = array(code).itemsize
    count = len(lengths) // width
    if count < _CUT_TOGETHER or lengths != lengths[:width] * count or not data:
        return _cut_unevenly(data, numbers(code, lengths))
    size = len(data) // count
    together = struct.Struct(f"{size}s" * _CUT_TOGETHER)
    evenly = len(data) // together.size * together.size
    found = list(chain.from_iterable(together.iter_unpack(memoryview(data)[:evenly])))
    return found + [data[at : at + size] for at in range(evenly, len(data), size)]


def _cut_unevenly(data: bytes, lengths: Iterable[int]) -> list[bytes]:
    return [data[begin:end] for begin, end in pairwise(accumulate(lengths, initial=0))]


def _raised(column: "array[int]", base: int) -> list[int]:
    return list(map(base.__add__, column)) if base else column.tolist()


def _places(among: "array[int]", wanted: int) -> list[int]:
    if wanted not in among:
        return []
    return [at for at, number in enumerate(among) if number == wanted]
