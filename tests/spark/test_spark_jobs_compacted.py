"""What compaction and logical snapshots removed from a log leaves its export and its table."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession
from spark_jobs import job
from spark_logs import Row, entries

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[Cluster]:
    """One node, which builds files of some hundred KiB."""
    with testing.cluster(module_path, 1, flags=("--wal-file-bytes", "65536")) as made:
        testing.wait_healthy(made)
        yield made


def exported(log: lognode.Log, cluster: Cluster, place: Path) -> None:
    """One run of the export with removals, whose replaced files are deleted at once."""
    catalog = [each for pair in properties(place).items()
               for each in ("--catalog-property", "=".join(pair))]  # fmt: skip
    place.mkdir(exist_ok=True)
    assert job("export", log.name, "--server", cluster.servers, "--out", place / "lake",
               "--iceberg", "lake.kept", "--removals", "--keep-files", "0s",
               *catalog) == 0  # fmt: skip


def properties(place: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}


def tables(place: Path) -> list[list[Row]]:
    """The rows of each snapshot that the table has, the current one last."""
    with load_catalog("default", **properties(place)) as catalog:
        table: Any = catalog.load_table("lake.kept")
        found = [
            table.scan(snapshot_id=each.snapshot_id).to_arrow().to_pylist()
            for each in table.snapshots()
        ]
    return [sorted((row["key"], row["seq"], row["value"]) for row in rows) for rows in found]


def in_files(place: Path) -> set[bytes | None]:
    """The values in all files that are there, of whatever snapshot."""
    return {
        value for file in (place / "lake").rglob("*.parquet")
        for value in pq.ParquetFile(file).read(["value"]).column("value").to_pylist()
    }  # fmt: skip


def shows(client: lognode.Client, log: lognode.Log, keys: dict[bytes, int]) -> None:
    """Wait until the log shows this many entries of each key. What is in memory becomes files, from
    which policies remove, only as more comes to the node."""
    other = client.log("filler")

    def is_so() -> bool:
        other.append_many([(b"k%d" % at, os.urandom(8_000)) for at in range(8)])
        return {key: sum(1 for _ in log.scan(key)) for key in keys} == keys

    testing.eventually(is_so, what="policies remove entries", timeout_s=120)


def test_S6_entries_that_compaction_and_snapshots_removed_leave_the_table_and_the_files(
    spark: SparkSession, cluster: Cluster, client: lognode.Client, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Compaction leaves the last entry of a key, and no tombstone. Logical snapshots leave the
    entries from the newest snapshot on. A key that was removed whole begins again above."""
    client.create_log("filler", replicas=1)
    compact = client.create_log("compact", replicas=1, cleanup="compact", delete_retention_ms=1)
    folded = client.create_log("folded", replicas=1, snapshot_delay_ms=1)
    for log in (compact, folded):
        for key, value in ((b"a", b"a1"), (b"b", b"b1"), (b"a", b"a2"), (b"gone", b"g1")):
            log.append(key, value)
    before = {log.name: entries(log) for log in (compact, folded)}
    for log in (compact, folded):
        exported(log, cluster, tmp_path / log.name)
        assert tables(tmp_path / log.name)[-1] == before[log.name]
    compact.append(b"gone", None)
    compact.append(b"a", b"a3")
    folded.append(b"a", b"a1+a2", snapshot=True)
    folded.append(b"a", b"a3")
    folded.append(b"gone", b"", snapshot=True)
    shows(client, compact, {b"a": 1, b"b": 1, b"gone": 0})
    shows(client, folded, {b"a": 2, b"b": 1, b"gone": 1})
    compact.append(b"gone", b"again")
    capfd.readouterr()
    for log, left in (
        (compact, {b"a3", b"b1", b"again"}), (folded, {b"a1+a2", b"a3", b"b1", b""}),
    ):  # fmt: skip
        exported(log, cluster, tmp_path / log.name)
        found = tables(tmp_path / log.name)
        assert found[-1] == entries(log)
        assert {value for _, _, value in found[-1]} == left
        assert all({value for _, _, value in each} <= left for each in found)
        assert in_files(tmp_path / log.name) == left
    assert capfd.readouterr().out.count("removal 1: 3 entries") == 2
