"""`lognode serve-tier` beside a real cluster: reads are those of the cluster, or errors."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_wal import SMALL_WAL
from s3_servers import KEYS, Asked, Fault, S3Server, s3_server, spoiling_proxy
from served_tier import ServedTier, served
from tier_contents import Tier

import lognode
from lognode import testing
from lognode.client.protocol.errors import (
    CorruptData,
    LognodeError,
    LogNotFound,
    NotFound,
    Unauthorized,
    Unavailable,
)
from lognode.node.main import main as run_program
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
RNG = random.Random(1)
VALUES = [RNG.randbytes(400) for _ in range(64)]
"""Not to be compressed: the entries are to fill files."""
OFTEN = ("--period", "100ms")


def fill(cluster: LocalCluster, name: str, rounds: int) -> None:
    with lognode.Client(cluster.servers, timeout=60) as client:
        log = client.log(name)
        for at in range(rounds):
            log.append_many(
                [(f"k{n % 8}-{n % 5}", VALUES[(at + n) % 64], {"h": b"1"}) for n in range(100)]
            )


def entries(servers: str, name: str) -> list[lognode.Entry]:
    with lognode.Client(servers, timeout=60) as client:
        snapshot = client.log(name).snapshot()
        found = sorted(snapshot.read())
        snapshot.release()
    return found


def sealed(cluster: LocalCluster, name: str, tier: Tier) -> list[lognode.Entry]:
    """The entries of the log, once all of them are in the tier."""
    with lognode.Client(cluster.servers, timeout=60) as client:
        client.admin.split(name, at="k7-5")  # a split seals what is in memory
    found = entries(cluster.servers, name)
    testing.eventually(lambda: tier.has(name, found), what="all is in the tier", timeout_s=60)
    return found


def eventually_serves(tier: ServedTier, name: str, expected: list[lognode.Entry]) -> None:
    def same() -> bool:
        with contextlib.suppress(LogNotFound):
            return entries(tier.servers, name) == expected
        return False

    testing.eventually(same, what="the tier has all entries", timeout_s=60)


def in_columns(log: lognode.Log, **how: Any) -> list[lognode.Entry]:
    return sorted(entry for columns in log.scan_columns(**how) for entry in columns.entries())


READS: list[Callable[[lognode.Log], Any]] = [
    lambda log: list(log.keys()),
    lambda log: list(log.keys(prefix="k3", limit=2)),
    lambda log: list(log.keys(pattern="k5-*")),
    lambda log: [log.latest(key) for key in ("k0-0", "k7-2", "k1-gone", "none")],
    lambda log: [log.count(key) for key in ("k0-0", "k2-2", "k1-gone")],
    lambda log: list(log.scan("k2-2")),
    lambda log: list(log.scan("k3-3", reverse=True, limit=7)),
    lambda log: in_columns(log, prefix="k4"),
    lambda log: in_columns(log, start=lognode.Timestamp(1)),
    lambda log: in_columns(log, pattern="k6-*"),
    lambda log: list(log.scan("k3-3", start=lognode.Tail(3))),
]


def test_a_served_tier_answers_as_the_cluster_did_and_refuses_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "tier")
    flags = ("--tier", place, "--balance", "off", *SMALL_WAL)
    with contextlib.ExitStack() as ends:
        with testing.cluster(tmp_path / "source", 2, flags=flags) as source:
            with lognode.Client(source.servers, timeout=60) as client:
                options = {"split_bytes": None, "split_rate": None}
                log = client.create_log("orders", split_at=["k4"], hierarchy="-", **options)
                fill(source, "orders", 12)
                log.append_many([("k1-gone", b"v")] * 3)
                log.delete_key("k1-gone")
                log.trim("k2-2", before=log.latest("k2-2").seq)
                client.admin.split("orders", at="k2")
                fill(source, "orders", 6)
                client.admin.merge("orders", at="k2")
                client.admin.split("orders", at="k6")
            before = sealed(source, "orders", Tier.at(place))
            tier = ends.enter_context(served(place, tmp_path, *OFTEN, "--nodes", source.servers))
            eventually_serves(tier, "orders", before)
            with lognode.Client(source.servers, timeout=60) as client:
                expected = [read(client.log("orders")) for read in READS]
        with lognode.Client(tier.servers, timeout=20) as client:
            log = client.log("orders")
            assert [read(log) for read in READS] == expected, "the cluster has ended"
            _refuses(client, source.servers)
            assert [each["name"] for each in client.logs()] == ["orders"]
            status = client.status()
            assert status["cluster"]["serves_tier"] == place
            assert status["cluster"]["looked_s_ago"] < 60
            assert status["tier"]["requests"] > 0
            assert all(row["manifest_s"] >= 0 for row in status["ranges"])
            assert client.health()["ok"]
        _works_on_the_command_line(tier, capsys)


def _refuses(client: lognode.Client, nodes: str) -> None:
    log = client.log("orders")
    asked: list[Callable[[], Any]] = [
        lambda: log.append("k0-0", b"v"), lambda: log.append_many([("k0-0", b"v")]),
        lambda: client.create_log("new"), lambda: log.trim("k0-0", before=1),
        lambda: log.delete_key("k0-0"), lambda: client.delete_log("orders"),
        lambda: next(iter(log.follow(keys=["k0-0"]))),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(LognodeError, match="is refused: this is `lognode serve-tier`") as error:
            ask()
        assert nodes in str(error.value)
    with pytest.raises(LogNotFound):
        client.log("none").latest("k")


def _works_on_the_command_line(tier: ServedTier, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        "log list", "log describe orders", "range list orders", "status", "health", "keys orders",
        "latest orders k0-0", "count orders k0-0", "scan orders k0-0 -n 2",
        "scan orders k3-3 --from 5 -n 3",
    ):  # fmt: skip
        assert run_program([*words.split(), "--server", tier.servers]) == 0, words
        assert capsys.readouterr().out, words
    assert run_program(["append", "orders", "k", "v", "--server", tier.servers]) == 1
    assert "serve-tier" in capsys.readouterr().err


def test_S5_S6_answers_never_go_back_and_snapshots_stay_while_the_cluster_changes(
    tmp_path: Path,
) -> None:
    """The nodes remove files from the tier at once. A read then says so, and is never wrong."""
    place = str(tmp_path / "tier")
    flags = ("--tier", place, "--tier-grace", "0", "--balance", "off", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags) as source:
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 8)
            first = sealed(source, "orders", Tier.at(place))
            client.admin.merge("orders", at="k7-5")
        with served(place, tmp_path, *OFTEN) as tier:
            eventually_serves(tier, "orders", first)
            over, failures = threading.Event(), list[str]()
            readers = [
                threading.Thread(target=_watch, args=(watch, tier.servers, over, failures))
                for watch in (_newest_never_go_back, _snapshots_stay_the_same)
            ]
            for reader in readers:
                reader.start()
            try:
                _change(source, tier)
            finally:
                over.set()
                for reader in readers:
                    reader.join()
            assert not failures
            _is_a_part_of(source, tier)


def _is_a_part_of(source: LocalCluster, tier: ServedTier) -> None:
    """Compare keys without trims: the tier has the first entries of each."""
    with (
        lognode.Client(source.servers, timeout=60) as client,
        lognode.Client(tier.servers, timeout=60) as other,
    ):
        keys = set(client.log("orders").keys())
        for key in keys - {b"k3-3"}:
            found = list(other.log("orders").scan(key))
            assert found
            assert found == list(client.log("orders").scan(key))[: len(found)]


def _change(source: LocalCluster, tier: ServedTier) -> None:
    """Change the log again and again; what was appended before each change is served after it."""
    with lognode.Client(source.servers, timeout=60) as client:
        log = client.log("orders")
        changes: list[Callable[[], Any]] = [
            lambda: client.admin.split("orders", at="k4"),
            lambda: client.admin.split("orders", at="k2"),
            lambda: log.trim("k3-3", before=log.latest("k3-3").seq),
            lambda: client.admin.merge("orders", at="k4"),
            lambda: client.admin.split("orders", at="k6"),
        ]
        for change in changes:
            fill(source, "orders", 6)
            change()
            fill(source, "orders", 6)
            seqs = {key: log.latest(key).seq for key in ("k6-1", "k7-2")}
            client.admin.split("orders", at="k7-5")  # seals what is in memory
            client.admin.merge("orders", at="k7-5")

            def arrived(seqs: dict[str, int] = seqs) -> bool:
                with contextlib.suppress(LognodeError):
                    with lognode.Client(tier.servers, timeout=10) as other:
                        found = {key: other.log("orders").latest(key) for key in seqs}
                    return all(e is not None and e.seq >= seqs[key] for key, e in found.items())
                return False

            testing.eventually(arrived, what="the tier follows", timeout_s=60)


def _watch(
    watch: Callable[[lognode.Client, dict[Any, Any]], None], servers: str, over: threading.Event,
    failures: list[str],
) -> None:  # fmt: skip
    seen: dict[Any, Any] = {}
    with lognode.Client(servers, timeout=10) as client:
        while not over.is_set():
            try:
                watch(client, seen)
            except (Unavailable, NotFound) as error:
                # A file of an old manifest is gone. No other error is allowed.
                if isinstance(error, LogNotFound):
                    failures.append(str(error))
            except Exception as error:
                failures.append(f"{watch.__name__}: {error!r}")


def _newest_never_go_back(client: lognode.Client, seen: dict[Any, Any]) -> None:
    log = client.log("orders")
    for key in list(log.keys()):
        newest = log.latest(key)
        assert newest is not None, key
        assert newest.seq >= seen.get(key, 0), key
        assert newest.value in VALUES
        seen[key] = newest.seq


def _snapshots_stay_the_same(client: lognode.Client, seen: dict[Any, Any]) -> None:
    snapshot = client.log("orders").snapshot(lease_s=60)
    first = sorted(snapshot.read())
    assert first
    for _ in range(3):
        assert sorted(snapshot.read()) == first
    keys = {entry.key for entry in first}
    assert sorted(entry for key in keys for entry in snapshot.read(key)) == first
    snapshot.release()


@pytest.fixture(scope="module")
def server(module_path: Path) -> Iterator[S3Server]:
    with s3_server(module_path) as found:
        yield found


def test_a_store_with_faults_and_a_store_that_is_away(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{server.bucket('served')}/prefix"
    flags = ("--tier", place, "--tier-endpoint", server.endpoint, *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags) as source:
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 16)
        before = sealed(source, "orders", Tier.at(place, endpoint=server.endpoint))
    rng, away = random.Random(5), threading.Event()

    def choose(asked: Asked) -> Fault | None:
        if away.is_set():
            return "503"
        return rng.choice(("500", "503", "lost", "cut")) if rng.random() < 0.15 else None

    with spoiling_proxy(server) as faults:
        faults.choose = choose
        stale = ("--endpoint", faults.endpoint, "--max-stale", "3s", *OFTEN)
        with served(place, tmp_path, *stale) as tier:
            eventually_serves(tier, "orders", before)
            with lognode.Client(tier.servers, timeout=5) as client:
                snapshot = client.log("orders").snapshot(lease_s=60)
                away.set()
                testing.eventually(lambda: not client.health()["ok"], what="the process notices")

                def is_refused() -> bool:
                    try:
                        client.log("orders").latest("k0-0", timeout=0.5)
                    except Unavailable as error:
                        return "--max-stale" in error.message
                    return False

                testing.eventually(is_refused, what="reads are refused")
                assert sorted(snapshot.read()) == before, "a snapshot has its end, and its bytes"
                away.clear()
                testing.eventually(lambda: client.health()["ok"], what="the store is back")
                assert client.log("orders").latest("k0-0") is not None


def test_a_directory_that_is_not_mounted_is_not_an_empty_tier(tmp_path: Path) -> None:
    place = tmp_path / "tier"
    with testing.cluster(
        tmp_path / "source", 1, flags=("--tier", str(place), *SMALL_WAL)
    ) as source:
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 8)
        before = sealed(source, "orders", Tier.at(str(place)))
    with served(str(place), tmp_path, *OFTEN, "--cache-bytes", "0") as tier:
        eventually_serves(tier, "orders", before)
        place.rename(tmp_path / "elsewhere")
        with lognode.Client(tier.servers, timeout=20) as client:
            testing.eventually(lambda: not client.health()["ok"], what="the process notices")
            assert [each["name"] for each in client.logs()] == ["orders"]
            (tmp_path / "elsewhere").rename(place)
            testing.eventually(lambda: client.health()["ok"], what="the directory is back")
        part = max(place.glob("files/*/*/*"), key=lambda path: path.stat().st_size)
        sound = part.read_bytes()
        part.write_bytes(bytes(byte ^ 0x55 for byte in sound))
    (tmp_path / "other").mkdir()
    with served(str(place), tmp_path / "other", *OFTEN) as tier:
        with pytest.raises(CorruptData, match="lognode tier verify"):
            entries(tier.servers, "orders")
        part.write_bytes(sound)
        assert entries(tier.servers, "orders") == before


def test_other_machines_need_tls_and_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = str(tmp_path / "tier")
    flags = ("--tier", place, *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags, tls=True) as source:
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 4)
        before = sealed(source, "orders", Tier.at(place))
    open_port = ["serve-tier", place, "--listen", "0.0.0.0:4799", "--advertise", "h:1"]
    assert run_program(open_port) == 1
    assert "does not know its clients" in " ".join(capsys.readouterr().err.split())
    query = source.servers.partition("?")[2]
    files = dict(each.split("=") for each in query.split("&"))
    certificate = Path(files["ca"]).with_name("node1.crt")
    tls = (
        "--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key")),
        "--tls-ca", files["ca"],
    )  # fmt: skip
    with served(place, tmp_path, *OFTEN, *tls, query=query) as tier:
        eventually_serves(tier, "orders", before)
        bare = f"{tier.servers.partition('?')[0]}?ca={files['ca']}"
        with lognode.Client(bare, timeout=5) as client, pytest.raises(LognodeError):
            client.status()
        with (
            lognode.Client(f"{tier.servers}&token={_token(tmp_path)}", timeout=5) as client,
            pytest.raises(Unauthorized, match="cannot check tokens"),
        ):
            client.status()


def _token(path: Path) -> Path:
    file = path / "token"
    file.write_text("0123456789abcdef." + "a" * 43)
    file.chmod(0o600)
    return file
