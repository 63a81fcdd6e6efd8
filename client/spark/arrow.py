"""Pages as Arrow record batches, and record batches as records: columns, not an object an entry.

The order of rows is that of seq and key, the same for every reading of a span: a sink numbers the
rows of a task, and takes those of a task that runs again for the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InvalidArgument, RemoteProtocolError
from ..span_pages import SpanPage
from .session import Record

_OF_ENTRY: Final = ("key", "value", "seq", "timestamp", "headers")
_ORDER: Final = [("seq", "ascending"), ("key", "ascending")]
_NEWEST: Final = [("key", "ascending"), ("seq", "descending")]
_MILLISECONDS: Final = pa.timestamp("ms", "UTC")
_ROWS_MAX: Final = 1 << 14
"""Of a batch that was put together of pages."""
_LATEST_ROWS: Final = 1 << 17
"""Rows that may be superseded are looked through once there are as many, or as many as others."""


class Rows:
    """The pages of one piece, as batches of that schema. `feed` each, then `finish`."""

    def __init__(self, schema: pa.Schema, *, log: str, range_start: bytes) -> None:
        self._schema = schema
        self._constants = {"log": log, "rangeStart": range_start}
        self._needed = {"key", "seq", *schema.names}
        self._held: list[pa.Table] = []

    def feed(self, page: SpanPage) -> Iterator[pa.RecordBatch]:
        """What can be said by now of what follows what."""
        table = self._table(page.body)
        seqs = page.body["seqs"]
        if not self._held and (not seqs or seqs[-1] < page.settled):
            yield from self._shown(table)
            return
        held = pa.concat_tables([*self._held, table])
        is_ready = pc.less(held["seq"], page.settled)
        self._held = [rest] if (rest := held.filter(pc.invert(is_ready))).num_rows else []
        yield from self._shown(held.filter(is_ready).sort_by(_ORDER))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rest."""
        held, self._held = self._held, []
        if held:
            yield from self._shown(pa.concat_tables(held).sort_by(_ORDER))

    def _table(self, page: dict[str, Any]) -> pa.Table:
        """The columns that are needed of a page. Raises RemoteProtocolError."""
        try:
            count = len(page["seqs"])
            made = {name: self._column(name, page, count) for name in sorted(self._needed)
                    if name in _OF_ENTRY}  # fmt: skip
            return pa.table(made)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise RemoteProtocolError(f"a page that is none: {error}") from None

    def _column(self, name: str, page: dict[str, Any], count: int) -> pa.Array:
        if name == "key":
            keys = page["keys"]
            if type(keys) is bytes:
                return pa.repeat(pa.scalar(keys, pa.binary()), count)
            return pa.array(keys, pa.binary())
        if name == "value":
            return pa.array(page["values"], pa.binary())
        if name == "seq":
            return pa.array(page["seqs"], pa.int64())
        if name == "timestamp":
            return pa.array(page["timestamps"], _MILLISECONDS)
        kind = self._schema.field("headers").type
        headers = page.get("headers")
        if not headers:
            return pa.nulls(count, kind)
        rows: list[Any] = [None] * count
        for at, header in headers.items():
            rows[at] = [{"key": key, "value": value} for key, value in header.items()]
        return pa.array(rows, kind)

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
            return pa.repeat(pa.scalar(constant, field.type), batch.num_rows)
        return batch.column(field.name).cast(field.type)


class LatestRows(Rows):
    """The same, but of each key its last entry alone, unless that is a tombstone; by key."""

    def __init__(self, schema: pa.Schema, *, log: str, range_start: bytes) -> None:
        super().__init__(schema, log=log, range_start=range_start)
        self._needed.add("value")
        self._looked_through = 0

    def feed(self, page: SpanPage) -> Iterator[pa.RecordBatch]:
        """Nothing yet: what comes later may be newer."""
        self._held.append(self._table(page.body))
        rows = sum(table.num_rows for table in self._held)
        if rows >= _LATEST_ROWS + 2 * self._looked_through:
            self._held = [_latest(pa.concat_tables(self._held))]
            self._looked_through = self._held[0].num_rows
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """All of it."""
        held, self._held = self._held, []
        if held:
            latest = _latest(pa.concat_tables(held))
            yield from self._shown(latest.filter(pc.is_valid(latest["value"])))


def _latest(table: pa.Table) -> pa.Table:
    """Of each key the row with the highest seq, in the order of keys."""
    if not table.num_rows:
        return table
    ordered = table.sort_by(_NEWEST)
    keys = ordered["key"].combine_chunks()
    is_first = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
    if isinstance(is_first, pa.ChunkedArray):
        is_first = is_first.combine_chunks()
    return ordered.filter(pa.concat_arrays([pa.array([True]), is_first]))


def records(batch: pa.RecordBatch, first_row: int) -> Sequence[Record]:
    """The rows of a sink's batch, whose columns were checked before, as records.

    `first_row`: how many rows of the task came before. Raises InvalidArgument for what is none.
    """
    keys = _binaries(batch.column("key"))
    values = _binaries(batch.column("value"))
    headers: Sequence[Any] = [None] * batch.num_rows
    if "headers" in batch.schema.names:
        headers = [_headers(row) for row in batch.column("headers").to_pylist()]
    if None in keys:
        row = first_row + keys.index(None)
        raise InvalidArgument(f"the key of row {row} of the task is null", what="key")
    return list(zip(keys, values, headers, strict=True))


def _binaries(column: pa.Array) -> list[Any]:
    return list(column.cast(pa.binary()).to_pylist())


def _headers(row: Any) -> dict[bytes, bytes] | None:
    if not row:
        return None
    found = {_bytes(header["key"]): _bytes(header["value"]) for header in row}
    if len(found) < len(row):
        raise InvalidArgument("a row has two headers of one name", what="headers")
    return found


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise InvalidArgument("a header has a name and a value, neither is null", what="headers")
    return value
