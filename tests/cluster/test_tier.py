"""The tier of a real cluster: what is sealed goes to a store, from which another cluster is filled.

The nodes are processes, with a directory and with a real S3 server behind a proxy that spoils
requests.
"""

import contextlib
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_ranges import ranges_of
from cluster_wal import SMALL_WAL
from metrics_page import metric
from s3_servers import KEYS, Asked, Fault, Faults, S3Server, s3_server, spoiling_proxy
from tier_contents import Tier, gives

import lognode
from lognode import testing
from lognode.client.protocol.errors import LognodeError
from lognode.node.main import main as run_program
from lognode.node.tier import coverage
from lognode.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster
RNG = random.Random(1)
VALUES = [RNG.randbytes(400) for _ in range(64)]
"""Not to be compressed: the entries are to fill files."""


def fill(cluster: LocalCluster, name: str, rounds: int) -> None:
    with lognode.Client(cluster.servers, timeout=60) as client:
        log = client.log(name)
        for at in range(rounds):
            log.append_many(
                [(f"k{n % 8}-{n % 5}", VALUES[(at + n) % 64], {"h": b"1"}) for n in range(100)]
            )


def entries(cluster: LocalCluster, name: str) -> list[lognode.Entry]:
    with lognode.Client(cluster.servers, timeout=60) as client:
        return sorted(client.log(name).snapshot().read())


def node_that_leads(cluster: LocalCluster, name: str, key: bytes) -> LocalNode:
    def find() -> LocalNode | None:
        with lognode.Client(cluster.servers, timeout=60) as client:
            rows = [row for row in ranges_of(client, name) if row["start"] <= key]
        leader = rows[-1]["leader"]
        return next((node for node in cluster.nodes if node.number == leader), None)

    return testing.eventually(find, what="a leader")


def restored(place: str, path: Path, name: str, *arguments: str) -> list[lognode.Entry]:
    """The entries of the log after a restore into a new cluster of one node."""
    with testing.cluster(path, 1) as target:
        command = ["tier", "restore", place, "--server", target.servers, "--log", name, *arguments]
        assert run_program(command) == 0
        return entries(target, name)


def test_sealed_segments_are_uploaded_once_and_restored_with_equal_entries(tmp_path: Path) -> None:
    place = str(tmp_path / "tier")
    with testing.cluster(
        tmp_path / "source", 3, flags=("--tier", place, "--balance", "off", *SMALL_WAL)
    ) as source:
        testing.wait_healthy(source)
        with lognode.Client(source.servers, timeout=60) as client:
            log = client.create_log(
                "orders",
                split_at=["k4"],
                split_bytes=None,
                split_rate=None,
                hierarchy="/",
            )
            client.create_log("bills", replicas=1, split_bytes=None, split_rate=None)
            fill(source, "bills", 2)
            client.admin.split("bills", at="k4")
            fill(source, "orders", 12)
            log.append_many([("k1-gone", b"v")] * 3)
            log.delete_key("k1-gone")
            log.trim("k2-2", before=log.latest("k2-2").seq)
            client.admin.split("orders", at="k2")
            fill(source, "orders", 8)
            client.admin.merge("orders", at="k2")
            client.admin.split("orders", at="k3")
            client.admin.split("orders", at="k6")
        before, bills = entries(source, "orders"), entries(source, "bills")
        tier = Tier.at(place)
        testing.eventually(
            lambda: tier.has("orders", before) and tier.has("bills", bills),
            what="all is in the tier",
        )
        # A range that splits again before its first manifest would upload its files again.
        now = _generations(source, "orders") | _generations(source, "bills")
        testing.eventually(lambda: _newest(tier) >= now, what="each range has its own manifest")
        files = tier.files()
        assert len(files) > 4
        assert len(files) == len({(file.chain, file.content_id) for file in files})
        uploaded = [metric(node, "lognode_tier_uploaded_files_total") for node in source.nodes]
        assert sum(uploaded) == len(files), "members and generations share what is uploaded"
        with lognode.Client(source.servers, timeout=60) as client:
            client.admin.split("orders", at="k7")
        testing.eventually(lambda: len(tier.through("orders")) == 5, what="the last split")
        assert tier.files() == files, "nothing was sealed: the children go on with these files"
        _move(source, "bills")
        testing.eventually(
            lambda: _newest(tier) >= _generations(source, "bills"), what="the moved range"
        )
        assert tier.files() == files, "another replica goes on with these files, too"
        testing.eventually(
            lambda: all(node.status()["tier"]["waiting_files"] == 0 for node in source.nodes),
            what="nothing waits",
        )
        assert all(node.status()["tier"]["last_error"] is None for node in source.nodes)
    assert run_program(["tier", "verify", place]) == 0
    assert restored(place, tmp_path / "target", "orders", "--log", "bills") == before
    assert before
    assert not [entry for entry in before if entry.key == b"k1-gone"]


