"""Backups of a real cluster, restored into another one: every entry keeps its seq and timestamp.

Each test runs with a directory and with a real S3 server.
"""

import contextlib
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from s3_servers import KEYS, S3Server, s3_server, spoiling_proxy

import lognode
from lognode import testing
from lognode.client.cli.main import run as run_verb
from lognode.client.objects import places
from lognode.client.objects.store import ObjectStore
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
buckets = (f"backups-{at}" for at in itertools.count())


@dataclass(frozen=True)
class Place:
    """A store of backups: the arguments of the verbs, and the objects without the verbs."""

    arguments: tuple[str, ...]
    objects: ObjectStore

    def names(self, folder: str) -> list[str]:
        return [listed.name for listed in self.objects.objects(folder)]


@pytest.fixture(
    scope="module", params=["moto", pytest.param("versitygw", marks=pytest.mark.by_hand)]
)
def server(request: pytest.FixtureRequest, module_path: Path) -> Iterator[S3Server]:
    with s3_server(module_path, request.param) as found:
        yield found


@pytest.fixture
def s3_place(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    where = f"s3://{server.bucket(next(buckets))}/some/prefix"
    objects = places.opened(where, endpoint=server.endpoint)
    return Place((where, "--endpoint", server.endpoint, "--store-timeout", "20s"), objects)


@pytest.fixture(params=["directory", "s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, server: S3Server, s3_place: Place
) -> Place:
    if request.param == "s3":
        return s3_place
    if server.kind == "versitygw":
        pytest.skip("a directory needs no server")
    where = str(tmp_path / "store")
    return Place((where,), places.opened(where))


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

    def call(action: str, *arguments: str, code: int = 0, verb: Sequence[str] = ()) -> Any:
        words = verb or ("backup", action)
        got = run_verb([*words, *arguments, "--format", "json"])
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
        both = {"cleanup": "compact,delete", "retention_ms": 10**12}
        client.create_log("empty", replicas=1, **both)


def entries(cluster: LocalCluster, log: str) -> list[Any]:
    with lognode.Client(cluster.servers) as client:
        return sorted(client.log(log).snapshot().read())


def test_S6_a_restore_keeps_seqs_times_headers_and_policies(
    source: LocalCluster, target: LocalCluster, store: Place, run: Any
) -> None:
    made = run("create", *store.arguments, "--server", source.servers)
    assert made["logs"] == 3
    assert made["entries"] > 7_000
    assert [row["log"] for row in run("list", *store.arguments)] == ["empty", "joined", "plain"]
    checked = run("verify", *store.arguments)
    assert checked["entries"] == made["entries"]
    restored = run("restore", *store.arguments, "--server", target.servers)
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
        policy = other.log("empty").describe()["policy"]
        assert (policy["cleanup"], policy["retention_ms"]) == ("compact,delete", 10**12)
    before = entries(target, "plain")
    for node in target.nodes:
        node.kill()
        node.start()
        node.wait_ready()
    assert entries(target, "plain") == before
    error = run("restore", *store.arguments, "--server", target.servers, code=5)
    assert "Delete the log" in error or "Restore into a new log" in error


def test_a_later_backup_stores_only_what_changed_and_no_deleted_entry(
    source: LocalCluster, target: LocalCluster, store: Place, run: Any
) -> None:
    where = ("--server", source.servers)
    with lognode.Client(source.servers) as client:
        log = client.create_log("grows", replicas=1)
        log.append_many([(f"k{at % 50}", b"v" * 200) for at in range(30_000)])
        first = run("create", *store.arguments, "--log", "grows", *where)
        again = run("create", *store.arguments, "--log", "grows", *where)
        assert first["new_objects"] == first["objects"] > 1
        assert (again["new_objects"], again["new_bytes"]) == (0, 0)
        log.append("k1", b"more")
        log.delete_key("k7")
        time_ms = log.append("k2", b"in time").timestamp_ms
        testing.eventually(lambda: log.append("k3", b"late").timestamp_ms > time_ms)
    run("create", *store.arguments, "--log", "grows", *where)
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    at = ("--at", moment, "--server", target.servers)
    restored = run("restore", *store.arguments, *at, verb=["restore"])
    assert restored["left_out"] >= 1
    wanted = [entry for entry in entries(source, "grows") if entry.timestamp_ms <= time_ms]
    assert entries(target, "grows") == wanted
    assert all(entry.key != b"k7" for entry in wanted)
    with lognode.Client(source.servers) as client:
        client.delete_log("grows")


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_flipped_bit_is_refused_by_name(
    source: LocalCluster, target: LocalCluster, store: Place, tmp_path: Path, run: Any,
    encrypted: bool,
) -> None:  # fmt: skip
    key_file, objects = tmp_path / "key", store.objects
    key_file.write_bytes(b"a long secret\n")
    where = (*store.arguments, *(("--key-file", str(key_file)) if encrypted else ()))
    run("create", *where, "--log", "joined", "--server", source.servers)
    (manifest,) = store.names("backups")
    names = store.names("objects")
    sound = {name: objects.get(name, 1 << 24) or b"" for name in (*names, manifest)}
    if encrypted:
        assert not any(b"right" in content for content in sound.values())
        assert "is encrypted" in run("verify", *store.arguments, code=1)
        key_file.write_bytes(b"another secret")
        assert "does not open" in run("verify", *where, code=1)
        key_file.write_bytes(b"a long secret\n")
    for name, content in sound.items():
        file = name.rpartition("/")[2]
        for at in (0, len(content) // 2, len(content) - 1):
            bad = content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]
            objects.put(name, bad, replace=True)
            assert file in run("verify", *where, code=1)
            assert file in run("restore", *where, "--server", target.servers, code=1)
        objects.delete(name)
        if name != manifest:
            assert file in run("verify", *where, code=1)
        objects.put(name, content)
    run("restore", *where, "--server", target.servers)  # continues what broke off
    assert entries(target, "joined") == entries(source, "joined")


def test_logs_that_a_cluster_writes_itself_are_not_restored(
    target: LocalCluster, tmp_path: Path, run: Any
) -> None:
    store = str(tmp_path / "store")
    with testing.cluster(tmp_path, 1, auth=True) as audited:
        with lognode.Client(audited.servers) as client:
            client.create_log("orders").append("anna", b"two shirts")
            testing.eventually(lambda: "_audit" in [log["name"] for log in client.logs()])
            testing.eventually(lambda: list(client.log("_audit").keys()))
        assert run("create", store, "--server", audited.servers)["logs"] == 2
    assert [row["log"] for row in run("list", store)] == ["_audit", "orders"]
    restored = run("restore", store, "--server", target.servers)
    assert (restored["logs"], restored["entries"]) == (1, 1)
    assert restored["own_logs"] == ["_audit"]
    assert len(entries(target, "orders")) == 1
    error = run("restore", store, "--log", "_audit", "--server", target.servers, code=1)
    assert "log '_audit' is written by the cluster alone" in error


@contextlib.contextmanager
def killed(*arguments: str) -> Iterator[None]:
    """Run an action of `lognode backup` in a process, and kill the process at the end."""
    program = Path(sys.executable).with_name("lognode")
    with subprocess.Popen([program, "backup", *arguments], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            assert process.poll() is None, "the action ended too early"
            process.kill()


def test_a_create_that_was_killed_is_made_again_without_its_objects(
    source: LocalCluster, store: Place, run: Any
) -> None:
    where = (*store.arguments, "--log", "plain", "--log", "joined", "--server", source.servers)
    with killed("create", *where, "--limit-rate", "40KiB/s"):
        testing.eventually(lambda: len(store.names("objects")) > 1)
    there = len(store.names("objects"))
    assert store.names("backups") == []
    assert run("list", *store.arguments) == []
    assert "no whole backup" in run("verify", *store.arguments, code=4)
    assert len(store.names("creating")) == 1
    made = run("create", *where)
    assert made["objects"] - there <= made["new_objects"] < made["objects"]
    assert store.names("creating") == [], "the process of the claim has ended"
    assert run("verify", *store.arguments)["entries"] == made["entries"]


def test_a_create_that_gets_sigterm_gives_its_claim_back(
    source: LocalCluster, store: Place
) -> None:
    program = Path(sys.executable).with_name("lognode")
    where = (*store.arguments, "--log", "plain", "--server", source.servers)
    with subprocess.Popen(
        [program, "backup", "create", *where, "--limit-rate", "40KiB/s"],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        testing.eventually(lambda: len(store.names("objects")) > 1)
        assert len(store.names("creating")) == 1
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 143, said
    assert said == "ended by SIGTERM; the next `create` uses the objects that are stored\n"
    assert store.names("creating") == []
    assert store.names("backups") == []


def test_a_restore_that_was_killed_continues(
    source: LocalCluster, target: LocalCluster, store: Place, run: Any
) -> None:
    run("create", *store.arguments, "--log", "plain", "--server", source.servers)
    slow = ("--limit-rate", "50KiB/s", "--server", target.servers)

    def has_keys() -> bool:
        with lognode.Client(target.servers) as client:
            return bool(
                [log for log in client.logs() if log["name"] == "plain"]
                and client.log("plain").keys()
            )

    with killed("restore", *store.arguments, *slow):
        testing.eventually(has_keys)
    run("restore", *store.arguments, "--server", target.servers)
    assert entries(target, "plain") == entries(source, "plain")


def test_the_rate_of_stored_bytes_is_limited(source: LocalCluster, store: Place, run: Any) -> None:
    begin = time.monotonic()
    made = run(
        "create", *store.arguments, "--log", "plain", "--limit-rate", "600KiB/s",
        "--server", source.servers,
    )  # fmt: skip
    assert time.monotonic() - begin >= made["new_bytes"] / (600 << 10) >= 0.5
    begin = time.monotonic()
    run("verify", *store.arguments, "--limit-rate", "600KiB/s")
    assert time.monotonic() - begin >= made["new_bytes"] / (600 << 10)


def test_a_store_of_more_than_a_page_of_backups_is_listed(
    source: LocalCluster, s3_place: Place, run: Any
) -> None:
    """A page of S3 has 1,000 objects."""
    store = s3_place
    run("create", *store.arguments, "--log", "empty", "--server", source.servers)
    (name,) = store.names("backups")
    manifest = store.objects.get(name, 1 << 20)
    assert manifest is not None
    wanted = [f"20200101T{at // 60:02}{at % 60:02}00000Z" for at in range(1_010)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda backup: store.objects.put(f"backups/{backup}", manifest), wanted))
    assert store.names("backups") == [*(f"backups/{each}" for each in wanted), name]
    assert run("verify", *store.arguments)["backup"] == name.rpartition("/")[2]


def test_faults_of_a_store_that_pass_spoil_no_backup(
    source: LocalCluster, target: LocalCluster, server: S3Server, s3_place: Place, run: Any
) -> None:
    """Two of five requests fail, before or after they reach the store, or with half an answer."""
    kinds = itertools.cycle(("500", None, "lost", None, "cut", None, None, "503", None, None))
    with spoiling_proxy(server) as faults:
        faults.choose = lambda asked: next(kinds)
        where = (s3_place.arguments[0], "--endpoint", faults.endpoint)
        logs = ("--log", "joined", "--log", "plain")
        made = run("create", *where, *logs, "--server", source.servers)
        assert made["new_objects"] == made["objects"] > 5
        assert run("verify", *where)["entries"] == made["entries"]
        run("restore", *where, "--server", target.servers)
        assert len(faults.asked) > 3 * made["objects"]
    for log in ("joined", "plain"):
        assert entries(target, log) == entries(source, log)
    assert run("verify", *s3_place.arguments)["entries"] == made["entries"]


def three_backups(source: LocalCluster, where: Sequence[str], run: Any) -> list[str]:
    """Make three backups of a log, each with entries that the others lack."""
    made = []
    with lognode.Client(source.servers) as client:
        log = client.create_log("changes", replicas=1, exist_ok=True)
        for _ in range(3):
            for at in range(50):
                log.delete_key(f"k{at}")
            log.append_many([(f"k{at % 50}", random.randbytes(60)) for at in range(9_000)])
            made.append(run("create", *where, "--log", "changes", "--server", source.servers))
        client.delete_log("changes")
    return [str(each["backup"]) for each in made]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_backups_are_removed_with_the_objects_that_no_other_backup_has(
    source: LocalCluster, store: Place, tmp_path: Path, run: Any, encrypted: bool
) -> None:
    key_file = tmp_path / "key"
    key_file.write_bytes(b"a long secret")
    where = (*store.arguments, *(("--key-file", str(key_file)) if encrypted else ()))
    first, second, third = three_backups(source, where, run)
    plain = ("--log", "plain", "--server", source.servers)
    fourth = run("create", *where, *plain)["backup"]

    def there() -> dict[str, int]:
        return {listed.name: listed.size for listed in store.objects.objects()}

    before = there()
    asked = run("delete", *where, first, "--dry-run")
    assert there() == before
    assert "Give --yes" in run("delete", *where, first, code=2)
    assert there() == before
    told = run("delete", *where, first, "--yes")
    gone = {name for name in before.keys() - there().keys() if name.startswith("objects/")}
    assert told == asked
    assert (told["removed"], told["left"], told["creating"]) == ([first], 3, [])
    assert told["objects"] == len(gone) > 0
    assert told["freed_bytes"] == sum(before[name] for name in gone)
    told = run("prune", *where, "--keep", "1", "--yes")
    assert (told["removed"], told["left"]) == ([second], 2)
    for backup in (third, fourth):
        assert run("verify", *where, "--backup", backup)["entries"] > 0
    assert run("create", *where, *plain)["new_objects"] == 0, "a backup names these objects"
    assert run("prune", *where, "--keep-within", "30d", "--yes")["objects"] == 0


def test_a_removal_that_was_killed_is_finished_by_the_next(
    source: LocalCluster, server: S3Server, s3_place: Place, run: Any
) -> None:
    first, _, third = three_backups(source, s3_place.arguments, run)
    before = len(s3_place.names("objects"))
    with spoiling_proxy(server) as faults:
        faults.choose = lambda asked: (
            "silent" if len([each for each in faults.asked if each.method == "DELETE"]) > 3
            else None
        )  # fmt: skip
        through = (s3_place.arguments[0], "--endpoint", faults.endpoint)
        with killed("prune", *through, "--keep", "1", "--yes"):
            testing.eventually(
                lambda: len([each for each in faults.asked if each.method == "DELETE"]) > 3
            )
    assert s3_place.names("backups") == [f"backups/{third}"]
    left = len(s3_place.names("objects"))
    assert left > 0
    assert "no backup '" in run("delete", *s3_place.arguments, first, "--yes", code=4)
    told = run("prune", *s3_place.arguments, "--keep", "1", "--yes")
    assert told["removed"] == []
    assert 0 < told["objects"] < before
    assert len(s3_place.names("objects")) == left - told["objects"]
    assert run("verify", *s3_place.arguments)["entries"] > 0


def test_a_create_that_runs_keeps_the_objects_of_removed_backups(
    source: LocalCluster, store: Place, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = three_backups(source, store.arguments, run)
    objects = store.names("objects")
    slow = ("--log", "plain", "--server", source.servers, "--limit-rate", "20KiB/s")
    with killed("create", *store.arguments, *slow):
        testing.eventually(lambda: len(store.names("objects")) > len(objects))
        words = ["backup", "delete", *store.arguments, first, "--yes", "--format", "json"]
        assert run_verb(words) == 0
        out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["removed"], told["objects"]) == ([first], 0)
    assert "no object is removed while `create` makes backup" in err
    assert f"backups/{first}" not in store.names("backups")
    assert set(store.names("objects")) > set(objects)


def test_removals_refuse_what_makes_no_sense(
    source: LocalCluster, tmp_path: Path, run: Any
) -> None:
    store = str(tmp_path / "store")
    assert "has no backups; `lognode backup create`" in run("prune", store, "--keep", "1", code=4)
    assert "has no backups; `lognode backup create`" in run("delete", store, "x", code=4)
    made = run("create", store, "--log", "empty", "--server", source.servers)["backup"]
    assert "did you mean" in run("delete", store, made.replace("Z", "Y"), code=4)
    assert "no backup would stay" in run("delete", store, made, "--yes", code=1)
    assert "'0' is below 1; keep 1 backup or more" in run("prune", store, "--keep", "0", code=2)
    assert "say which backups stay" in run("prune", store, code=2)
    assert run("list", store)[0]["backup"] == made


def test_errors_of_a_store_say_what_to_do(
    server: S3Server, s3_place: Place, tmp_path: Path, run: Any
) -> None:
    where = s3_place.arguments[0]
    away = ("--endpoint", "http://127.0.0.1:9", "--store-timeout", "1s")
    error = run("list", where, *away, code=1)
    assert "127.0.0.1:9 gave no useful answer" in error
    assert "Connection refused. Check the endpoint" in error
    assert "--server" not in error
    error = run("list", "s3://no-such-bucket", "--endpoint", server.endpoint, code=4)
    assert "no such bucket" in error
    assert "has no backups; `lognode backup create`" in run("list", *s3_place.arguments, code=4)
    assert "is not a store" in run("list", "ftp://host/x", code=1)
    assert "the flag is for s3://" in run("list", str(tmp_path), *away[:2], code=1)
    assert "below a second" in run("list", where, "--store-timeout", "10ms", code=2)
    s3_place.objects.put("other/file", b"x")
    error = run("create", *s3_place.arguments, code=1)
    assert "has other files and no backups" in error
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        f"from lognode.client.cli.main import run\nsys.exit(run(['backup', 'list', '{where}']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Install lognode[s3]" in done.stderr
