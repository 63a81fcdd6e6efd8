"""Real nodes with `local_retention_bytes`: old segments are in the tier only.

The tier is a directory. A tier that is away is a directory that was moved away.
"""

import contextlib
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from cluster_ranges import ranges_of
from cluster_wal import SMALL_WAL
from metrics_page import metric
from tier_contents import Tier

import lognode
from lognode import testing
from lognode.client.batcher import Batcher
from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.node.main import main as run_program
from lognode.testing import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster
BOUND = 1_500_000
LOG = "orders"


@contextlib.contextmanager
def nodes(tmp_path: Path, count: int) -> Iterator[LocalCluster]:
    flags = ("--tier", str(tmp_path / "tier"), "--tier-grace", "0", "--balance", "off", *SMALL_WAL)
    with testing.cluster(tmp_path / "source", count, flags=flags) as source:
        testing.wait_healthy(source)
        with lognode.Client(source.servers, timeout=60) as client:
            client.create_log(
                LOG, replicas=min(3, count), split_bytes=None, split_rate=None,
                local_retention_bytes=BOUND,
            )  # fmt: skip
            client.log(LOG).append("first", b"of all")
        yield source


def fill(source: LocalCluster, rounds: int, salt: int = 0) -> None:
    rng = random.Random(salt)
    with lognode.Client(source.servers, timeout=60) as client:
        log = client.log(LOG)
        for _ in range(rounds):
            log.append_many([(f"k{n % 8}-{n % 5}", rng.randbytes(400)) for n in range(200)])


def entries(source: LocalCluster) -> list[lognode.Entry]:
    with lognode.Client(source.servers, timeout=60) as client:
        snapshot = client.log(LOG).snapshot()
        found = sorted(snapshot.read())
        snapshot.release()  # the lease of a snapshot would keep the files
        return found


def value_of(log: lognode.Log, key: str, timeout: float | None = None) -> bytes | None:
    found = log.latest(key, timeout=timeout)
    return None if found is None else found.value


def seq_of(log: lognode.Log, key: str) -> int:
    found = log.latest(key)
    assert found is not None
    return found.seq


def local(node: LocalNode) -> int:
    """The bytes of the segments on the disk of a node."""
    size = 0
    for path in (node.data / "files").glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):  # it leaves the disk now
            size += path.stat().st_size
    return size


def pages(node: LocalNode) -> set[str]:
    return {path.stem for path in (node.data / "files").glob("*.kept")}


def only(node: LocalNode) -> int:
    """How many files a node has in the tier only."""
    found: int = node.status()["tier"]["only_files"]
    return found


def given_up(source: LocalCluster, ranges: int = 1, members: int | None = None) -> None:
    """Fill, and wait until the nodes have files in the tier only, and are within the bound."""
    fill(source, 40, random.randrange(1 << 30))
    within_bounds(source, ranges, members)


def within_bounds(source: LocalCluster, ranges: int = 1, members: int | None = None) -> None:
    """Wait until the nodes have files in the tier only, and are within the bound."""
    wanted = len(source.nodes) if members is None else members
    testing.eventually(
        lambda: (
            sum(only(node) > 0 for node in source.nodes) >= wanted
            and all(local(node) <= ranges * BOUND for node in source.nodes)
        ),
        what="files in the tier only", timeout_s=60,
    )  # fmt: skip


def check_sound(source: LocalCluster) -> None:
    for node in source.nodes:
        status: dict[str, Any] = node.status()
        assert not status["damaged"]
        assert not status["segments_in_doubt"]


@pytest.mark.by_hand
def test_old_segments_leave_the_disks_and_stay_readable(tmp_path: Path) -> None:
    with nodes(tmp_path, 3) as source, lognode.Client(source.servers, timeout=60) as client:
        given_up(source)
        before, log = entries(source), client.log(LOG)
        assert value_of(log, "first") == b"of all"
        assert log.count("k1-1") == sum(entry.key == b"k1-1" for entry in before)
        assert log.append("first", b"again", expect=seq_of(log, "first"))
        for node in source.nodes:
            assert metric(node, "lognode_tier_only_files") > 0
            assert any(row["tier_only_bytes"] for row in node.status()["replicas"])
            assert pages(node)
        before = entries(source)
        for at, node in enumerate(source.nodes):
            node.kill() if at else node.stop()
            node.start()
            node.wait_ready()
            testing.wait_healthy(source)
            assert only(node) > 0
            assert entries(source) == before
        check_sound(source)
        for node in source.nodes:
            node.stop()
            assert run_program(["verify", str(node.data)]) == 0
        (first, *_) = source.nodes
        assert run_program(["--data", str(first.data), "--listen", "127.0.0.1:0"]) != 0


