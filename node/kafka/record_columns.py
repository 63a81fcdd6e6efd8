"""Records of Kafka to columns of entries, and columns to records, without an object per record.

Compiled code (`_codec.c`) does the work for records without surprises. The other records, and all
records without a compiler, take the way of `batches` and `stored_records`, which decides what is
refused. Both ways make the same bytes of the same entries.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...client.appends import Columns
from ...client.protocol import limits
from ...client.protocol.chunks import ABSENT, Chunk, of_page, unpacked
from ...client.protocol.key_partitions import KEY_BYTES_MAX, PREFIX_BYTES
from ...client.protocol.native import load
from ...client.protocol.records import pack_strings
from ...client.protocol.types import Headers
from . import batches, stored_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

codec: Final[Any] = load("._codec", __package__)
"""The compiled functions; None without a compiler."""
_STEP: Final = 64
"""Entries with headers that are written in a step: a tenth of a millisecond."""
_SEQS, _KEY_ENDS, _KEY_LENGTHS, _VALUE_ENDS, _VALUE_LENGTHS = range(5)


def decoded(prefix: bytes, data: bytes, count: int, *, keyed: bool) -> Columns | None:
    """Return the entries of the records of a batch; None for records that are not plain.

    The largest batch takes two milliseconds. `keyed` as in `stored_records.rows`.
    """
    if codec is None:
        return None
    found = codec.decoded(data, count, prefix, keyed, KEY_BYTES_MAX, limits.value_bytes_max)
    return None if found is None else Columns.of(*found)


class Packed(NamedTuple):
    """The entries of a batch, with keys and values in packed arrays."""

    keys: bytes
    values: bytes
    headers: list[Headers | None] | None
    count: int  # type: ignore[assignment]  # in place of the method of tuples
    size: int
    """Bytes of keys, values and headers."""

    @classmethod
    def of(cls, columns: Columns) -> "Packed":
        """Pack columns."""
        keys, values = pack_strings(columns.keys), pack_strings(columns.values)
        return cls(keys, values, columns.headers, len(columns), sum(columns.sizes))


def packed(prefix: bytes, data: bytes, count: int, *, keyed: bool) -> Packed | None:
    """Return what `decoded` returns, packed. No object is made for a record, so the largest batch
    takes a quarter of a millisecond."""
    if codec is None:
        return None
    found = codec.packed(data, count, prefix, keyed, KEY_BYTES_MAX, limits.value_bytes_max)
    if found is None:
        return None
    keys, values, size = found
    return Packed(keys, values, None, count, size)


def written(page: dict[str, Any]) -> Generator[None, None, tuple[list[bytes], int]]:
    """Return the batches of a page of a span, which has entries, and the last seq, in steps.

    Raises RemoteProtocolError.
    """
    if page["chunks"] and codec is None:
        page = unpacked(page)
    if page["seqs"]:
        found = yield from batches.written(page, stored_records.record)
        return found, page["seqs"][-1]
    found = []
    last = 0
    for chunk in of_page(page):
        entries = _Entries(chunk)
        yield
        for begin, end in entries.alike():
            found.append((yield from entries.batch(begin, end)))
            yield
        last = entries.seq(chunk.rows - 1)
    return found, last


class _Entries:
    """The entries of a chunk, each with its place in the columns."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._marked = sorted(chunk.headers or ())
        """The positions of entries with headers."""
        self._times = np.frombuffer(chunk.timestamps, chunk.timestamp_code)
        self._numbers: NDArray[np.int64] = np.empty((5, chunk.rows), np.int64)
        seqs = np.frombuffer(chunk.seqs, chunk.seq_code)
        self._numbers[_SEQS] = seqs
        self._numbers[_SEQS] += chunk.first_seq
        lengths = np.frombuffer(chunk.key_lengths, np.uint16).astype(np.int64)
        ends = lengths.cumsum()
        if chunk.repeats is not None:
            repeats = np.frombuffer(chunk.repeats, np.uint32)
            lengths, ends = lengths.repeat(repeats), ends.repeat(repeats)
        self._numbers[_KEY_LENGTHS], self._numbers[_KEY_ENDS] = lengths, ends
        widths = np.frombuffer(chunk.value_lengths, np.uint32).astype(np.int64)
        absent = widths == ABSENT
        widths[absent] = 0
        self._numbers[_VALUE_ENDS] = widths.cumsum()
        widths[absent] = -1
        self._numbers[_VALUE_LENGTHS] = widths

    def alike(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of entries side by side with the same timestamp."""
        begin = 0
        for end in (np.flatnonzero(self._times[1:] != self._times[:-1]) + 1).tolist():
            yield begin, end
            begin = end
        yield begin, len(self._times)

    def seq(self, at: int) -> int:
        """Return the seq at a position."""
        return int(self._numbers[_SEQS, at])

    def batch(self, begin: int, end: int) -> Generator[None, None, bytes]:
        """Return the batch of the entries at these positions, in steps."""
        first, parts, at = self.seq(begin), list[bytes](), begin
        marked = self._marked[bisect_left(self._marked, begin) : bisect_left(self._marked, end)]
        for done, place in enumerate(marked, 1):
            if at < place:
                parts.append(self._plain(at, place, first))
            parts.append(self._with_headers(place, first))
            at = place + 1
            if not done % _STEP:
                yield
        parts.append(self._plain(at, end, first))
        timestamp_ms = self._chunk.first_ms + int(self._times[begin])
        return batches.batch(first, self.seq(end - 1), timestamp_ms, parts, end - begin)

    def _plain(self, begin: int, end: int, first: int) -> bytes:
        chunk = self._chunk
        found: bytes = codec.encoded(
            self._numbers, chunk.keys, chunk.values, begin, end, first, PREFIX_BYTES
        )
        return found

    def _with_headers(self, at: int, first: int) -> bytes:
        chunk, numbers = self._chunk, self._numbers[:, at].tolist()
        key_end, value_end = numbers[_KEY_ENDS], numbers[_VALUE_ENDS]
        key = chunk.keys[key_end - numbers[_KEY_LENGTHS] : key_end]
        length = numbers[_VALUE_LENGTHS]
        value = None if length < 0 else chunk.values[value_end - length : value_end]
        record = stored_records.record(key, (chunk.headers or {})[at], value)
        return batches.packed_record(numbers[_SEQS] - first, record)
