"""Pages of entries: columns on the wire, entries for the reader."""

from collections.abc import Mapping
from itertools import repeat
from typing import Any, NamedTuple

from .protocol.entry_rows import entries_in
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
    check_lengths(page)
    seqs, keys = page["seqs"], page["keys"]
    return entries_in(
        repeat(keys, len(seqs)) if type(keys) is bytes else keys,
        seqs, page["timestamps"], page["values"],
        page.get("headers") or {}, page.get("snapshots") or (),
    )  # fmt: skip


def check_lengths(page: Mapping[Any, Any]) -> None:
    """Raise RemoteProtocolError where the columns of a page have different lengths."""
    columns = [page["seqs"], page["timestamps"], page["values"]]
    if type(page["keys"]) is not bytes:  # a single key is that of all entries
        columns.append(page["keys"])
    if len(set(map(len, columns))) > 1:
        raise RemoteProtocolError("a page has columns of different lengths")
