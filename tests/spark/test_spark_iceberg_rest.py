"""Exports to a table of a REST catalog: Iceberg's own servlet, in a Java of its own.

The libraries come from Maven when the test runs. Executions that shape these tests: the catalog
commits and its answer is lost; the catalog never gets the commit; another program commits between
the job's look at the table and the job's commit; the catalog is killed between two runs.
"""

import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pyarrow.parquet as pq
import pytest
from iceberg_catalog import Catalog, libraries, rest_catalog
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from spark_jobs import job
from spark_logs import Row, append, entries, filled

import lognode
from lognode import testing
from lognode.client.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
Cluster = testing.LocalCluster


@pytest.fixture(scope="module")
def jars(module_path: Path) -> list[Path]:
    return libraries(module_path / "libraries")


@pytest.fixture
def catalog(jars: list[Path], tmp_path: Path) -> Iterator[Catalog]:
    with rest_catalog(jars, tmp_path / "catalog") as made:
        yield made


def run(name: str, cluster: Cluster, tmp_path: Path, uri: str) -> list[object]:
    return ["export", name, "--server", cluster.servers, "--out", tmp_path / "lake", "--removals",
            "--keep-files", "0s", "--iceberg", f"lake.{name}", "--catalog-property", "type=rest",
            "--catalog-property", f"uri={uri}"]  # fmt: skip


def opened(catalog: Catalog, name: str) -> Any:
    return load_catalog("default", **catalog.properties).load_table(f"lake.{name}")


def rows(table: Any) -> list[Row]:
    found = table.scan().to_arrow().to_pylist()
    return sorted((row["key"], row["seq"], row["value"]) for row in found)


@contextmanager
def between(target: str, commit: Callable[[Callable[[], None]], bool]) -> Iterator[str]:
    """Yield the address of a proxy before the catalog. `commit` is called instead of each commit to
    a table, with what forwards the commit; it returns whether the job gets an answer."""

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else None
            answer: list[tuple[int, bytes]] = []

            def forward() -> None:
                asked = urllib.request.Request(
                    target + self.path, body, method=self.command,
                    headers={"Content-Type": "application/json"},
                )  # fmt: skip
                try:
                    with urllib.request.urlopen(asked, timeout=60) as found:
                        answer.append((found.status, found.read()))
                except HTTPError as error:
                    answer.append((error.code, error.read()))

            is_commit = self.command == "POST" and self.path.count("/") == 5
            answers = True
            if is_commit:
                answers = commit(forward)
            else:
                forward()
            self.close_connection = True
            if answers:
                status, text = answer[-1]
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_HEAD = do_POST = do_DELETE = handle_one  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_table_of_a_rest_catalog_is_the_log(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, catalog: Catalog,
    tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "rested", 200)
    log.append(b"k03", None, headers={b"z": b"1"})
    for added in (1, 0):
        assert job(*run("rested", cluster, tmp_path, catalog.uri)) == 0
        assert f"table lake.rested: {added} new manifests" in capfd.readouterr().out
    table = opened(catalog, "rested")
    assert rows(table) == entries(log)
    vector = table.current_snapshot().summary["lognode.vector"]
    assert lognode.Vector.from_json(vector).log == "rested"
    append(log, 200, 300)
    log.delete_key(b"k07")
    assert job(*run("rested", cluster, tmp_path, catalog.uri)) == 0
    assert "removal 1: 4 entries" in capfd.readouterr().out
    table = opened(catalog, "rested")
    assert rows(table) == entries(log)
    keys = {
        key for file in (tmp_path / "lake").rglob("*.parquet")
        for key in pq.ParquetFile(file).read(["key"]).column("key").to_pylist()
    }  # fmt: skip
    assert keys == {key for key, _, _ in entries(log)}
    for snapshot in table.snapshots():
        assert b"k07" not in {key for key, _, _ in rows_at(table, snapshot.snapshot_id)}


def rows_at(table: Any, snapshot: int) -> list[Row]:
    found = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return [(row["key"], row["seq"], row["value"]) for row in found]


def test_S8_a_commit_whose_answer_is_lost_is_there_once(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, catalog: Catalog,
    tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "lost", 100)
    lost: list[int] = []

    def loses(forward: Callable[[], None]) -> bool:
        forward()
        lost.append(1)
        return False

    def withholds(forward: Callable[[], None]) -> bool:
        lost.append(1)
        return False

    for turn, commit in enumerate((loses, withholds, loses)):
        with between(catalog.uri, commit) as uri:
            assert job(*run("lost", cluster, tmp_path, uri)) == 1
        told = capfd.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("lognode: the export is complete, and table 'lake.lost' has not")
        assert told.endswith("Run the export again")
        assert len(lost) == turn + 1, "the job commits once"
        found = rows(opened(catalog, "lost"))
        assert len(found) == len(set(found))
        append(log, 100 + 10 * turn, 110 + 10 * turn)
        log.delete_key(b"k%02d" % turn)
    assert job(*run("lost", cluster, tmp_path, catalog.uri)) == 0
    assert rows(opened(catalog, "lost")) == entries(log)


def test_a_commit_that_another_program_overtakes_is_refused_and_made_by_the_next_run(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, catalog: Catalog,
    tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "raced", 100)
    assert job(*run("raced", cluster, tmp_path, catalog.uri)) == 0
    append(log, 100, 150)

    def overtaken(forward: Callable[[], None]) -> bool:
        table = opened(catalog, "raced")
        table.append(table.scan().to_arrow().slice(0, 0))  # a snapshot without rows
        forward()
        return True

    with between(catalog.uri, overtaken) as uri:
        assert job(*run("raced", cluster, tmp_path, uri)) == 1
    assert "another program changed table 'lake.raced' meanwhile" in capfd.readouterr().err
    assert len(rows(opened(catalog, "raced"))) == 100
    assert job(*run("raced", cluster, tmp_path, catalog.uri)) == 0
    assert rows(opened(catalog, "raced")) == entries(log)


def test_a_catalog_that_is_killed_and_back_has_what_it_acknowledged(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, jars: list[Path],
    tmp_path: Path, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log, port = filled(client, "killed", 100), free_ports(1)[0]
    with rest_catalog(jars, tmp_path / "catalog", port) as catalog:
        assert job(*run("killed", cluster, tmp_path, catalog.uri)) == 0
    append(log, 100, 150)
    assert job(*run("killed", cluster, tmp_path, catalog.uri)) == 1
    told = capfd.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("lognode: catalog 'default' cannot be used: ")
    with rest_catalog(jars, tmp_path / "catalog", port) as catalog:
        assert job(*run("killed", cluster, tmp_path, catalog.uri)) == 0
        assert rows(opened(catalog, "killed")) == entries(log)