def _move(cluster: LocalCluster, name: str) -> None:
    """Move the only replica of the first range to another node."""
    with lognode.Client(cluster.servers, timeout=60) as client:
        row = ranges_of(client, name)[0]
        (member,) = row["members"]
        client.admin.move(row["id"], from_node=member, to_node=member % 3 + 1)


def _generations(cluster: LocalCluster, name: str) -> set[tuple[int, int]]:
    with lognode.Client(cluster.servers, timeout=60) as client:
        return {(row["id"], row["generation"]) for row in ranges_of(client, name)}


def _newest(tier: Tier) -> set[tuple[int, int]]:
    """The ranges, with their generations, from which a restore would read."""
    with contextlib.suppress(LognodeError):
        logs = list(coverage.logs(tier.store.snapshot().heads.values()))
        return {tuple(head.chain) for log in logs for _, head in log.pieces}
    return set()


def test_a_restore_at_any_moment_of_splits_and_merges_gives_each_entry_once(
    tmp_path: Path,
) -> None:
    """Appends end first; from then on every moment has the same entries."""
    place = str(tmp_path / "tier")
    tier = Tier.at(place)
    flags = ("--tier", place, "--tier-grace", "0", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags) as source:
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 8)
            client.admin.split("orders", at="k4")
            before = entries(source, "orders")
            testing.eventually(lambda: tier.has("orders", before), what="all is in the tier")
            assert len(tier.through("orders")) == 2
            changes = threading.Thread(target=_change, args=(source, "orders", place))
            changes.start()
            looks = 0
            while changes.is_alive():
                through = tier.through("orders")
                if through:
                    looks += 1
                    assert gives(through, before)
                    spans = [span for span, _ in through]
                    assert spans[0][0] == b""
                    assert [end for _, end in spans[:-1]] == [start for start, _ in spans[1:]]
            changes.join()
            assert looks > 3
            testing.eventually(lambda: len(tier.through("orders")) == 2, what="the last split")
            client.delete_log("orders")
        testing.eventually(
            lambda: not tier.files(), what="the files of a deleted log go", timeout_s=60
        )


def _change(cluster: LocalCluster, name: str, place: str) -> None:
    """Split and merge; the tier follows each change before the next change."""
    tier = Tier.at(place)
    with lognode.Client(cluster.servers, timeout=60) as client:
        for change, at in (
            (client.admin.split, "k2"), (client.admin.merge, "k2"), (client.admin.merge, "k4"),
            (client.admin.split, "k5"),
        ):  # fmt: skip
            change(name, at=at)
            testing.eventually(
                lambda: _newest(tier) >= _generations(cluster, name), what="the tier follows"
            )


@pytest.fixture(scope="module")
def server(module_path: Path) -> Iterator[S3Server]:
    with s3_server(module_path) as found:
        yield found


