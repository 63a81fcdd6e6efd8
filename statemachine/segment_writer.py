"""Building a segment from the batches of a memtable: sort by (key, seq), pass on to the output.

This runs in the builder process. Python does nothing per record here, and makes no object of one:
each step is a call per column (`strings`, `entries`), or per block (`block_layout`).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..client.protocol import limits
from ..client.protocol.invariants import invariant
from .batch_entries import entries_of
from .entries import Entries
from .key_order import sort_keys
from .room import headers_bytes
from .segment_dictionary import evenly
from .segment_format import SegmentInfo
from .segment_output import SegmentOutput
from .sources import Source

__all__ = ["SegmentInfo", "Source", "build"]


def build(
    path: Path, first_seq: int, sources: Sequence[Source], *, value_gain: int = limits.value_gain
) -> SegmentInfo:
    """Write the segment of these batches to `path`, synced. `value_gain` is that of the range's
    rules. Raises OSError, CorruptData."""
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
        sample=_values(entries, evenly(count, values_bytes)), value_gain=value_gain,
    ) as output:  # fmt: skip
        output.add(entries, order, fresh)
        ranks = np.empty(count, np.uint32)
        ranks[order] = np.arange(count, dtype=np.uint32)
        seqs = entries.seqs.astype(np.uint64) + np.uint64(first_seq)
        output.order.add(seqs, ranks)
        return output.finish(first_seq, int(seqs[-1]) + 1)


def _values(entries: Entries, places: range) -> list[bytes | None]:
    absent = entries.absent
    return [
        None if absent is not None and absent[place] else entries.values[place] for place in places
    ]
