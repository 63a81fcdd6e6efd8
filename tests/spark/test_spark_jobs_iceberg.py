"""Exports to an Iceberg table with real Spark: each entry is a row once, however a run ends."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from spark_jobs import attempts, job, killed_when, started
from spark_logs import append, entries, filled
from spark_logs import rows as spark_rows

import lognode
from lognode import testing
from lognode.client.spark.jobs import manifest
from lognode.client.spark.jobs.export import exported
from lognode.client.spark.jobs.place import Place

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster


def properties(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def run(name: str, cluster: Cluster, tmp_path: Path) -> list[object]:
    """The arguments of an export of the log to its table."""
    more = [each for pair in properties(tmp_path).items()
            for each in ("--catalog-property", "=".join(pair))]  # fmt: skip
    return ["export", name, "--server", cluster.servers, "--out", tmp_path / "lake",
            "--iceberg", f"lake.{name}", *more]  # fmt: skip


def rows(name: str, tmp_path: Path) -> list[dict[str, Any]]:
    with load_catalog("default", **properties(tmp_path)) as catalog:
        found: list[dict[str, Any]] = (
            catalog.load_table(f"lake.{name}").scan().to_arrow().to_pylist()
        )
    return sorted(found, key=lambda row: (row["key"], row["seq"]))


def test_a_table_has_every_entry_of_the_log_once(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "iced", 200)
    log.append(b"k03", None, headers={b"z": b"1", b"a": b""})
    log.append(b"k04", b"sum", snapshot=True)
    for added in (1, 0):
        assert job(*run("iced", cluster, tmp_path)) == 0
        assert f"table lake.iced: {added} new manifests" in capfd.readouterr().out
    append(log, 200, 300)
    assert job(*run("iced", cluster, tmp_path)) == 0
    assert [
        (row["key"], row["value"], row["seq"], round(row["timestamp"].timestamp() * 1000),
         row["headers"] or None, row["snapshot"])
        for row in rows("iced", tmp_path)
    ] == [
        (e.key, e.value, e.seq, e.timestamp_ms,
         e.headers and [{"key": key, "value": value} for key, value in e.headers.items()],
         e.snapshot)
        for key in sorted(log.keys()) for e in log.scan(key)
    ]  # fmt: skip
    assert job(*run("iced", cluster, tmp_path), "--iceberg", "iced") == 2
    assert "give NAMESPACE.TABLE" in capfd.readouterr().err


def typed_rows(table: str, tmp_path: Path, *columns: str) -> list[tuple[Any, ...]]:
    with load_catalog("default", **properties(tmp_path)) as catalog:
        found = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted((row["key"], *(row[name] for name in columns)) for row in found)


def test_values_become_columns_and_what_does_not_fit_has_a_table_of_its_own(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log, file = client.create_log("typed", split_at=[b"c"]), tmp_path / "schema.json"
    fields = {"delay": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
    schema = {"type": "object", "properties": fields, "required": ["delay"]}
    file.write_text(json.dumps(schema))
    for key, value in (
        (b"a", b'{"delay":1,"at":"2026-01-01T00:00:00Z"}'), (b"b", b"no JSON"),
        (b"c", b'{"delay":"late"}'), (b"d", None), (b"e", b'{"delay":5}'),
    ):  # fmt: skip
        log.append(key, value)
    more = ("--removals", "--keep-files", "0s")
    assert job(*run("typed", cluster, tmp_path), "--schema", file, *more) == 0
    said = capfd.readouterr()
    assert "2 entries do not fit the schema" in said.err
    assert "table lake.typed_rejected: 1 new manifests" in said.out
    assert typed_rows("lake.typed", tmp_path, "delay", "at") == [
        (b"a", 1, datetime(2026, 1, 1, tzinfo=UTC)), (b"d", None, None), (b"e", 5, None)
    ]  # fmt: skip
    assert typed_rows("lake.typed_rejected", tmp_path, "value", "reason") == [
        (b"b", b"no JSON", "the value is not JSON: Expecting value at character 0"),
        (b"c", b'{"delay":"late"}', "$.delay is a string; the schema has an integer"),
    ]
    # A later schema adds a column, and both tables get the removals.
    fields["gate"] = {"type": "string"}
    file.write_text(json.dumps(schema))
    log.append(b"g", b'{"delay":7,"gate":"A1"}')
    for key in (b"a", b"b"):
        log.delete_key(key)
    assert job(*run("typed", cluster, tmp_path), *more, "--schema", file) == 0
    assert typed_rows("lake.typed", tmp_path, "delay", "gate") == [
        (b"d", None, None), (b"e", 5, None), (b"g", 7, "A1")
    ]  # fmt: skip
    assert [key for key, _ in typed_rows("lake.typed_rejected", tmp_path, "seq")] == [b"c"]
    place = Place(spark, str(tmp_path / "lake"))
    assert spark_rows(exported(spark, place, manifest.all_of(place))) == entries(log)
    assert len(list((tmp_path / "lake/data").glob("*-rejected/**/*.parquet"))) == 1


@pytest.mark.by_hand
def test_a_run_without_a_schema_has_that_of_the_last_run(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log, file = client.create_log("again"), tmp_path / "schema.json"
    fields = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    file.write_text(json.dumps({"type": "object", "properties": fields}))
    log.append(b"k", b'{"a":1}')
    assert job(*run("again", cluster, tmp_path), "--schema", file) == 0
    log.append(b"l", b'{"a":2}')
    assert job(*run("again", cluster, tmp_path)) == 0
    assert typed_rows("lake.again", tmp_path, "a") == [(b"k", 1), (b"l", 2)]
    del fields["b"]
    file.write_text(json.dumps({"type": "object", "properties": fields}))
    log.append(b"m", b'{"a":3}')
    capfd.readouterr()
    assert job(*run("again", cluster, tmp_path), "--schema", file) == 2
    assert "lacks the column 'b', which the export has" in capfd.readouterr().err


@pytest.mark.by_hand
def test_an_export_to_a_table_that_is_killed_is_made_whole_by_the_next(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Killed five times: while files are written, and around the commit."""
    log, lake = filled(client, "frozen", 2_000), tmp_path / "lake"

    def manifests() -> int:
        return len(manifest.all_of(Place(spark, str(lake))))

    for turn in range(5):
        before, written = manifests(), len(attempts(lake))
        running = started(*run("frozen", cluster, tmp_path), "--master", "local[1]")
        at_last = turn % 2 == 1
        killed = killed_when(
            running,
            lambda: manifests() > before if at_last else len(attempts(lake)) > written,  # noqa: B023
            180,
        )
        assert killed or at_last
        append(log, 2_000 + 100 * turn, 2_100 + 100 * turn)
    assert job(*run("frozen", cluster, tmp_path)) == 0
    assert [(row["key"], row["seq"], row["value"]) for row in rows("frozen", tmp_path)] == (
        entries(log)
    )
