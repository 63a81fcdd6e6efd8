"""Entries out of columns, a page at a time."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from .types import Entry, Headers


def entries_in(
    keys: Iterable[bytes],
    seqs: Sequence[int],
    timestamps: Sequence[int],
    values: Sequence[bytes | None],
    headers: Mapping[int, Headers],
    snapshots: Iterable[int],
) -> list[Entry]:
    """Return the entries of columns of equal length; `headers` and `snapshots` are by position.

    No Python runs for each entry.
    """
    headers_column: Iterable[Headers | None] = repeat(None)
    if headers:
        headers_column = map(headers.get, range(len(seqs)))
    marks: Iterable[bool] = repeat(False)
    if snapshots:
        marks = map(frozenset(snapshots).__contains__, range(len(seqs)))
    columns = keys, seqs, timestamps, headers_column, values, marks  # some have no end
    rows = zip(*columns, strict=False)
    return list(map(tuple.__new__, repeat(Entry), rows))
