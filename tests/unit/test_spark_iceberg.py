"""Exports as an Iceberg table, with a catalog in SQLite: each manifest is there once."""

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from lognode.client.protocol.errors import Conflict, InvalidArgument, Unavailable, Unsupported
from lognode.client.spark.jobs import iceberg, iceberg_files
from lognode.client.spark.jobs.manifest import Manifest
from lognode.client.vector import Part, Vector

NAME = "lake.flights"
HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
SCHEMA = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("seq", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")), ("headers", HEADERS), ("snapshot", pa.bool_()),
])  # fmt: skip
DAY_US = 86_400_000_000
Row = tuple[bytes, bytes | None, int, list[dict[str, bytes]] | None, bool]


def options(tmp_path: Path, **given: Any) -> argparse.Namespace:
    found = {
        "iceberg": NAME, "catalog": "test",
        "catalog_property": [
            f"uri=sqlite:///{tmp_path}/catalog.db", f"warehouse=file://{tmp_path}/warehouse",
        ],
    }  # fmt: skip
    return argparse.Namespace(**found | given)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with iceberg.opened(options(tmp_path)) as made:
        yield made


def manifest(number: int, export: str = "e") -> Manifest:
    vector = Vector("c", "flights", 1, "", 0, (Part(b"", None, 10 * number),))
    return Manifest(export, number, f"data/{number}", 3, vector)


def exported(tmp_path: Path) -> iceberg.Files:
    """Files as the export writes them: one per day. The second manifest has no entries."""

    def files(made: Manifest) -> Sequence[str]:
        if made.data == "data/2":
            return []
        found = []
        for day in range(2):
            file = tmp_path / made.data / f"day={day}" / "part.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            rows = [row for row in rows_of(int(made.data[-1])) if row[2] % 2 == day]
            columns = dict(zip(("key", "value", "seq", "headers", "snapshot"),
                               map(list, zip(*rows, strict=True)), strict=True))  # fmt: skip
            columns["timestamp"] = [DAY_US * (20_000 + day) + row[2] for row in rows]
            pq.write_table(pa.table(columns, schema=SCHEMA), file)
            found.append(f"file://{file}")
        return found

    return files


def rows_of(number: int) -> list[Row]:
    seq = 10 * number
    return [
        (b"a", b"1", seq, None, False), (b"a", None, seq + 1, None, False),
        (b"\xff", b"", seq + 2, [{"key": b"h", "value": b"\0"}], False),
        (b"a", b"sum", seq + 3, None, True),
    ]  # fmt: skip


def shown(catalog: Catalog) -> list[Row]:
    rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
    found: list[Any] = [
        # PyIceberg shows an empty list for a list that is null in the file.
        (row["key"], row["value"], row["seq"], row["headers"] or None, row["snapshot"])
        for row in rows
    ]
    return sorted(found, key=lambda row: row[2])


def test_each_manifest_is_added_once(catalog: Catalog, tmp_path: Path) -> None:
    files = exported(tmp_path)
    assert iceberg.add(catalog, NAME, [], files) == 0
    made = [manifest(1), manifest(2)]
    for added in (2, 0):
        assert iceberg.add(catalog, NAME, made, files) == added
        assert shown(catalog) == rows_of(1)
    made.append(manifest(3))
    for added in (1, 0):
        assert iceberg.add(catalog, NAME, made, files) == added
        assert shown(catalog) == rows_of(1) + rows_of(3)
    table = catalog.load_table(NAME)
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    assert len(summaries) == 2
    name = iceberg_files.vector_property
    vectors = [Vector.from_json(each[name] or "") for each in summaries if each]
    assert vectors == [made[0].snapshot, made[2].snapshot]
    days = {str(task.file.partition[0]) for task in table.scan().plan_files()}
    assert len(days) == 2
    later = table.scan(row_filter="timestamp >= '2024-10-05T00:00:00+00:00'")
    assert len(list(later.plan_files())) == 2, "statistics of the other day leave its files out"


def test_a_run_that_is_lost_is_made_whole_by_the_next_run(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, made = exported(tmp_path), [manifest(1), replace(manifest(3), number=2, data="data/3")]
    commit: Callable[..., Any] = SqlCatalog.commit_table
    for lost in ("before", "after"):

        def fails(*given: Any, lost: str = lost) -> Any:
            if lost == "after":
                commit(*given)
            raise ConnectionError("the answer is lost")

        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "commit_table", fails)
            with pytest.raises(Unavailable, match="has not got all of the export: ConnectionErr"):
                iceberg.add(catalog, NAME, made, files)
    assert shown(catalog) == rows_of(1), "the commit whose answer was lost"
    assert iceberg.add(catalog, NAME, made, files) == 1
    assert shown(catalog) == rows_of(1) + rows_of(3)


def test_one_of_two_runs_at_once_adds_the_manifest(catalog: Catalog, tmp_path: Path) -> None:
    files = exported(tmp_path)

    def overtaken(made: Manifest) -> Sequence[str]:
        with iceberg.opened(options(tmp_path)) as other:
            iceberg.add(other, NAME, [made], files)
        return files(made)

    with pytest.raises(Conflict, match=r"another program changed table 'lake.flights' meanwhile"):
        iceberg.add(catalog, NAME, [manifest(1)], overtaken)
    assert shown(catalog) == rows_of(1)
    assert iceberg.add(catalog, NAME, [manifest(1)], files) == 0


def test_a_table_of_something_else_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    files = exported(tmp_path)
    iceberg.add(catalog, NAME, [manifest(1)], files)
    with pytest.raises(InvalidArgument, match="is of the export e; the export of --out is f"):
        iceberg.add(catalog, NAME, [manifest(1, "f")], files)
    catalog.create_table("lake.other", schema=SCHEMA)
    with pytest.raises(InvalidArgument, match=r"'lake\.other' is not of an export"):
        iceberg.add(catalog, "lake.other", [manifest(1)], files)


def test_a_catalog_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, error, said in (
        ({"iceberg": "flights"}, InvalidArgument, "--iceberg is 'flights'; give NAMESPACE.TABLE"),
        ({"catalog_property": ["uri"]}, InvalidArgument, "is 'uri'; give KEY=VALUE"),
        ({"catalog_property": ["uri=sqlite:////nowhere/x.db"]}, Unavailable, "catalog 'test' can"),
        ({"catalog_property": []}, Unavailable, "Check --catalog, --catalog-property and PyIce"),
    ):
        with pytest.raises(error, match=said) as raised:
            iceberg.opened(options(tmp_path, **given))
        assert "\n" not in str(raised.value)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(Unsupported, match=r"Run pip install 'lognode\[iceberg\]'"):
        iceberg.opened(options(tmp_path))


def test_properties_reach_a_rest_catalog(tmp_path: Path) -> None:
    """A server that knows only the first requests of a REST catalog, and keeps these requests."""
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append((f"{self.command} {self.path}", self.headers.get("Authorization")))
            body = b'{"defaults": {}, "overrides": {}, "namespace": ["lake"], "properties": {}}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            given = ["type=rest", f"uri=http://127.0.0.1:{server.server_port}", "warehouse=w",
                     "token=secret"]  # fmt: skip
            iceberg.opened(options(tmp_path, catalog_property=given)).close()
        finally:
            server.shutdown()
            thread.join()
    assert seen[0] == ("GET /v1/config?warehouse=w", "Bearer secret")
    assert ("POST /v1/namespaces", "Bearer secret") in seen
