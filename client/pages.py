"""Pages of entries: columns on the wire, entries for the reader."""

from collections.abc import Mapping
from itertools import repeat
from typing import Any, NamedTuple

from .protocol.errors import RemoteProtocolError
from .protocol.types import Entry


class ReadPage(NamedTuple):
    """The entries of one read. `next` is the start of the next read, or its end in reverse."""

    entries: list[Entry]
    next: int
    more: bool


def read_page(page: Mapping[Any, Any]) -> ReadPage:
    """Take a page that `protocol.common.PAGE` has checked. Raises the errors
    of `entries_of`."""
    return ReadPage(entries_of(page), page["next"], page["more"])


def entries_of(page: Mapping[Any, Any]) -> list[Entry]:
    """Return the entries in the columns of a page.

    Raises RemoteProtocolError where the columns have different lengths.
    """
    seqs, times, values, keys = page["seqs"], page["timestamps"], page["values"], page["keys"]
    count = len(seqs)
    column = repeat(keys, count) if type(keys) is bytes else keys
    lengths = {len(times), len(values), count if type(keys) is bytes else len(keys)}
    if lengths != {count}:
        raise RemoteProtocolError("a page has columns of different lengths")
    headers: Any = page.get("headers")
    marks: Any = page.get("snapshots")
    if not headers and not marks:
        return list(map(Entry, column, seqs, times, repeat(None, count), values))
    headers, snapshots = headers or {}, frozenset(marks or ())
    return [
        Entry(key, seq, timestamp, headers.get(i), value, i in snapshots)
        for i, (key, seq, timestamp, value) in enumerate(
            zip(column, seqs, times, values, strict=True)
        )
    ]