def test_store_with_faults_while_leaders_are_killed_and_paused(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{server.bucket('tier')}/some/prefix"
    rng = random.Random(7)
    held, late, free = threading.Event(), threading.Event(), threading.Event()

    def choose(asked: Asked) -> Fault | None:
        if late.is_set() and asked.method == "PUT" and "/manifests/" in asked.path:
            late.clear()
            held.set()
            free.wait(60)  # the request arrives much later
            return "lost"
        return rng.choice(("500", "503", "lost", "cut")) if rng.random() < 0.15 else None

    with spoiling_proxy(server) as faults:
        faults.choose = choose
        flags = ("--tier", place, "--tier-endpoint", faults.endpoint, "--tier-grace", "2",
                 *SMALL_WAL)  # fmt: skip
        with testing.cluster(tmp_path / "source", 3, flags=flags) as source:
            testing.wait_healthy(source)
            with lognode.Client(source.servers, timeout=60) as client:
                client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 8)
            _kill_leader_in_an_upload(source, faults)
            fill(source, "orders", 8)
            paused = node_that_leads(source, "orders", b"k")
            late.set()
            fill(source, "orders", 8)
            assert held.wait(30), "the leader publishes"
            paused.signal(signal.SIGSTOP)
            try:
                testing.eventually(
                    lambda: node_that_leads(source, "orders", b"k") is not paused,
                    what="another leader",
                )
                fill(source, "orders", 8)
            finally:
                free.set()
                paused.signal(signal.SIGCONT)
            with lognode.Client(source.servers, timeout=60) as client:
                client.admin.split("orders", at="k4")
            before = entries(source, "orders")
            tier = Tier.at(place, endpoint=server.endpoint)
            testing.eventually(lambda: tier.has("orders", before), what="all is in the tier")
    found = restored(place, tmp_path / "target", "orders", "--endpoint", server.endpoint)
    assert found == before


def _kill_leader_in_an_upload(source: LocalCluster, faults: Faults) -> None:
    """Kill the leader between the upload of a file and the manifest."""
    usual, held, free = faults.choose, threading.Event(), threading.Event()

    def choose(asked: Asked) -> Fault | None:
        if asked.method == "PUT" and "/files/" in asked.path and not held.is_set():
            held.set()
            free.wait(60)
            return "lost"
        return usual(asked)

    faults.choose = choose
    try:
        fill(source, "orders", 8)
        assert held.wait(30), "a file is uploaded"
        victim = node_that_leads(source, "orders", b"k")
        victim.kill()
    finally:
        free.set()
        faults.choose = usual
    victim.start()
    victim.wait_ready()
    testing.wait_healthy(source)


def test_a_store_that_is_away_holds_up_nothing_but_uploads(tmp_path: Path) -> None:
    """The place is a file at first, so that no directory can be made there."""
    place = tmp_path / "tier"
    place.write_text("in the way")
    flags = ("--tier", str(place), "--tier-grace", "0", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", 1, flags=flags) as source:
        (node,) = source.nodes
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log("orders", split_bytes=None, split_rate=None)
            fill(source, "orders", 24)
            told: dict[str, Any] = testing.eventually(
                lambda: (found := node.status()["tier"])["last_error"] and found,
                what="an error in the status",
            )
            assert str(place) in told["last_error"]
            assert told["last_success_ms"] is None
            testing.eventually(lambda: node.status()["tier"]["waiting_files"], what="files wait")
            client.alter_log("orders", retention_bytes=100_000)
            kept = local_files(node)

            def retention_goes_on() -> bool:
                fill(source, "orders", 2)
                return bool(kept) and not kept & local_files(node)

            testing.eventually(retention_goes_on, what="retention deletes files", timeout_s=60)
            assert node.status()["tier"]["last_success_ms"] is None
            client.alter_log("orders", retention_bytes=None)
            place.unlink()
            client.admin.split("orders", at="k4")
            before = entries(source, "orders")
            tier = Tier.at(str(place))
            testing.eventually(
                lambda: tier.has("orders", before) and tier.keeps("orders"),
                what="all is in the tier", timeout_s=90,
            )  # fmt: skip
            testing.eventually(
                lambda: (
                    node.status()["tier"]["waiting_files"] == 0
                    and node.status()["tier"]["last_error"] is None
                ),
                what="nothing waits",
            )
    assert before
    assert restored(str(place), tmp_path / "target", "orders") == before


def local_files(node: LocalNode) -> set[str]:
    return {path.name for path in (node.data / "files").glob("*.seg")}
