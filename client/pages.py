"""Pages of entries as they travel: columns on the wire, entries for the reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from .answers import headers_by_position, integer
from .columns import all_are
from .errors import RemoteProtocolError
from .types import Entry


@dataclass(frozen=True, slots=True)
class ReadPage:
    """What one read brought. `next` is where the following one starts, or ends in reverse."""

    entries: list[Entry]
    next: int
    more: bool


def read_page(page: Any) -> ReadPage:
    """The page that a read answered. Raises RemoteProtocolError for anything else."""
    if type(page) is not dict:
        raise RemoteProtocolError("a page that is not a map")
    return ReadPage(entries_of(page), integer(page, "next"), bool(page.get("more")))


def entries_of(page: Mapping[Any, Any]) -> list[Entry]:
    """The entries in the columns of a page. Raises RemoteProtocolError for anything else."""
    seqs: Any = page.get("seqs")
    times: Any = page.get("timestamps")
    values: Any = page.get("values")
    keys: Any = page.get("keys")
    marks: Any = page.get("snapshots") or []
    try:
        headers = headers_by_position(page.get("headers"))
    except ValueError as error:
        raise RemoteProtocolError(f"a page with {error}") from None
    columns = (seqs, times, values, marks, keys if type(keys) is not bytes else [keys])
    if set(map(type, columns)) != {list}:
        raise RemoteProtocolError("a page with a column that is not an array")
    count = len(seqs)
    lengths = {len(times), len(values), count if type(keys) is bytes else len(keys)}
    if lengths - {count}:
        raise RemoteProtocolError("a page with columns of different lengths")
    if not (
        all_are(int, seqs) and all_are(int, times) and all_are(bytes, values, none=True)
        and all_are(int, marks) and all_are(bytes, columns[-1])
    ):  # fmt: skip
        raise RemoteProtocolError("a page with elements of other types than its columns have")
    column = repeat(keys, count) if type(keys) is bytes else keys
    if not headers and not marks:
        return list(map(Entry, column, seqs, times, repeat(None, count), values))
    snapshots = frozenset(marks)
    return [
        Entry(key, seq, timestamp, headers.get(i), value, i in snapshots)
        for i, (key, seq, timestamp, value) in enumerate(
            zip(column, seqs, times, values, strict=True)
        )
    ]
