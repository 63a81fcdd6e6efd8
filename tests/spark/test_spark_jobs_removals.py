"""What the log removed leaves the export and its table with the next run, and nothing else does."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from spark_jobs import attempts, job, killed_when, started
from spark_logs import append, entries, filled
from spark_logs import rows as rows_of

import lognode
from lognode import testing
from lognode.client.spark.jobs import manifest
from lognode.client.spark.jobs.export import exported
from lognode.client.spark.jobs.place import Place

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster
Row = tuple[bytes, int, bytes | None]


def properties(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def run(name: str, cluster: Cluster, tmp_path: Path, *more: object) -> list[object]:
    """The arguments of an export of the log to its table, with removals."""
    catalog = [each for pair in properties(tmp_path).items()
               for each in ("--catalog-property", "=".join(pair))]  # fmt: skip
    return ["export", name, "--server", cluster.servers, "--out", tmp_path / "lake",
            "--removals", "--iceberg", f"lake.{name}", *catalog, *more]  # fmt: skip


def table(name: str, tmp_path: Path) -> list[Row]:
    with load_catalog("default", **properties(tmp_path)) as catalog:
        found: list[dict[str, Any]] = (
            catalog.load_table(f"lake.{name}").scan().to_arrow().to_pylist()
        )
    return sorted((row["key"], row["seq"], row["value"]) for row in found)


def lake(spark: SparkSession, tmp_path: Path) -> list[Row]:
    """What the manifests name, as rows."""
    place = Place(spark, str(tmp_path / "lake"))
    found: list[Row] = rows_of(exported(spark, place, manifest.all_of(place)))
    return found


def keys_in_files(tmp_path: Path) -> set[bytes]:
    """The keys in all files that are there, of whatever snapshot."""
    return {
        key for file in (tmp_path / "lake").rglob("*.parquet")
        for key in pq.ParquetFile(file).read(["key"]).column("key").to_pylist()
    }  # fmt: skip


def remove_the_end(source: Path) -> None:
    """Make the replay one that did not end, with Hadoop's checksum of the file."""
    for file in source.rglob("*00000001.ended*"):
        file.unlink()


def test_S6_removed_entries_leave_the_table_and_the_files(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "removed", 300)
    assert job(*run("removed", cluster, tmp_path)) == 0
    append(log, 300, 400)
    log.delete_key(b"k03")
    log.delete_key(b"k07")
    log.append(b"k07", b"again")
    log.trim(b"k30", before=max(seq for key, seq, _ in entries(log) if key == b"k30"))
    client.admin.split("removed", at=b"k10")
    log.delete_key(b"k40")
    assert job(*run("removed", cluster, tmp_path)) == 0
    assert "removal 1: " in capfd.readouterr().out
    assert table("removed", tmp_path) == lake(spark, tmp_path) == entries(log)
    assert b"k03" in keys_in_files(tmp_path), "queries may still read the old files"
    client.admin.merge("removed", at=b"k10")
    log.append(b"k40", b"back")
    log.trim(b"k41", before=max(seq for key, seq, _ in entries(log) if key == b"k41"))
    assert job(*run("removed", cluster, tmp_path, "--keep-files", "0s")) == 0
    said = capfd.readouterr().out
    assert "removal 2: " in said
    assert "removal 2: " in said.partition("replaced files are deleted")[2]
    assert table("removed", tmp_path) == lake(spark, tmp_path) == entries(log)
    assert keys_in_files(tmp_path) == {key for key, _, _ in entries(log)}


