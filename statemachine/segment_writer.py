"""Building a segment from the batches of a memtable: sort by (key, seq), pass on to the output.

This runs in the builder process. It does nothing in Python per record that a C function can do per
column.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ..client.protocol.invariants import invariant
from ..client.protocol.records import Batch, decode_batch
from .room import headers_bytes
from .segment_block import Columns
from .segment_dictionary import evenly
from .segment_format import Bases, SegmentInfo
from .segment_output import SegmentOutput, hash_file

__all__ = ["SegmentInfo", "Source", "build", "hash_file"]

_STEP: Final = 16_384
"""The number of entries that are put in order at a time."""


class Source(NamedTuple):
    """A batch to build: its bytes, the positions that were new or None, its timestamp."""

    data: bytes
    selected: list[int] | None
    timestamp_ms: int


def build(path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
    """Write the segment of these batches to `path`, synced. Raises OSError."""
    rows = Columns([], array("I"), array("I"), [], {}, set())
    lengths = []
    for source in sources:
        # One batch at a time: all of them decoded take as much memory as their records.
        lengths.append(_add(rows, decode_batch(source.data), source.selected))
    count = len(rows)
    invariant(count > 0, "a segment would have no entries")
    stamps = [source.timestamp_ms for source in sources]
    bases = Bases.of(first_seq, first_seq + count, min(stamps), max(stamps))
    rows.timestamps = array(bases.timestamp_code)
    for stamp, length in zip(stamps, lengths, strict=True):
        rows.timestamps += array(bases.timestamp_code, [stamp - bases.timestamp_ms]) * length
    order = sorted(range(count), key=rows.keys.__getitem__)  # stable, so it is by (key, seq)
    values_bytes = sum(map(len, filter(None, rows.values)))
    data_bytes = values_bytes + sum(map(len, rows.keys))
    data_bytes += sum(map(headers_bytes, rows.headers.values()))
    with SegmentOutput(
        path, bases=bases, entries=count, data_bytes=data_bytes,
        sample=[rows.values[at] for at in evenly(count, values_bytes)],
    ) as output:  # fmt: skip
        for begin in range(0, count, _STEP):
            places = order[begin : begin + _STEP]
            output.add(rows.take(places, array(bases.seq_code, places)))  # seqs are positions
        ranks = array("I", bytes(4 * count))
        deque(map(ranks.__setitem__, order, range(count)), maxlen=0)  # a loop in C
        output.order.add(range(first_seq, first_seq + count), ranks)
        return output.finish(first_seq, first_seq + count)


def _add(rows: Columns, batch: Batch, chosen: list[int] | None) -> int:
    """Append a batch's chosen records, or all, without seqs and timestamps. Return how many."""
    keys, values, headers = batch.keys, batch.values(), batch.headers()
    begin = len(rows)
    if chosen is not None:
        keys = [keys[i] for i in chosen]
        values = [values[i] for i in chosen]
    if headers is not None or batch.snapshots:
        for at, place in enumerate(range(batch.count) if chosen is None else chosen, begin):
            if headers is not None and headers[place]:
                rows.headers[at] = headers[place]
            if place in batch.snapshots:
                rows.snapshots.add(at)
    rows.keys += keys
    rows.values += values
    return len(keys)
