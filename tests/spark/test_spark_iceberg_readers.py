"""The table of an export, read by PyIceberg, by DuckDB and by Spark's own Iceberg runtime: the same
rows as the log, after each kind of change.

DuckDB comes from PyPI and the runtime from Maven when the test runs. LOGNODE_ICEBERG_ENTRIES sets
the size of the large test.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from iceberg_rows import Hash, Readers, of_log, of_pyiceberg
from pyiceberg.catalog import load_catalog
from spark_jobs import attempts, killed_when, started

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.by_hand]
Cluster = testing.LocalCluster
ENTRIES = int(os.environ.get("LOGNODE_ICEBERG_ENTRIES", "20000"))
_KEYS = 5_000
_BATCH = 5_000
_STEP_S = ENTRIES / 2_500_000


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[Cluster]:
    with testing.cluster(module_path, 1) as made:
        testing.wait_healthy(made)
        yield made


@pytest.fixture(scope="module")
def readers(module_path: Path) -> Readers:
    return Readers(module_path / "readers")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Prints what was measured."""

    def tell(what: str, since: float) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{what}: {time.monotonic() - since:.1f} s")

    return tell


def properties(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def run(name: str, cluster: Cluster, tmp_path: Path) -> list[object]:
    catalog = [each for pair in properties(tmp_path).items()
               for each in ("--catalog-property", "=".join(pair))]  # fmt: skip
    return ["export", name, "--server", cluster.servers, "--out", tmp_path / "lake", "--removals",
            "--keep-files", "0s", "--iceberg", f"lake.{name}", "--master", "local[2]",
            *catalog]  # fmt: skip


def exported(name: str, cluster: Cluster, tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    code = started(*run(name, cluster, tmp_path), said=said).wait(3_600)
    assert code == 0, said.read_text()


def read(name: str, tmp_path: Path, readers: Readers, told: Any = None) -> Hash:
    """What all three readers see, which is the same. `told` prints the seconds of each reader."""
    found = []
    with load_catalog("default", **properties(tmp_path)) as catalog:
        table = catalog.load_table(f"lake.{name}")
        for reads in (of_pyiceberg, readers.spark, readers.duckdb):
            since = time.monotonic()
            found.append(reads(table))
            if told is not None:
                told(f"the table by {reads.__name__}", since)
    assert found == found[:1] * 3
    return found[0]


def test_three_readers_see_every_column_of_the_log(
    cluster: Cluster, readers: Readers, tmp_path: Path
) -> None:
    with lognode.Client(cluster.servers, timeout=60) as client:
        log = client.create_log("read", replicas=1, split_at=[b"m"])
        for key, value, headers, marked in (
            (b"a", b"1", None, False), (b"a", None, {b"z": b"1", b"a": b""}, False),
            (b"a", b"", None, True), (b"z", b"\xff", {b"h": b"\0"}, False), (b"q", b"x", {}, False),
        ):  # fmt: skip
            log.append(key, value, headers=headers, snapshot=marked)
        exported("read", cluster, tmp_path)
        assert read("read", tmp_path, readers) == of_log(log)
        log.delete_key(b"q")
        log.append(b"b", b"new")
        exported("read", cluster, tmp_path)
        assert read("read", tmp_path, readers) == of_log(log)
        assert of_log(log)[0] == 5


def test_a_large_export_that_is_killed_and_repeated_is_the_log_for_three_readers(
    cluster: Cluster, readers: Readers, tmp_path: Path, told: Any
) -> None:
    """Killed five times in the middle; rerun adds nothing; deletes reach the table."""
    lake = tmp_path / "lake"
    with lognode.Client(cluster.servers, timeout=120) as client:
        log = client.create_log("large", replicas=1, split_at=[b"%06d" % (_KEYS // 2)])
        since = time.monotonic()
        for first in range(0, ENTRIES, _BATCH):
            log.append_many([
                (b"%06d" % (at * 7_919 % _KEYS), b'{"n":%d}' % at)
                for at in range(first, min(ENTRIES, first + _BATCH))
            ])  # fmt: skip
        told(f"{ENTRIES} appends", since)
        for turn in range(5):
            before = len(attempts(lake))
            said = tmp_path / f"said-{turn}.txt"
            running = started(*run("large", cluster, tmp_path), said=said)
            began: list[float] = []

            def is_writing(turn: int = turn, before: int = before) -> bool:
                if len(attempts(lake)) > before and not began:  # noqa: B023
                    began.append(time.monotonic())  # noqa: B023
                return bool(began) and time.monotonic() > began[0] + turn * _STEP_S  # noqa: B023

            assert killed_when(running, is_writing, 600), said.read_text()
        since = time.monotonic()
        exported("large", cluster, tmp_path)
        told("export", since)
        since = time.monotonic()
        whole = of_log(log)
        told("hash of the log", since)
        assert read("large", tmp_path, readers, told) == whole
        assert whole[0] == ENTRIES
        files = sorted(lake.rglob("*.parquet"))
        since = time.monotonic()
        exported("large", cluster, tmp_path)
        told("rerun", since)
        assert sorted(lake.rglob("*.parquet")) == files
        for at in range(0, _KEYS, 500):
            log.delete_key(b"%06d" % at)
        log.trim(b"%06d" % 1, before=1 << 40)
        since = time.monotonic()
        exported("large", cluster, tmp_path)
        told("removal of 11 keys", since)
        since = time.monotonic()
        left = of_log(log)
        told("hash of the log after the removal", since)
        assert left[0] < whole[0]
        assert read("large", tmp_path, readers, told) == left
    shutil.rmtree(lake)
