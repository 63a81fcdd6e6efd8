"""Each job on a server of Spark Connect: a JVM of its own, while the job itself has no Java."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from spark_connect import connect_server
from spark_logs import append, entries, filled, histories

import lognode
from lognode import testing

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
Cluster = testing.LocalCluster
TOTAL = """
def total(key, history):
    return b"%d" % len(history)
"""


@pytest.fixture(scope="module")
def server(java: None, module_path: Path) -> Iterator[str]:
    with connect_server(module_path / "connect") as made:
        yield made


def job(*arguments: object) -> tuple[int, str, str]:
    """What a job answers that has neither Java nor a Spark of its own: code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "lognode.client.spark.jobs", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, check=False, cwd="/",
        env={**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def done(*arguments: object) -> str:
    """What a job printed that succeeded."""
    code, said, errors = job(*arguments)
    assert code == 0, said + errors
    return said + errors


def properties(tmp_path: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def run(name: str, cluster: Cluster, server: str, tmp_path: Path) -> list[object]:
    """An export with everything: typed columns, removals, and a table."""
    file = tmp_path / "schema.json"
    fields = {"n": {"type": "integer"}}
    file.write_text(json.dumps({"type": "object", "properties": fields, "required": ["n"]}))
    catalog = [each for pair in properties(tmp_path).items()
               for each in ("--catalog-property", "=".join(pair))]  # fmt: skip
    return ["export", name, "--server", cluster.servers, "--remote", server, "--out",
            tmp_path / "lake", "--schema", file, "--removals", "--keep-files", "0s",
            "--iceberg", f"lake.{name}", *catalog]  # fmt: skip


def table(name: str, tmp_path: Path, *columns: str) -> list[tuple[Any, ...]]:
    with load_catalog("default", **properties(tmp_path)) as catalog:
        rows = catalog.load_table(f"lake.{name}").scan().to_arrow().to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def test_all_four_jobs_run_on_a_server_of_spark_connect(
    server: str, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    log = client.create_log("far", split_at=[b"k2"])
    for n in range(60):
        log.append(b"k%d" % (n % 4), b'{"n":%d}' % n)
    log.append(b"k3", b"no JSON")
    everything = run("far", cluster, server, tmp_path)
    said = done(*everything)
    assert "manifest 1: 61 entries" in said
    assert "1 entries do not fit the schema" in said
    assert table("far_rejected", tmp_path, "key", "value") == [(b"k3", b"no JSON")]
    log.delete_key(b"k1")
    log.append(b"k2", b'{"n":100}')
    said = done(*everything)
    assert "removal 1: 15 entries" in said
    assert "replaced files are deleted" in said
    expected = [
        (key, seq, value, json.loads(value or b"")["n"])
        for key, seq, value in entries(log)
        if value != b"no JSON"
    ]
    assert table("far", tmp_path, "key", "seq", "value", "n") == expected
    at = ("--server", cluster.servers, "--remote", server)
    copy = client.create_log("far-copy")
    assert "manifest 2: 1 entries" in done("replay", "far-copy", *at, "--source", tmp_path / "lake")
    assert histories(copy) == histories(log)
    assert "log 'far-copy' has manifest 2 already" in done(
        "replay", "far-copy", *at, "--source", tmp_path / "lake"
    )
    said = done("aggregate", "far", *at, "--out", tmp_path / "keys", "--top", "1")
    assert said.splitlines()[1].split()[:2] == ["k2", "16"]
    assert "3 keys, 47 entries" in said
    assert list((tmp_path / "keys").glob("*.parquet"))
    (tmp_path / "folds.py").write_text(TOTAL)
    fold = ("fold", "far", *at, "--function", f"{tmp_path}/folds.py:total")
    assert "3 keys have a new logical snapshot" in done(*fold)
    folded = {key: values[-1] for key, values in histories(log).items()}
    assert folded == {b"k0": b"15", b"k2": b"16", b"k3": b"16"}
    assert "0 keys have a new logical snapshot" in done(*fold)


def test_a_job_that_cannot_run_on_the_server_prints_one_line(
    server: str, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    filled(client, "refused", 50)
    at = ("refused", "--server", cluster.servers)
    lake = ("--out", tmp_path / "lake")
    for code, told, arguments in (
        (2, "--remote and --master are given", ("--remote", server, "--master", "local", *lake)),
        (2, "'h9:15002' is not the address of a server", ("--remote", "h9:15002", *lake)),
        (1, "no server of Spark Connect answers at sc://127.0.0.1:1:",
         ("--remote", "sc://127.0.0.1:1/;token=secret", *lake)),
        (2, "hdfs://h/lake is not a directory of this machine",
         ("--remote", server, "--out", "hdfs://h/lake")),
    ):  # fmt: skip
        found, said, errors = job("export", *at, *arguments)
        assert (found, said, errors.count("\n")) == (code, "", 1), errors
        assert errors.startswith("lognode: ")
        assert told in errors
        assert "secret" not in errors
    assert not (tmp_path / "lake").exists()


@pytest.mark.by_hand
def test_a_directory_that_the_server_does_not_share_is_refused(
    java: None, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """The server is in a mount namespace of its own, with another directory in the same place."""
    filled(client, "apart", 50)
    lake = tmp_path / "lake"
    lake.mkdir()
    mounted = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(lake))
    with connect_server(tmp_path / "connect", before=mounted) as server:
        for arguments in (
            ("export", "apart", "--out", lake), ("aggregate", "apart", "--out", lake),
        ):  # fmt: skip
            code, said, errors = job(*arguments, "--server", cluster.servers, "--remote", server)
            assert (code, said) == (2, ""), errors
            assert "the Spark server does not see the files of this machine" in errors
    assert list(lake.iterdir()) == []


@pytest.mark.by_hand
def test_an_export_goes_on_whether_spark_is_near_or_far(
    server: str, cluster: Cluster, client: lognode.Client, tmp_path: Path
) -> None:
    """Files of one kind of run are taken, listed and deleted by the other, with their checksums."""
    log = filled(client, "both", 100)
    everything = run("both", cluster, server, tmp_path)
    at = everything.index("--remote")
    near = [*everything[:at], *everything[at + 2 :]]
    java = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    for turn, arguments in enumerate((everything, near, everything, near)):
        append(log, 100 + 50 * turn, 150 + 50 * turn)
        log.delete_key(b"k0%d" % turn)
        ended = subprocess.run(
            [sys.executable, "-m", "lognode.client.spark.jobs", *map(str, arguments)],
            capture_output=True, text=True, timeout=300, check=False, cwd="/", env=java,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        found = [*table("both", tmp_path, "key", "seq", "value"),
                 *table("both_rejected", tmp_path, "key", "seq", "value")]  # fmt: skip
        assert sorted(found) == entries(log)
