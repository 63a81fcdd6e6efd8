"""Reading everything in bands, as a caller has to: page by page, part by part."""

from collections.abc import Iterator

import msgpack

from lognode.client.pages import entries_of
from lognode.client.protocol import chunks
from lognode.client.protocol.types import Entry
from lognode.statemachine.band_reads import Position
from lognode.statemachine.range_state import RangeState

Todo = tuple[bytes, bytes | None, Position]


def walk(
    state: RangeState, start: bytes, end: bytes | None, *, limit: int, bytes_max: int = 1 << 20,
    as_of: str | None = None,
) -> list[Entry]:  # fmt: skip
    """All entries with keys in [start, end), by key and seq."""
    todo: list[Todo] = [(start, end, Position())]
    found: list[Entry] = []
    while todo:
        found += page_of(state, todo, limit=limit, bytes_max=bytes_max, as_of=as_of)
    return in_order(found)


def page_of(
    state: RangeState, todo: list[Todo], *, limit: int, bytes_max: int, as_of: str | None
) -> list[Entry]:
    """The next page of what is still to be read, which it changes."""
    start, end, at = todo.pop()
    page, following = state.read_bands(
        start, end, at, limit=limit, bytes_max=bytes_max, as_of=as_of
    )
    entries = entries_of(
        chunks.unpacked(msgpack.unpackb(msgpack.packb(page.to_wire()), strict_map_key=False))
    )
    assert len(entries) == len(page) <= limit
    if page.end_key is not None:
        assert all(entry.key < page.end_key for entry in entries)
        todo.append((page.end_key, end, at))
        end = page.end_key
    if following is not None:
        todo.append((start, end, following))
    return entries


def in_order(found: list[Entry]) -> list[Entry]:
    """Sorted by key and seq, once it is sure that each key came in the order of seq."""
    last: dict[bytes, int] = {}
    for entry in found:
        assert last.get(entry.key, 0) < entry.seq, "an entry came twice, or too late"
        last[entry.key] = entry.seq
    return sorted(found, key=_place)


def keys_and_seqs(entries: list[Entry]) -> Iterator[tuple[bytes, int]]:
    """Of each entry."""
    return map(_place, entries)


def _place(entry: Entry) -> tuple[bytes, int]:
    return entry.key, entry.seq