@pytest.mark.by_hand
def test_a_run_without_removed_entries_changes_nothing_and_a_replay_has_the_rest(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "still", 100)
    for _ in range(2):
        assert job(*run("still", cluster, tmp_path, "--keep-files", "0s")) == 0
    assert "removals: none" in capfd.readouterr().out
    log.delete_key(b"k03")
    assert job(*run("still", cluster, tmp_path, "--keep-files", "0s")) == 0
    before = sorted((tmp_path / "lake").rglob("*.parquet"))
    assert job(*run("still", cluster, tmp_path, "--keep-files", "0s")) == 0
    assert "removals: none" in capfd.readouterr().out
    assert sorted((tmp_path / "lake").rglob("*.parquet")) == before
    copy = client.create_log("still-copy")
    assert job("replay", "still-copy", "--server", cluster.servers,
               "--source", tmp_path / "lake") == 0  # fmt: skip
    assert sorted((key, value) for key, _, value in entries(copy)) == sorted(
        (key, value) for key, _, value in entries(log)
    )


@pytest.mark.by_hand
def test_files_stay_until_every_table_has_left_them(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = filled(client, "two", 100)
    second = ("--iceberg", "lake.second", "--keep-files", "0s")
    assert job(*run("two", cluster, tmp_path)) == 0
    assert job(*run("two", cluster, tmp_path, *second)) == 0
    log.delete_key(b"k03")
    assert job(*run("two", cluster, tmp_path, *second)) == 0
    assert "the files that removal 1 replaced stay: table lake.two (" in capfd.readouterr().err
    assert b"k03" in keys_in_files(tmp_path)
    assert len(table("two", tmp_path)) == 100
    assert job(*run("two", cluster, tmp_path, "--keep-files", "0s")) == 0
    assert table("two", tmp_path) == table("second", tmp_path) == entries(log)
    assert b"k03" not in keys_in_files(tmp_path)


@pytest.mark.by_hand
def test_a_replay_that_began_before_a_removal_is_refused(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The rows of a manifest have other numbers after a removal: a range would drop other rows."""
    log, copy = filled(client, "first", 100), client.create_log("first-copy")
    assert job(*run("first", cluster, tmp_path)) == 0
    source = tmp_path / "lake"
    replay = ("replay", "first-copy", "--server", cluster.servers, "--source", source)
    assert job(*replay) == 0
    remove_the_end(source)
    assert job(*replay) == 0, "the numbers are known"
    remove_the_end(source)
    log.delete_key(b"k03")
    assert job(*run("first", cluster, tmp_path)) == 0
    assert job(*replay) == 1
    assert "removal 1 of the export has changed the manifest" in capfd.readouterr().err
    assert len(entries(copy)) == 100


@pytest.mark.by_hand
def test_a_run_with_removals_that_is_killed_is_made_whole_by_the_next(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Killed while the files of a removal are written, after it was published, and around the
    commits of the table. The table never loses an entry that the log shows."""
    log, out = filled(client, "killed", 2_000), tmp_path / "lake"
    assert job(*run("killed", cluster, tmp_path)) == 0

    def removals() -> int:
        return len(list((out / "removals").glob("0*.json"))) if out.exists() else 0

    def rewriting() -> int:
        return sum("removal-" in path.name for path in attempts(out))

    def deleted() -> int:
        return len(list((out / "removals").glob("*.done")))

    for turn in range(6):
        log.delete_key(b"k%02d" % (turn + 5))
        append(log, 2_000 + 100 * turn, 2_100 + 100 * turn)
        if turn % 2:
            client.admin.split("killed", at=b"k%02d" % (30 + turn))
        count = (rewriting, removals, deleted)[turn % 3]
        before = count()
        running = started(*run("killed", cluster, tmp_path, "--keep-files", "0s"),
                          "--master", "local[1]")  # fmt: skip
        killed = killed_when(running, lambda: count() > before, 600)  # noqa: B023
        assert killed or turn % 3 == 2
        gone = set(table("killed", tmp_path))
        kept = set(entries(log))
        assert {row for row in kept if int(row[2] or b"0") < 2_000} <= gone
    assert job(*run("killed", cluster, tmp_path, "--keep-files", "0s")) == 0
    assert table("killed", tmp_path) == lake(spark, tmp_path) == entries(log)
    assert keys_in_files(tmp_path) == {key for key, _, _ in entries(log)}
