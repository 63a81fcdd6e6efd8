"""Printing results: a table for people, tab-separated for pipes, JSON for programs."""

import json
import os
import re
import sys
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from ..json_text import printable, to_json
from .quantities import moment, size, span

FORMATS = ("table", "json", "jsonl")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_TIMES = {"timestamp_ms": "TIME", "created_ms": "CREATED", "expires_ms": "EXPIRES",
          "oldest_ms": "OLDEST", "begin_ms": "BEGIN"}  # fmt: skip
"""Columns with Unix time, and their heads on a terminal."""
_SPANS = {
    "retention_ms": "RETENTION", "lease_ms": "LEASE", "delete_retention_ms": "DELETE_RETENTION",
    "snapshot_delay_ms": "SNAPSHOT_DELAY",
}  # fmt: skip
"""Columns with a length of time, and their heads on a terminal."""
_SIZES = frozenset(("retention_bytes", "local_retention_bytes", "split_bytes", "freed_bytes"))
"""Columns with a number of bytes."""
_VALUE = "value"
"""The column of values of entries, where an empty value differs from none."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_REORDERING = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal may use to show the text around them in another order."""

Row = Mapping[str, Any]


class Printer:
    """Prints results in one of FORMATS.

    On a terminal a table is aligned and has a header, times are UTC, lengths of time and sizes have
    a unit, and characters that reorder text are escaped; elsewhere tabs separate its cells. One row
    is one line: control characters in a cell are escaped as in JSON.
    """

    def __init__(self, format_: str, out: TextIO | None = None) -> None:
        self._format = format_
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._colour = self._terminal and "NO_COLOR" not in os.environ
        self._headed: Sequence[str] = ()
        """The columns whose header stands above the rows that are printed one by one."""
        self._widths: list[int] = []
        """Their widths so far."""

    @property
    def tables(self) -> bool:
        """Whether the output is for people: several tables may follow each other."""
        return self._format == "table"

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Print complete rows; JSON holds whole rows, a table only these columns."""
        if self._format == "json":
            self._write(to_json(list(rows), indent=2))
        elif self._format == "jsonl":
            for row in rows:
                self._write(to_json(row))
        elif self._terminal:
            self._aligned(list(rows), columns)
        else:
            for row in rows:
                self._tabbed(row, columns)

    async def stream(self, rows: AsyncIterable[Row], columns: Sequence[str]) -> None:
        """Print rows as they arrive; in JSON they form one array."""
        between = "[\n"
        async for row in rows:
            if self._format == "table":
                self._flowing(row, columns)
            elif self._format == "jsonl":
                self._write(to_json(row))
            else:
                self._out.write(between + to_json(row))
                between = ",\n"
        if self._format == "json":
            self._write("[]" if between == "[\n" else "\n]")

    def line(self, row: Row, columns: Sequence[str]) -> None:
        """Print one row of an endless stream, at once; JSON is one object a line."""
        if self._format == "table":
            self._flowing(row, columns)
        else:
            self._write(to_json(row))
        self._out.flush()

    def record(self, row: Row, columns: Sequence[str]) -> None:
        """Print a result that is a single row."""
        if self._format == "json":
            self._write(to_json(row, indent=2))
        else:
            self.rows([row], columns)

    def document(self, value: Any) -> None:
        """Print a value of any shape, as JSON even when tables are requested."""
        self._write(to_json(value, indent=None if self._format == "jsonl" else 2))

    def scalar(self, value: str | int) -> None:
        """Print a number or a line."""
        self._write(str(value) if self.tables else to_json(value))

    def _aligned(self, rows: list[Row], columns: Sequence[str]) -> None:
        cells = [_shown(row, columns) for row in rows]
        heads = list(map(_head, columns))
        widths = [max(map(width, column)) for column in zip(heads, *cells, strict=True)]
        self._write_head(heads, widths)
        for line in cells:
            self._write(_padded(line, widths))

    def _flowing(self, row: Row, columns: Sequence[str]) -> None:
        """Print one row of a table whose further rows are not known yet: a column becomes wider
        with its widest cell so far."""
        if not self._terminal:
            self._tabbed(row, columns)
            return
        line = _shown(row, columns)
        is_new = self._headed != columns
        if is_new:
            self._headed = columns
            self._widths = [len(_head(column)) for column in columns]
        self._widths = [max(w, width(c)) for w, c in zip(self._widths, line, strict=True)]
        if is_new:
            self._write_head(list(map(_head, columns)), self._widths)
        self._write(_padded(line, self._widths))

    def _write_head(self, heads: Sequence[str], widths: Sequence[int]) -> None:
        head = _padded(heads, widths)
        self._write(f"{_BOLD}{head}{_PLAIN}" if self._colour else head)

    def _tabbed(self, row: Row, columns: Sequence[str]) -> None:
        self._write("\t".join(_plain(column, row.get(column)) for column in columns))

    def _write(self, line: str) -> None:
        self._out.write(line + "\n")


def _head(column: str) -> str:
    return (_TIMES | _SPANS).get(column) or column.upper()


def _shown(row: Row, columns: Sequence[str]) -> list[str]:
    """Return the cells of a row on a terminal."""
    return [_people(column, row.get(column)) for column in columns]


def _people(column: str, value: Any) -> str:
    if not isinstance(value, int):
        return shown(value) if value or column != _VALUE else _plain(column, value)
    if column in _TIMES:
        return moment(value)
    if column in _SPANS:
        return span(value)
    return size(value) if column in _SIZES else cell(value)


def _plain(column: str, value: Any) -> str:
    return "" if column == _VALUE and value == b"" else cell(value)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (c + " " * (w - width(c)) for c, w in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def cut(text: str, columns: int) -> str:
    """Return the begin of a text that fits these columns of a terminal."""
    if text.isascii():
        return text[:columns]
    found = 0
    for at, char in enumerate(text):
        found += width(char)
        if found > columns:
            return text[:at]
    return text


def width(text: str) -> int:
    """Return the columns that a terminal needs for a text without control characters."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # imported here because few texts need it

    marks = sum(category(char) in ("Mn", "Me", "Cf") for char in text)
    return len(text) - marks + sum(east_asian_width(char) in "WF" for char in text)


def shown(value: Any) -> str:
    """Return a value as one line of text for a terminal: `cell`, without characters that reorder
    the text around them."""
    return _REORDERING.sub(_escaped, cell(value))


def cell(value: Any) -> str:
    """Return a value as one line of text: `-` for nothing, control characters escaped."""
    if value in (None, b"", ""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(cell, value)) or "-"
    if isinstance(value, bytes):
        text = printable(value)
        value = text if isinstance(text, str) else json.dumps(text)
    return _CONTROL.sub(_escaped, str(value))


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