def test_ranges_change_and_end_with_files_in_the_tier_only(tmp_path: Path) -> None:
    """The tier keeps no file for ever: grace time is zero, and sweeps run all the time."""
    with nodes(tmp_path, 1) as source, lognode.Client(source.servers, timeout=60) as client:
        (node,) = source.nodes
        given_up(source)
        client.admin.split(LOG, at="k4")
        given_up(source, ranges=2)
        client.admin.split(LOG, at="k2")
        client.admin.merge(LOG, at="k4")
        before = entries(source)
        given_up(source, ranges=2)
        tier = Tier.at(str(tmp_path / "tier"))

        def settled() -> bool:
            """The tier has what the ranges of now need, and nothing else."""
            here = {(row["id"], row["generation"]) for row in ranges_of(client, LOG)}
            with contextlib.suppress(LognodeError):
                heads = tier.store.snapshot().heads.values()
                heads_of_now = [head for head in heads if tuple(head.chain) in here]
                held = {each.path for head in heads_of_now for each in head.held.values()}
                return len(heads_of_now) == 2 and {file.path for file in tier.files()} == held
            return False

        testing.eventually(settled, what="the claims of earlier generations end", timeout_s=60)
        kept = set(before)
        assert [entry for entry in entries(source) if entry in kept] == before
        client.alter_log(LOG, retention_bytes=1)
        old = pages(node)
        assert old <= {file.content_id for file in tier.files()}
        assert old

        def gone() -> bool:
            fill(source, 2)
            return not old & (pages(node) | {file.content_id for file in tier.files()})

        testing.eventually(gone, what="retention ends the claims", timeout_s=60)
        check_sound(source)


@pytest.mark.by_hand
def test_without_the_tier_old_reads_say_so_and_all_else_goes_on(tmp_path: Path) -> None:
    tier, away = tmp_path / "tier", tmp_path / "away"
    with nodes(tmp_path, 3) as source, lognode.Client(source.servers, timeout=60) as client:
        log = client.log(LOG)
        given_up(source)
        for node in source.nodes:  # what is in memory of the tier is gone
            node.stop()
        tier.rename(away)
        tier.write_text("in the way")  # no node makes another tier there
        for node in source.nodes:
            node.start()
        for node in source.nodes:
            node.wait_ready()
        testing.wait_healthy(source)
        leader = testing.leader_of(client, LOG)
        with pytest.raises(Unavailable) as told:
            log.latest("first", timeout=3)
        assert told.value.fields["retry_after"] > 0
        with pytest.raises(LognodeError):
            log.append("first", b"again", expect=1, timeout=3)
        for at in range(20):
            assert log.append(f"new-{at}", b"young", expect=lognode.ABSENT, timeout=20)
            assert value_of(log, f"new-{at}") == b"young"
        fill(source, 8, 77)
        assert testing.leader_of(client, LOG) == leader
        check_sound(source)
        tier.unlink()
        away.rename(tier)

        def reads() -> bool:
            with contextlib.suppress(LognodeError):
                return value_of(log, "first", timeout=5) == b"of all"
            return False

        testing.eventually(reads, what="old entries are read again")
        assert log.append("first", b"again", expect=seq_of(log, "first"))


