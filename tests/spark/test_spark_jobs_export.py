"""Exports: each entry is in exactly one directory that a manifest names, however a run ends."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from spark_jobs import attempts, job, killed_when, started
from spark_logs import append, entries, filled, rows

import lognode
from lognode import testing
from lognode.client.protocol.errors import Conflict
from lognode.client.spark.jobs import manifest
from lognode.client.spark.jobs.export import exported
from lognode.client.spark.jobs.place import Place
from lognode.client.vector import Vector

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster
Row = tuple[bytes, int, bytes | None]


def read(spark: SparkSession, out: Path) -> list[Row]:
    """What the manifests name, as rows."""
    place = Place(spark, str(out))
    found: list[Row] = rows(exported(spark, place, manifest.all_of(place)))
    return found


@pytest.mark.by_hand
def test_an_export_and_what_came_since_are_the_log(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = filled(client, "exported", 2_000)
    log.append(b"k00", None, headers={b"h": b"1"})
    for number in (1, 2, 3):
        assert job("export", "exported", "--server", cluster.servers, "--out", tmp_path) == 0
        assert read(spark, tmp_path) == entries(log)
        made = json.loads((tmp_path / f"manifests/0000000{number}.json").read_text())
        assert made["number"] == number
        vector = Vector.from_json(json.dumps(made["snapshot"]))
        seen = {key: seq for key, seq, _ in entries(log)}
        assert all(
            any(p.start <= key and (p.end is None or key < p.end) and seq <= p.through_seq
                for p in vector.parts) for key, seq in seen.items()
        )  # fmt: skip
        days = list((tmp_path / made["data"]).glob("day=2*"))
        assert days
        append(log, 2_000 + 500 * number, 2_500 + 500 * number)
        client.admin.split("exported", at=b"k1%d" % number)
    assert len(attempts(tmp_path)) == 3


@pytest.mark.by_hand
def test_a_run_with_nothing_new_writes_no_manifest(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    filled(client, "still", 300)
    for _ in range(2):
        assert job("export", "still", "--server", cluster.servers, "--out", tmp_path) == 0
    assert len(manifest.all_of(Place(spark, str(tmp_path)))) == 1
    assert "log 'still' has no new entries since manifest 1" in capfd.readouterr().err


@pytest.mark.by_hand
def test_an_export_that_is_killed_while_it_writes_neither_loses_nor_doubles(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = filled(client, "killed", 3_000)
    assert job("export", "killed", "--server", cluster.servers, "--out", tmp_path) == 0
    before = entries(log)
    append(log, 3_000, 6_000)
    running = started("export", "killed", "--server", cluster.servers, "--out", tmp_path,
                      "--master", "local[1]")  # fmt: skip
    assert killed_when(running, lambda: len(attempts(tmp_path)) == 2, 120)
    assert read(spark, tmp_path) == before, "what no manifest names is not there"
    append(log, 6_000, 6_500)
    assert job("export", "killed", "--server", cluster.servers, "--out", tmp_path) == 0
    assert read(spark, tmp_path) == entries(log)
    assert len(attempts(tmp_path)) == 2, "what the killed one left is gone"


@pytest.mark.by_hand
def test_an_export_that_ends_before_its_manifest_neither_loses_nor_doubles(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    log = filled(client, "ended", 1_000)

    def ends(place: Place, made: manifest.Manifest) -> None:
        raise Conflict("here it ends")

    with monkeypatch.context() as patched:
        patched.setattr(manifest, "commit", ends)
        assert job("export", "ended", "--server", cluster.servers, "--out", tmp_path) == 1
    assert len(attempts(tmp_path)) == 1
    assert job("export", "ended", "--server", cluster.servers, "--out", tmp_path) == 0
    assert read(spark, tmp_path) == entries(log)
    assert len(attempts(tmp_path)) == 1


@pytest.mark.by_hand
def test_the_second_of_two_simultaneous_exports_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(spark, str(tmp_path))
    of = Vector("c", "flights", 1, "", 0, ())
    made = manifest.Manifest("e", 1, "data/00000001-a", 5, of)
    place.create("manifests/00000001.json", "first")
    with pytest.raises(Conflict, match=r"00000001\.json exists already"):
        manifest.commit(place, made)
    assert place.read("manifests/00000001.json") == "first"
    assert place.names("manifests") == ["00000001.json"]


def test_an_export_keeps_every_column_and_times_with_statistics(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("columns", split_at=[b"m"])
    for key, value, headers, marked in (
        (b"a", b"1", None, False), (b"a", None, {b"z": b"1", b"a": b""}, False),
        (b"a", b"", None, True), (b"z", b"\xff", {b"h": b"\0"}, False),
    ):  # fmt: skip
        log.append(key, value, headers=headers, snapshot=marked)
    assert job("export", "columns", "--server", cluster.servers, "--out", tmp_path) == 0
    place = Place(spark, str(tmp_path))
    found = exported(spark, place, manifest.all_of(place)).orderBy("key", "seq").collect()
    assert [
        (bytes(row.key), row.value and bytes(row.value), row.seq,
         round(row.timestamp.timestamp() * 1000), row.snapshot,
         None if row.headers is None else [(bytes(h.key), bytes(h.value)) for h in row.headers])
        for row in found
    ] == [
        (e.key, e.value, e.seq, e.timestamp_ms, e.snapshot,
         None if e.headers is None else list(e.headers.items()))
        for key in (b"a", b"z") for e in log.scan(key)
    ]  # fmt: skip
    files = list(tmp_path.glob("data/*/day=*/*.parquet"))
    assert files
    for file in files:
        held = pq.ParquetFile(file)
        at = held.schema_arrow.names.index("timestamp")
        assert held.schema.column(at).physical_type == "INT64"
        assert "timeUnit=microseconds" in str(held.schema.column(at).logical_type)
        for group in range(held.num_row_groups):
            assert held.metadata.row_group(group).column(at).statistics.has_min_max


def test_bad_arguments_are_refused_before_spark_starts(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    filled(client, "one", 10)
    filled(client, "two", 10)
    for log, server, more, code, said in (
        ("nope", cluster.servers, (), 1, "nope"),
        ("one", "127.0.0.1:99999", (), 2, "is not a port"),
        ("one", cluster.servers, ("--lease", "9x"), 2, "give 90s, 30m, 1h or 7d"),
        ("one", "127.0.0.1:1", ("--timeout", "1s"), 1, "127.0.0.1:1"),
    ):
        assert job("export", log, "--server", server, "--out", tmp_path, *more) == code
        (line,) = capfd.readouterr().err.splitlines()
        assert said in line
    assert not list(tmp_path.iterdir())
    assert job("export", "one", "--server", cluster.servers, "--out", tmp_path) == 0
    capfd.readouterr()
    assert job("export", "two", "--server", cluster.servers, "--out", tmp_path) == 2
    assert "the snapshot is of log 'one'; this log is 'two'" in capfd.readouterr().err
