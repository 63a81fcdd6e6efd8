"""The batches of a memtable as columns, in the order in which they were applied."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..client.protocol.errors import CorruptData
from ..client.protocol.records import PackedBatch, open_batch
from .entries import Column, Entries
from .packed_strings import located, unpacked
from .segment_format import Bases
from .sources import Source
from .strings import Numbers, Strings


def entries_of(first_seq: int, sources: Sequence[Source]) -> tuple[Entries, Bases]:
    """Return the entries of these batches, from seq `first_seq` on, and their bases.

    Raises CorruptData.
    """
    batches = list(map(_Opened, sources))
    counts = [batch.records for batch in batches]
    try:
        keys = unpacked([batch.keys for batch in batches], counts)
        values, absent = located([batch.values for batch in batches], counts)
    except ValueError as error:
        raise CorruptData(f"the columns of a record batch are damaged: {error}") from None
    lengths = np.array([batch.chosen for batch in batches])
    headers: dict[int, Any] = {}
    snapshots: set[int] = set()
    for first, batch in zip((np.cumsum(lengths) - lengths).tolist(), batches, strict=True):
        batch.add_marks(first, headers, snapshots)
    if any(source.selected is not None for source in sources):
        places = _places(sources, counts)
        keys = Strings(keys.data, keys.starts[places], keys.lengths[places])
        values = values.chosen(places)
        absent = None if absent is None else absent[places]
    stamps = np.array([source.timestamp_ms for source in sources])
    given = b"".join(source.seqs for source in sources if source.seqs is not None)
    own = np.frombuffer(given, np.int64) if given else np.arange(first_seq, first_seq + len(keys))
    bases = Bases.of(first_seq, int(own[-1]) + 1, int(stamps.min()), int(stamps.max()))
    seqs: Column = (own - first_seq).astype(np.dtype(bases.seq_code))
    timestamps = np.repeat(stamps - bases.timestamp_ms, lengths)
    return Entries(
        keys, seqs, timestamps.astype(bases.timestamp_code), values, absent, headers, snapshots
    ), bases


class _Opened:
    """A batch with its packed columns."""

    def __init__(self, source: Source) -> None:
        batch = open_batch(source.data)
        self.records = batch.records
        self.keys = batch.key_column
        self.values = batch.value_column()
        self.chosen = self.records if source.selected is None else len(source.selected)
        """The number of new records."""
        self._selected = source.selected
        self._marked: PackedBatch | None = batch if batch.has_marks else None

    def add_marks(self, first: int, headers: dict[int, Any], snapshots: set[int]) -> None:
        """Note the headers and snapshot marks of the new records, which begin at `first`."""
        if self._marked is None:
            return
        column, marked = self._marked.headers(), frozenset(self._marked.snapshots)
        chosen = range(self.records) if self._selected is None else self._selected
        for at, place in enumerate(chosen, first):
            if column is not None and column[place]:
                headers[at] = column[place]
            if place in marked:
                snapshots.add(at)


def _places(sources: Sequence[Source], counts: Sequence[int]) -> Numbers:
    """Return the positions of the new records among all."""
    begins = np.cumsum([0, *counts[:-1]]).tolist()
    found = [
        range(begin, begin + count)
        if source.selected is None
        else map(begin.__add__, source.selected)
        for source, begin, count in zip(sources, begins, counts, strict=True)
    ]
    return np.fromiter(chain.from_iterable(found), np.int64)
