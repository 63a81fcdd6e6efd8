"""Entries of a read as columns: for readers of many entries, who need no object for each entry."""

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any, Final

from .pages import check_lengths
from .protocol.chunks import Chunk
from .protocol.entry_rows import entries_in
from .protocol.errors import Unsupported
from .protocol.types import Entry, Headers

ArrowBatch = Any
"""A `pyarrow.RecordBatch`. Only a caller who asks for it loads pyarrow."""
_NO_HEADERS: Final[Mapping[int, Headers]] = MappingProxyType({})


class EntryColumns:
    """Some entries of a read, at least one, as columns of equal length.

    Position `i` of each column belongs to the same entry. A column is made at its first use from
    the bytes that the node has sent, and then kept. `len()` is the number of entries.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    def __len__(self) -> int:
        return self._chunk.rows

    def __repr__(self) -> str:
        return f"<EntryColumns of {len(self)} entries>"

    @cached_property
    def keys(self) -> list[bytes]:
        """The keys. Neighbours with the same key may share one object."""
        return self._chunk.unpacked_keys()

    @cached_property
    def seqs(self) -> list[int]:
        """The seqs."""
        return self._chunk.unpacked_seqs()

    @cached_property
    def timestamps_ms(self) -> list[int]:
        """The timestamps, Unix time in milliseconds."""
        return self._chunk.unpacked_timestamps()

    @cached_property
    def values(self) -> list[bytes | None]:
        """The values, None for a tombstone."""
        return self._chunk.unpacked_values()

    @property
    def headers(self) -> Mapping[int, Headers]:
        """The headers of the entries that have some, by position."""
        return self._chunk.headers or _NO_HEADERS

    @property
    def snapshots(self) -> Sequence[int]:
        """The positions of the logical snapshots."""
        return self._chunk.snapshots or ()

    def entries(self) -> list[Entry]:
        """Return the entries as objects."""
        return entries_in(
            self.keys, self.seqs, self.timestamps_ms, self.values, self.headers, self.snapshots
        )

    def to_arrow(self) -> ArrowBatch:
        """Return the entries as a `pyarrow.RecordBatch`, without an object for each entry.

        The columns are `key`, `seq`, `timestamp`, `value`, `headers` (a list of structs of `key`
        and `value`, null for none) and `snapshot`. Keys and values share the memory of this object.
        Raises Unsupported where pyarrow is not installed.
        """
        return arrow().record_batch(self._chunk)


def columns_of(page: Mapping[Any, Any]) -> EntryColumns | None:
    """Return the entries in the lists of a page, or None for an empty page.

    Raises RemoteProtocolError where the lists do not fit together.
    """
    check_lengths(page)
    keys, seqs = page["keys"], page["seqs"]
    if not seqs:
        return None
    chunk = Chunk.of(
        [keys] if type(keys) is bytes else keys, seqs, page["timestamps"], page["values"],
        page["headers"] or {}, page["snapshots"] or (),
    )  # fmt: skip
    if type(keys) is bytes:
        chunk = chunk._replace(rows=len(seqs), repeats=array("I", [len(seqs)]).tobytes())
    return EntryColumns(Chunk.from_wire(chunk))


def arrow() -> ModuleType:
    """Return the module that makes Arrow arrays. Raises Unsupported without pyarrow.

    The first import of pyarrow takes a few hundred milliseconds.
    """
    try:
        from . import arrow_columns
    except ImportError as error:
        raise Unsupported(
            f"Arrow batches need pyarrow, which does not load here ({error}). Run "
            "`pip install 'pyarrow>=18'`, or read the columns as lists"
        ) from None
    return arrow_columns
