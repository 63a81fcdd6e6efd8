"""Backups of a real cluster, restored into another one: every entry keeps its seq and timestamp."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing
from lognode.client.cli.main import run as run_verb
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def source(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path / "source", 1) as found:
        fill(found)
        yield found


@pytest.fixture(scope="module")
def shared_target(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path / "target", 1) as found:
        yield found


@pytest.fixture
def target(shared_target: LocalCluster) -> Iterator[LocalCluster]:
    """A cluster without logs."""
    yield shared_target
    with lognode.Client(shared_target.servers) as client:
        for log in client.logs():
            client.delete_log(log["name"])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run an action of `lognode backup`; return its JSON, or the error of another exit code."""

    def call(action: str, *arguments: str, code: int = 0) -> Any:
        got = run_verb(["backup", action, *arguments, "--format", "json"])
        out, err = capsys.readouterr()
        assert got == code, f"{action} {arguments}: exit code {got}, not {code}: {err}"
        return json.loads(out) if code == 0 else err

    return call


def fill(cluster: LocalCluster) -> None:
    """Two logs, with everything that an entry may have; one was split, merged and compacted."""
    rng = random.Random(5)
    with lognode.Client(cluster.servers) as client:
        plain = client.create_log("plain", split_at=["k5"], replicas=1, retention_ms=10**12)
        for _ in range(20):
            plain.append_many(
                [(f"k{rng.randrange(10)}", rng.randbytes(60), {"h": b"1"}) for _ in range(400)]
            )
        plain.append("k1", None)
        plain.append("k2", b"all", snapshot=True)
        plain.delete_key("k3")
        joined = client.create_log("joined", split_at=["m"], replicas=1)
        for at in range(300):
            joined.append_many([(f"a{at % 7}", b"left%d" % at), (f"z{at % 7}", b"right%d" % at)])
        client.admin.merge("joined", at="m")
        joined.append_many([("a1", b"after"), ("z1", b"after")])
        client.admin.split("joined", at="z3")
        joined.append_many([("a1", b"end"), ("z6", b"end")])
        client.create_log("empty", replicas=1)


def entries(cluster: LocalCluster, log: str) -> list[Any]:
    with lognode.Client(cluster.servers) as client:
        return sorted(client.log(log).snapshot().read())


def test_S6_a_restore_keeps_seqs_times_headers_and_policies(
    source: LocalCluster, target: LocalCluster, tmp_path: Path, run: Any
) -> None:
    store = str(tmp_path / "store")
    made = run("create", store, "--server", source.servers)
    assert made["logs"] == 3
    assert made["entries"] > 7_000
    assert [row["log"] for row in run("list", store)] == ["empty", "joined", "plain"]
    checked = run("verify", store)
    assert checked["entries"] == made["entries"]
    restored = run("restore", store, "--server", target.servers)
    assert restored["entries"] == made["entries"]
    for log in ("plain", "joined", "empty"):
        assert entries(target, log) == entries(source, log)
    with lognode.Client(source.servers) as one, lognode.Client(target.servers) as other:
        for log, keys in (("plain", ("k1", "k7")), ("joined", ("a1", "z6"))):
            assert other.log(log).describe()["policy"] == one.log(log).describe()["policy"]
            for key in keys:  # one of each range: seqs go on where the snapshot ended
                was, now = one.log(log).append(key, b"x"), other.log(log).append(key, b"x")
                assert now.seq == was.seq, (log, key)
        assert other.log("plain").count("k3") == 0
    before = entries(target, "plain")
    for node in target.nodes:
        node.kill()
        node.start()
        node.wait_ready()
    assert entries(target, "plain") == before
    error = run("restore", store, "--server", target.servers, code=5)
    assert "Delete the log" in error or "Restore into a new log" in error


