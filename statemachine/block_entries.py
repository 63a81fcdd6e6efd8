"""A decoded block as columns over numpy, for a merge."""

import numpy as np

from ..client.protocol.chunks import ABSENT
from .entries import Column, Entries
from .segment_block import Block
from .segment_format import Bases
from .strings import SLACK, Numbers, Strings


def entries_of_block(block: Block, begin: int, end: int, bases: Bases) -> Entries:
    """Return the entries at these positions, for a segment with these bases."""
    if begin == end:
        nothing = Strings.of(())
        empty: Column = np.empty(0, np.dtype(bases.seq_code))
        stamps: Column = np.empty(0, np.dtype(bases.timestamp_code))
        return Entries(nothing, empty, stamps, nothing, None, {}, frozenset())
    chunk = block.chunk(begin, end)
    keys = _strings(chunk.keys, np.frombuffer(chunk.key_lengths, np.uint16).astype(np.int64))
    if chunk.repeats is not None:
        repeats = np.frombuffer(chunk.repeats, np.uint32)
        keys = Strings(keys.data, np.repeat(keys.starts, repeats), np.repeat(keys.lengths, repeats))
    lengths = np.frombuffer(chunk.value_lengths, np.uint32)
    absent = lengths == ABSENT
    values = _strings(chunk.values, np.where(absent, 0, lengths).astype(np.int64))
    return Entries(
        keys,
        _rebased(chunk.seqs, len(lengths), chunk.first_seq - bases.seq, bases.seq_code),
        _rebased(
            chunk.timestamps, len(lengths), chunk.first_ms - bases.timestamp_ms,
            bases.timestamp_code,
        ),
        values, absent if absent.any() else None, chunk.headers or {},
        frozenset(chunk.snapshots or ()),
    )  # fmt: skip


def _strings(data: bytes, lengths: Numbers) -> Strings:
    slack = np.frombuffer(data + bytes(SLACK), np.uint8)
    return Strings(slack, np.cumsum(lengths) - lengths, lengths)


def _rebased(column: bytes, count: int, more: int, code: str) -> Column:
    """Return the numbers of a column of `count` numbers, each with `more` added."""
    numbers: Column = np.frombuffer(column, np.uint32 if len(column) == 4 * count else np.uint64)
    return (numbers.astype(np.int64) + more).astype(code)
