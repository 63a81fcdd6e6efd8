"""Reading rows from files: CSV, JSON lines and Parquet, plain, in .gz or in .zip.

A row becomes a record: a column gives the key, and the row as a JSON object of strings is the
value. Rows are read in file order and numbered by position, so importing the same file again under
the same producer name adds nothing.
"""

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ..protocol.errors import InvalidArgument
from ..protocol.limits import value_bytes_max

_KINDS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Row(NamedTuple):
    """A row: its number from 1 on, its place in the file, and its key and value, or its error."""

    number: int
    place: str
    key: bytes
    value: bytes
    error: str | None = None


class Source:
    """An open file. Iterate it for its rows; `progress` is the part that has been read."""

    def __init__(
        self, path: Path, *, key: str, key_missing: str | None, kind: str | None = None
    ) -> None:
        self._key = key
        self._key_missing = None if key_missing is None else key_missing.encode()
        with ExitStack() as stack:
            try:
                self._total = path.stat().st_size
                self._raw = stack.enter_context(path.open("rb"))
                self._name, self._data = _unpacked(path, self._raw, stack)
            except (OSError, zipfile.BadZipFile) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise InvalidArgument(f"cannot read {path}: {reason}", what="file") from None
            found = kind or _KINDS.get(Path(self._name).suffix.lower())
            if found is None:
                raise InvalidArgument(
                    f"{self._name} does not end with .csv, .jsonl or .parquet; give the "
                    "format with --input",
                    what="file",
                )
            self._stack = stack.pop_all()
        self._read = {"csv": self._csv, "jsonl": self._jsonl, "parquet": self._parquet}[found]

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows. Raises InvalidArgument where the file becomes unreadable."""
        try:
            yield from self._read()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{self._name} is not UTF-8: {error}", what="file") from None
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise InvalidArgument(f"cannot unpack {self._name}: {error}", what="file") from None

    @property
    def progress(self) -> float:
        """The part of the file's bytes that has been read, 0 to 1."""
        return min(1.0, self._raw.tell() / self._total) if self._total else 1.0

    def close(self) -> None:
        """Close the file and set `progress` to 1."""
        self._total = 0
        self._stack.close()

    def _record(self, number: int, place: str, key: Any, row: dict[str, str]) -> Row:
        """Make a row; `key` is None where the row has no key."""
        if key is not None:
            packed = _text(key).encode()
        elif self._key_missing is not None:
            packed = self._key_missing
        else:
            return _bad(number, place, f"column {self._key!r} is empty; see --key-missing")
        return Row(number, place, packed, _encode(row).encode())

    def _csv(self) -> Iterator[Row]:
        csv.field_size_limit(2 * value_bytes_max)  # a longer field makes a bad row
        text = self._stack.enter_context(io.TextIOWrapper(self._data, encoding="utf-8", newline=""))
        reader = csv.reader(text, strict=True)
        columns = next(reader, [])
        self._check_columns(columns)
        at, width = columns.index(self._key), len(columns)
        missing = ("",) if self._key_missing is None else ("", "NA")
        number = 0
        while True:
            number += 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield _bad(number, f"line {reader.line_num}", str(error))
                continue
            place = f"line {reader.line_num}"
            if len(fields) != width:
                yield _bad(
                    number, place, f"the row has {len(fields)} fields; the header has {width}"
                )
                continue
            key = None if fields[at] in missing else fields[at]
            yield self._record(number, place, key, dict(zip(columns, fields, strict=True)))

    def _jsonl(self) -> Iterator[Row]:
        for number, line in enumerate(self._data, 1):
            place = f"line {number}"
            try:
                body = json.loads(line)
            except ValueError as error:
                yield _bad(number, place, f"the line is not JSON: {error}")
                continue
            if not isinstance(body, dict):
                yield _bad(number, place, "the line is not a JSON object")
                continue
            row = {name: _text(value) for name, value in body.items()}
            key = body.get(self._key)
            yield self._record(number, place, None if key == "" else key, row)

    def _parquet(self) -> Iterator[Row]:
        try:
            import pyarrow.parquet
        except ImportError:
            raise InvalidArgument(
                "reading Parquet needs pyarrow; install lognode[spark]", what="file"
            ) from None
        data: Any = self._data if self._data.seekable() else io.BytesIO(self._data.read())
        try:
            file = pyarrow.parquet.ParquetFile(data)
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"{self._name} is not Parquet: {error}", what="file") from None
        self._check_columns(file.schema_arrow.names)
        number = 0
        for batch in file.iter_batches(batch_size=1_000):
            for body in batch.to_pylist():
                number += 1
                row = {name: _text(value) for name, value in body.items()}
                key = body[self._key]
                key = None if key == "" else key
                yield self._record(number, f"row {number}", key, row)

    def _check_columns(self, columns: list[str]) -> None:
        if self._key not in columns:
            raise InvalidArgument(
                f"{self._name} has no column {self._key!r}; the columns are "
                f"{', '.join(columns) or 'none'}",
                what="key",
            )


def _unpacked(path: Path, raw: IO[bytes], stack: ExitStack) -> tuple[str, IO[bytes]]:
    """Return the name and the unpacked bytes of the file's content."""
    if path.suffix == ".gz":
        return path.stem, cast(IO[bytes], gzip.open(raw))
    if path.suffix == ".zip":
        archive = stack.enter_context(zipfile.ZipFile(raw))
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if len(names) != 1:
            raise InvalidArgument(
                f"{path} holds {len(names)} files; an archive must hold one file", what="file"
            )
        return names[0], stack.enter_context(archive.open(names[0]))
    return path.name, raw


def _bad(number: int, place: str, problem: str) -> Row:
    return Row(number, place, b"", b"", f"{place}: {problem}")


def _text(value: Any) -> str:
    """Return the value as text: JSON when it is neither text nor missing."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
