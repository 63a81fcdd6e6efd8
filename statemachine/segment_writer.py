"""Building a segment from the batches of a memtable: sort by (key, seq), pass on to the output.

This runs in the builder process. Python does nothing per record here, and makes no object of one:
each step is a call per column (`strings`, `entries`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ..client.protocol.invariants import invariant
from .batch_entries import entries_of
from .entries import Entries
from .key_order import sort_keys
from .room import headers_bytes
from .segment_dictionary import evenly
from .segment_format import SegmentInfo
from .segment_output import SegmentOutput
from .sources import Source
from .strings import Numbers

__all__ = ["SegmentInfo", "Source", "build"]

_STEP: Final = 16_384
"""The most entries that are put in order at a time."""
_STEP_BYTES: Final = 8 << 20
"""The bytes of values at which a step ends, since a step copies them."""


def build(path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
    """Write the segment of these batches to `path`, synced. Raises OSError, CorruptData."""
    invariant(len(sources) > 0, "a segment would have no entries")
    entries, bases = entries_of(first_seq, sources)
    count = len(entries)
    invariant(count > 0, "a segment would have no entries")
    order, fresh = sort_keys(entries.keys)
    values_bytes = int(entries.values.lengths.sum())
    data_bytes = values_bytes + int(entries.keys.lengths.sum())
    data_bytes += sum(map(headers_bytes, entries.headers.values()))
    with SegmentOutput(
        path, bases=bases, entries=count, data_bytes=data_bytes,
        sample=_values(entries, evenly(count, values_bytes)),
    ) as output:  # fmt: skip
        for begin, end in _steps(entries.values.lengths[order]):
            output.add(entries.sorted(order[begin:end], fresh[begin:end]))
        ranks = np.empty(count, np.uint32)
        ranks[order] = np.arange(count, dtype=np.uint32)
        output.order.add(np.arange(first_seq, first_seq + count, dtype=np.uint64), ranks)
        return output.finish(first_seq, first_seq + count)


def _values(entries: Entries, places: range) -> list[bytes | None]:
    absent = entries.absent
    return [
        None if absent is not None and absent[place] else entries.values[place] for place in places
    ]


def _steps(lengths: Numbers) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each step over entries with values of these lengths."""
    ends, begin, before = np.cumsum(lengths), 0, 0
    while begin < len(ends):
        end = int(ends.searchsorted(before + _STEP_BYTES, "right"))
        end = min(max(end, begin + 1), begin + _STEP)
        yield begin, end
        begin, before = end, int(ends[end - 1])