def test_a_later_backup_stores_only_what_changed_and_no_deleted_entry(
    source: LocalCluster, target: LocalCluster, tmp_path: Path, run: Any
) -> None:
    store, where = str(tmp_path / "store"), ("--server", source.servers)
    with lognode.Client(source.servers) as client:
        log = client.create_log("grows", replicas=1)
        log.append_many([(f"k{at % 50}", b"v" * 200) for at in range(30_000)])
        first = run("create", store, "--log", "grows", *where)
        again = run("create", store, "--log", "grows", *where)
        assert first["new_objects"] == first["objects"] > 1
        assert (again["new_objects"], again["new_bytes"]) == (0, 0)
        log.append("k1", b"more")
        log.delete_key("k7")
        time_ms = log.append("k2", b"in time").timestamp_ms
        testing.eventually(lambda: log.append("k3", b"late").timestamp_ms > time_ms)
    run("create", store, "--log", "grows", *where)
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    restored = run("restore", store, "--at", moment, "--server", target.servers)
    assert restored["left_out"] >= 1
    wanted = [entry for entry in entries(source, "grows") if entry.timestamp_ms <= time_ms]
    assert entries(target, "grows") == wanted
    assert all(entry.key != b"k7" for entry in wanted)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_flipped_bit_is_refused_by_name(
    source: LocalCluster, target: LocalCluster, tmp_path: Path, run: Any, encrypted: bool
) -> None:
    store, key_file = tmp_path / "store", tmp_path / "key"
    key_file.write_bytes(b"a long secret\n")
    key = ("--key-file", str(key_file)) if encrypted else ()
    run("create", str(store), "--log", "joined", *key, "--server", source.servers)
    objects = sorted(path for path in (store / "objects").rglob("*") if path.is_file())
    (manifest,) = (store / "backups").iterdir()
    if encrypted:
        assert not any(b"right" in path.read_bytes() for path in objects)
        assert "is encrypted" in run("verify", str(store), code=1)
        key_file.write_bytes(b"another secret")
        assert "does not open" in run("verify", str(store), *key, code=1)
        key_file.write_bytes(b"a long secret\n")
    for path in (*objects, manifest):
        sound = path.read_bytes()
        for at in (0, len(sound) // 2, len(sound) - 1):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 16]) + sound[at + 1 :])
            assert path.name in run("verify", str(store), *key, code=1)
            error = run("restore", str(store), *key, "--server", target.servers, code=1)
            assert path.name in error
        path.unlink()
        if path != manifest:
            assert path.name in run("verify", str(store), *key, code=1)
        path.write_bytes(sound)
    run("restore", str(store), *key, "--server", target.servers)  # continues what broke off
    assert entries(target, "joined") == entries(source, "joined")


def test_logs_that_a_cluster_writes_itself_are_not_restored(
    target: LocalCluster, tmp_path: Path, run: Any
) -> None:
    store = str(tmp_path / "store")
    with testing.cluster(tmp_path, 1, auth=True) as audited:
        with lognode.Client(audited.servers) as client:
            client.create_log("orders").append("anna", b"two shirts")
            testing.eventually(lambda: list(client.log("_audit").keys()))
        assert run("create", store, "--server", audited.servers)["logs"] == 2
    assert [row["log"] for row in run("list", store)] == ["_audit", "orders"]
    restored = run("restore", store, "--server", target.servers)
    assert (restored["logs"], restored["entries"]) == (1, 1)
    assert restored["own_logs"] == ["_audit"]
    assert len(entries(target, "orders")) == 1
    error = run("restore", store, "--log", "_audit", "--server", target.servers, code=1)
    assert "log '_audit' is written by the cluster alone" in error


def test_a_restore_that_was_killed_continues(
    source: LocalCluster, target: LocalCluster, tmp_path: Path, run: Any
) -> None:
    store = str(tmp_path / "store")
    run("create", store, "--log", "plain", "--server", source.servers)
    slow = ("backup", "restore", store, "--limit-rate", "50KiB/s", "--server", target.servers)
    program = Path(sys.executable).with_name("lognode")
    process = subprocess.Popen([program, *slow])

    def begun() -> bool:
        with lognode.Client(target.servers) as client:
            return bool(
                [log for log in client.logs() if log["name"] == "plain"]
                and client.log("plain").keys()
            )

    testing.eventually(begun)
    process.kill()
    process.wait()
    run("restore", store, "--server", target.servers)
    assert entries(target, "plain") == entries(source, "plain")
