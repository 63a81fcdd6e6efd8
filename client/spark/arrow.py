"""Pages as Arrow record batches, and record batches as records: columns, not an object per entry.

Rows are ordered by key and seq, the same for every read of a span: a sink numbers the rows of a
task, and relies on the same numbers when the task runs again.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from .. import arrow_columns as columns
from ..protocol.chunks import Chunk
from ..protocol.errors import InvalidArgument, RemoteProtocolError
from ..protocol.types import ABSENT, ANY, Expect
from ..span_pages import Place, SpanPage
from .delivery import Record

_FIRST: Final = itemgetter(0)
_ORDER: Final = [("key", "ascending"), ("seq", "ascending")]
_ROWS_MAX: Final = 1 << 14
"""The rows of a batch."""
_HELD_BYTES: Final = 4 << 20
"""Held rows are searched for complete ones once they grow by this, or to twice the rest of the
last search."""


Column = tuple[Callable[[Chunk], pa.Array], pa.DataType]


class Rows:
    """The pages of one piece, as batches of the schema. `feed` each page, then `finish`."""

    needed: ClassVar = frozenset({"key", "seq"})
    """Columns that are read besides the requested ones."""

    def __init__(self, schema: pa.Schema, *, log: str, range_start: bytes) -> None:
        self._schema = schema
        self._constants = {
            name: columns.repeated(constant, _ROWS_MAX).cast(schema.field(name).type)
            for name, constant in (("log", log), ("rangeStart", range_start))
            if name in schema.names
        }
        """Columns with the same value in each row, of a whole batch."""
        self._columns = {
            name: column for name, column in _columns(schema).items()
            if name in self.needed or name in schema.names
        }  # fmt: skip
        self._held: list[pa.Table] = []
        """Rows of one page each, in order."""
        self._bytes = self._left = 0
        """Bytes of the held rows: now, and after the last search."""

    def feed(self, page: SpanPage) -> Iterator[pa.RecordBatch]:
        """Take a page, and yield the rows whose order is final."""
        table = self._table(page.chunks)
        if table.num_rows:
            self._held.append(_ordered(table.combine_chunks()))
            self._bytes += table.nbytes
        if page.settled is None or self._bytes >= _HELD_BYTES + 2 * self._left:
            parts = [_parted(held, page.settled) for held in self._held]
            ready = [below for below, _ in parts if below.num_rows]
            self._held = [above for _, above in parts if above.num_rows]
            self._left = self._bytes = sum(above.nbytes for above in self._held)
            if ready:
                yield from self._shown(_merged(ready))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        yield from ()

    def _table(self, chunks: Sequence[Chunk]) -> pa.Table:
        """Return the needed columns of a page. Raises RemoteProtocolError."""
        try:
            return pa.table({
                name: pa.chunked_array([make(chunk) for chunk in chunks], kind)
                for name, (make, kind) in self._columns.items()
            })  # fmt: skip
        except (TypeError, ValueError, IndexError, AttributeError, pa.ArrowException) as error:
            raise RemoteProtocolError(f"a chunk of entries is not valid: {error}") from None

    def _shown(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=_ROWS_MAX):
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [self._shown_column(field, batch) for field in self._schema],
                    schema=self._schema,
                )

    def _shown_column(self, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        constant = self._constants.get(field.name)
        if constant is not None:
            return constant.slice(0, batch.num_rows)
        return batch.column(field.name).cast(field.type)


class LatestRows(Rows):
    """Like `Rows`, but only the last entry of each key, unless that entry is a tombstone."""

    needed = frozenset({"key", "seq", "value"})

    def __init__(self, schema: pa.Schema, *, log: str, range_start: bytes) -> None:
        super().__init__(schema, log=log, range_start=range_start)
        self._last: list[pa.Table] = []
        """The last row so far: the next row may have the same key."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the row of the last key."""
        for last in self._last:
            yield from self._values(last)

    def _shown(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        if not table.num_rows:
            return
        rows = pa.concat_tables([*self._last, table])
        last = rows.num_rows - 1
        self._last = [rows.slice(last)]
        keys = rows["key"].combine_chunks()
        is_last = pc.not_equal(keys.slice(0, last), keys.slice(1))
        yield from self._values(rows.slice(0, last).filter(is_last))

    def _values(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from super()._shown(table.filter(pc.is_valid(table["value"])))


def _columns(schema: pa.Schema) -> dict[str, Column]:
    """Return the constructor and the type of each column that comes from entries."""
    found: dict[str, Column] = {
        "key": (columns.keys, pa.binary()), "value": (columns.values, pa.binary()),
        "seq": (columns.seqs, pa.int64()),
        "timestamp": (columns.timestamps, columns.MILLISECONDS),
        "snapshot": (columns.snapshots, pa.bool_()),
    }  # fmt: skip
    if "headers" in schema.names:
        kind = schema.field("headers").type
        found["headers"] = partial(columns.headers, kind=kind), kind
    return found


def _place(ordered: pa.Table, row: int) -> Place:
    return ordered["key"][row].as_py(), ordered["seq"][row].as_py()


def _parted(ordered: pa.Table, settled: Place | None) -> tuple[pa.Table, pa.Table]:
    """Return the rows below a place, and the other rows. Both share the memory of the table."""
    rows = ordered.num_rows
    at = rows
    if settled is not None and _place(ordered, -1) >= settled:
        at = bisect_left(range(rows), settled, key=lambda row: _place(ordered, row))
    return ordered.slice(0, at), ordered.slice(at)


def _merged(pieces: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of ordered pieces in order. Only pieces that overlap are copied."""
    groups: list[list[pa.Table]] = []
    last: Place = (b"", 0)
    for first, piece in sorted(((_place(piece, 0), piece) for piece in pieces), key=_FIRST):
        if first > last:
            groups.append([])
        groups[-1].append(piece)
        last = max(last, _place(piece, -1))
    return pa.concat_tables(
        pa.concat_tables(group).combine_chunks().sort_by(_ORDER) if len(group) > 1 else group[0]
        for group in groups
    )


def _ordered(table: pa.Table) -> pa.Table:
    """Sort by key and seq. Rows from a single file are already sorted."""
    keys, seqs = table["key"].chunk(0), table["seq"].chunk(0)
    last = table.num_rows - 1
    before, behind = keys.slice(0, last), keys.slice(1)
    falls = pc.greater_equal(seqs.slice(0, last), seqs.slice(1))
    is_ordered = [
        pc.all(pc.less_equal(before, behind), min_count=0),
        pc.all(pc.less(before.filter(falls), behind.filter(falls)), min_count=0),
    ]
    return table if all(found.as_py() for found in is_ordered) else table.sort_by(_ORDER)


def records(batch: pa.RecordBatch, first_row: int, log: str | None) -> Sequence[Record]:
    """Return the rows of a sink's batch, with checked columns, as records.

    `first_row`: the number of earlier rows of the task. `log`: the log of all rows; None: the
    column `log` has it. Raises InvalidArgument for an invalid row.
    """
    keys = _binaries(batch.column("key"))
    values = _binaries(batch.column("value"))
    headers: Sequence[Any] = [None] * batch.num_rows
    if "headers" in batch.schema.names:
        headers = [_headers(row) for row in batch.column("headers").to_pylist()]
    snapshots: Sequence[bool] = [False] * batch.num_rows
    if "snapshot" in batch.schema.names:
        snapshots = [marked is True for marked in batch.column("snapshot").to_pylist()]
    expects: Sequence[Expect] = [ANY] * batch.num_rows
    if "expect" in batch.schema.names:
        expects = _expects(batch.column("expect").to_pylist(), first_row)
    logs: Sequence[Any] = [log] * batch.num_rows
    if log is None:
        logs = batch.column("log").to_pylist()
    for name, column in (("key", keys), ("log", logs)):
        if None in column:
            row = first_row + column.index(None)
            raise InvalidArgument(
                f"the {name} of row {row} of the task is null; give every row a {name}", what=name
            )
    return list(zip(keys, values, headers, snapshots, expects, logs, strict=True))


def _expects(column: Sequence[int | None], first_row: int) -> Sequence[Expect]:
    """Return the conditions of a column: null sets none; with 0 the key must have no entry."""
    for row, given in enumerate(column, first_row):
        if given is not None and given < 0:
            raise InvalidArgument(
                f"the column expect of row {row} of the task is {given}; give the key's last seq, "
                "0 for a key without an entry, or null for no condition",
                what="expect",
            )
    return [ANY if given is None else given or ABSENT for given in column]


def _binaries(column: pa.Array) -> list[Any]:
    return list(column.cast(pa.binary()).to_pylist())


def _headers(row: Any) -> dict[bytes, bytes] | None:
    if not row:
        return None
    found = {_bytes(header["key"]): _bytes(header["value"]) for header in row}
    if len(found) < len(row):
        raise InvalidArgument(
            "a row has two headers with the same name; a log keeps one header of each name: give "
            "each name once",
            what="headers",
        )
    return found


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise InvalidArgument("a header has a null name or a null value; give both", what="headers")
    return value
