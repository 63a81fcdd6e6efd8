"""Pages of entries as they travel: columns on the wire, entries for the reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from .errors import RemoteProtocolError
from .types import Entry


@dataclass(frozen=True, slots=True)
class ReadPage:
    """What one read brought. `next` is where the following one starts, or ends in reverse."""

    entries: list[Entry]
    next: int
    more: bool


def read_page(page: Mapping[Any, Any]) -> ReadPage:
    """The page that a read answered. Raises RemoteProtocolError for one that is none."""
    entries = entries_of(page)
    try:
        return ReadPage(entries, int(page["next"]), bool(page["more"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _no_page(error) from None


def entries_of(page: Mapping[Any, Any]) -> list[Entry]:
    """What a page has in its columns. Raises RemoteProtocolError for one that is none."""
    try:
        seqs = page["seqs"]
        count = len(seqs)
        keys = page["keys"]
        column = repeat(keys, count) if type(keys) is bytes else keys
        headers: Any = page.get("headers")
        marks: Any = page.get("snapshots")
        if not headers and not marks:
            entries = list(
                map(Entry, column, seqs, page["timestamps"], repeat(None, count), page["values"])
            )
        else:
            headers, snapshots = headers or {}, frozenset(marks or ())
            entries = [
                Entry(key, seq, timestamp, headers.get(i), value, i in snapshots)
                for i, (key, seq, timestamp, value) in enumerate(
                    zip(column, seqs, page["timestamps"], page["values"], strict=True)
                )
            ]
        if len(entries) != count:
            raise ValueError("columns of different lengths")
    except (KeyError, TypeError, ValueError) as error:
        raise _no_page(error) from None
    return entries


def _no_page(error: Exception) -> RemoteProtocolError:
    return RemoteProtocolError(f"a page that is none: {error}")