def test_an_append_with_acknowledgements_holds_up_no_other_while_the_tier_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, away = tmp_path / "tier", tmp_path / "away"
    with nodes(tmp_path, 1) as source, lognode.Client(source.servers, timeout=60) as client:
        log = client.log(LOG)
        given_up(source)
        with log.consume("work", prefix="new-", start="latest") as consumer:
            log.append("new-1", b"young")
            batch = next(consumer)
            tier.rename(away)
            tier.write_text("in the way")
            plain = Batcher.add_atomic
            monkeypatch.setattr(Batcher, "add_atomic", partialmethod(plain, expect=1))
            with pytest.raises(LognodeError):
                log.append_batch([("first", b"again")], acks=[batch], timeout=3)
            assert log.append("new-2", b"young", timeout=20)
            tier.unlink()
            away.rename(tier)
            assert log.append_batch([("first", b"again")], acks=[batch], timeout=60)
        check_sound(source)


def test_a_directory_without_its_mount_gets_no_manifest_and_no_file_leaves_the_disk(
    tmp_path: Path,
) -> None:
    """Files that go to an unmounted directory are away once the tier is mounted again."""
    tier, away = tmp_path / "tier", tmp_path / "away"
    with nodes(tmp_path, 1) as source:
        (node,) = source.nodes
        given_up(source)
        before = entries(source)
        tier.rename(away)
        tier.mkdir()
        errors = metric(node, "lognode_tier_errors_total")
        fill(source, 40, 7)
        testing.eventually(
            lambda: (
                list(tier.glob("manifests/*/*"))
                or (metric(node, "lognode_tier_errors_total") > errors + 3 and local(node) > BOUND)
            ),
            what="the node looks at the empty directory", timeout_s=60,
        )  # fmt: skip
        assert not list(tier.glob("manifests/*/*"))
        assert local(node) > BOUND
        shutil.rmtree(tier)
        away.rename(tier)
        testing.eventually(lambda: local(node) <= BOUND, what="files leave again", timeout_s=60)
        kept = set(before)
        assert [entry for entry in entries(source) if entry in kept] == before
        assert len(entries(source)) == len(before) + 40 * 200
        check_sound(source)


@pytest.mark.by_hand
def test_a_restored_log_gives_up_files_while_it_is_restored(tmp_path: Path) -> None:
    with nodes(tmp_path, 1) as source:
        given_up(source)
        whole = entries(source)
        testing.eventually(
            lambda: source.nodes[0].status()["tier"]["waiting_files"] == 0, what="nothing waits"
        )
    flags = ("--tier", str(tmp_path / "next"), "--tier-grace", "0", *SMALL_WAL)
    with testing.cluster(tmp_path / "target", 3, flags=flags) as target:
        testing.wait_healthy(target)
        command = ["tier", "restore", str(tmp_path / "tier"), "--server", target.servers]
        with ThreadPoolExecutor(1) as thread, lognode.Client(target.servers, timeout=60) as client:
            end = thread.submit(run_program, command)
            seen: set[int | None] = set()
            while not end.done():
                policies = {row["name"]: row["policy"] for row in client.logs()}
                if LOG in policies:
                    seen.add(policies[LOG].get("local_retention_bytes"))
            assert end.result() == 0
        assert seen == {BOUND}, "else the disks would have to hold the whole log"
        restored = entries(target)
        assert restored == whole[: len(restored)]
        assert len(restored) > 2 * BOUND / 400
        within_bounds(target, members=1)
        assert entries(target) == restored


@pytest.mark.by_hand
def test_a_new_replica_leaves_files_in_the_tier_and_damaged_pages_are_repaired(
    tmp_path: Path,
) -> None:
    with nodes(tmp_path, 4) as source, lognode.Client(source.servers, timeout=60) as client:
        given_up(source, members=3)
        before = entries(source)
        (row,) = ranges_of(client, LOG)
        other = ({1, 2, 3, 4} - set(row["members"])).pop()
        new = source.nodes[other - 1]
        client.admin.move(row["id"], from_node=row["members"][0], to_node=other)
        testing.wait_healthy(source)
        assert only(new) > 0
        assert local(new) <= BOUND, "the old files stay in the tier"
        assert entries(source) == before
        for path in (new.data / "files").glob("*.kept"):
            data = path.read_bytes()
            path.write_bytes(bytes(len(data) // 2) + data[len(data) // 2 :])
        new.kill()
        new.start()
        new.wait_ready()
        testing.wait_healthy(source)
        with lognode.Client(new.address, timeout=60) as client_of_new:
            assert sorted(client_of_new.log(LOG).snapshot().read()) == before
        check_sound(source)
