"""S12, x2: a damaged or lost disk is repaired into the next generation, with no help."""

import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lognode
from lognode import testing

pytestmark = pytest.mark.cluster

KEYS = [b"key-%d" % n for n in range(8)]
VALUE_BYTES = 2_000
_LIVE_BYTES = 200_000
"""About what the WAL holds of the log before the damage, in one file."""


class Writer:
    """Appends to all keys from a thread until it is stopped; knows what was acknowledged."""

    def __init__(self, servers: str, *, pause_s: float = 0.0) -> None:
        self.acknowledged: dict[bytes, list[tuple[int, bytes]]] = {key: [] for key in KEYS}
        self.error: BaseException | None = None
        self.count = 0
        self._servers = servers
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Until so many more are acknowledged."""
        wanted = self.count + more
        testing.eventually(lambda: self.count >= wanted or self.error, what="appends go on")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with lognode.Client(self._servers) as client:
                log = client.log("orders")
                while not self._stop.is_set():
                    key = KEYS[self.count % len(KEYS)]
                    value = b"%d." % self.count + random.Random(self.count).randbytes(VALUE_BYTES)
                    ack = log.append(key, value)
                    assert ack.seq is not None
                    self.acknowledged[key].append((ack.seq, value))
                    self.count += 1
                    self._stop.wait(self._pause_s)
        except BaseException as error:
            self.error = error


def flip_in_the_middle(node: testing.LocalNode) -> None:
    """One bit, where the log's entries are."""
    file = sorted((node.data / "wal").glob("wal-*"))[0]
    with open(file, "r+b") as wal:
        wal.seek(_LIVE_BYTES // 2)
        (byte,) = wal.read(1)
        wal.seek(_LIVE_BYTES // 2)
        wal.write(bytes([byte ^ 8]))


def truncate(node: testing.LocalNode) -> None:
    file = sorted((node.data / "wal").glob("wal-*"))[-1]
    with open(file, "r+b") as wal:
        wal.truncate(_LIVE_BYTES // 2)


def lose_the_wal(node: testing.LocalNode) -> None:
    shutil.rmtree(node.data / "wal")


def flip_in_a_segment(node: testing.LocalNode) -> None:
    segment = segments_of(node)[0]
    with open(segment, "r+b") as file:
        file.seek(segment.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


def lose_a_segment(node: testing.LocalNode) -> None:
    segments_of(node)[0].unlink()


@contextmanager
def cluster_with_a_log(
    root: Path, *flags: str
) -> Iterator[tuple[testing.LocalCluster, lognode.Client]]:
    """Three nodes and a range on all of them."""
    with (
        testing.cluster(root, 3, flags=flags) as cluster,
        lognode.Client(cluster.servers, timeout=30) as client,
    ):
        testing.wait_healthy(cluster)
        client.create_log("orders")
        yield cluster, client


def range_of(client: lognode.Client) -> dict[str, Any]:
    status = client.status()
    return next(range_ for range_ in status["ranges"] if range_["log"] == "orders")


def held(log: Any, key: bytes, node: int, through: int) -> list[tuple[int, bytes]]:
    """A key's entries as that node's own replica has them."""
    return [
        (entry.seq, entry.value)
        for entry in log.scan(key, node=node, through=through, consistency="prefix")
    ]


def check_all_hold(client: lognode.Client, writer: Writer) -> None:
    """S2, S3: every member has every acknowledged entry, and all have the same."""
    log = client.log("orders")
    through = max(seq for told in writer.acknowledged.values() for seq, _ in told)
    for key in KEYS:
        first = held(log, key, 1, through)
        assert set(writer.acknowledged[key]) <= set(first)
        assert len({seq for seq, _ in first}) == len(first)
        for node in (2, 3):
            assert held(log, key, node, through) == first


def segments_of(node: testing.LocalNode) -> list[Path]:
    """Oldest first. Of the newest the node may not have said in meta that it has it."""
    files = [file for file in (node.data / "files").iterdir() if file.stat().st_size]
    return sorted(files, key=lambda file: file.stat().st_mtime_ns)


@pytest.mark.parametrize(
    "damage",
    [
        flip_in_the_middle,
        *(
            pytest.param(damage, marks=pytest.mark.by_hand)
            for damage in (truncate, lose_the_wal, flip_in_a_segment, lose_a_segment)
        ),
    ],
    ids=lambda damage: damage.__name__,
)
def test_x2_a_damaged_member_is_rebuilt_in_the_next_generation_while_the_range_serves(
    tmp_path: Path, damage: Callable[[testing.LocalNode], None]
) -> None:
    """A segment that another member has too is mended in this one."""
    of_segments = damage in (flip_in_a_segment, lose_a_segment)
    # Of small WAL files the entries are soon brought into segments.
    flags = ("--wal-file-bytes", "65536") if of_segments else ()
    with cluster_with_a_log(tmp_path, *flags) as (cluster, client):
        writer = Writer(cluster.servers)
        try:
            writer.wait_for(_LIVE_BYTES // VALUE_BYTES)
            victim = cluster.nodes[testing.leader_of(client, "orders") % 3]  # a follower
            if of_segments:
                testing.eventually(
                    lambda: len(segments_of(victim)) > 1, what="a segment is in meta"
                )
            before = range_of(client)
            victim.kill()
            damage(victim)
            victim.start()
            victim.wait_ready()

            def mended() -> bool:
                # In place: another member has the very same file.
                return of_segments and "segment is repaired" in victim.log_path.read_text()

            def repaired() -> bool:
                if mended():
                    return True
                range_ = range_of(client)
                return range_["generation"] > before["generation"] and not range_["operation"]

            testing.eventually(repaired, what="the range is repaired")
            testing.wait_healthy(cluster)
            writer.wait_for(50)
        finally:
            writer.stop()
        range_ = range_of(client)
        assert range_["members"] == [1, 2, 3]
        assert range_["generation"] == before["generation"] + (not mended())
        expected = "waits for a damaged file" if mended() else "takes no part"
        assert expected in victim.log_path.read_text()
        check_all_hold(client, writer)


@pytest.mark.by_hand
def test_a_base_of_several_megabytes_survives_kills_of_both_sides(tmp_path: Path) -> None:
    """It goes on where it broke off, at the rate that it is given, while appends go on."""
    rate = 1 << 20
    flags = ("--wal-file-bytes", str(1 << 20), "--transfer-bytes-per-s", str(rate))
    with cluster_with_a_log(tmp_path, *flags) as (cluster, client):
        log = client.log("orders")
        values = [random.Random(n).randbytes(100_000) for n in range(90)]
        for value in values:
            log.append(b"large", value)
        victim = cluster.nodes[testing.leader_of(client, "orders") % 3]
        others = [node for node in cluster.nodes if node is not victim]
        testing.eventually(
            lambda: all(segments_of(node) for node in cluster.nodes), what="segments are built"
        )
        # Of a base at this rate less must come than goes, or a member never catches up.
        writer = Writer(cluster.servers, pause_s=0.01)
        try:
            victim.kill()
            lose_the_wal(victim)
            shutil.rmtree(victim.data / "files")
            victim.start()
            for killed in (victim, *others):
                wait_for_a_part(victim)
                killed.kill()
                killed.start()
            victim.wait_ready()
            testing.wait_healthy(cluster, timeout_s=120)
            writer.wait_for(20)
        finally:
            writer.stop()
        assert range_of(client)["members"] == [1, 2, 3]
        newest = log.latest(b"large")
        assert newest is not None
        for number in (1, 2, 3):
            assert [value for _, value in held(log, b"large", number, newest.seq)] == values
        check_all_hold(client, writer)
        fetched = [row for row in events(victim) if row["message"] == "file fetched"]
        assert any(row["held_before"] > 0 for row in fetched), fetched
        large = [row for row in fetched if row["bytes"] - row["held_before"] > rate]
        assert all(
            (row["bytes"] - row["held_before"]) / row["seconds"] < 1.5 * rate for row in large
        ), large


def wait_for_a_part(node: testing.LocalNode) -> None:
    """Until more of a file has come than there was."""

    def received() -> int:
        return sum(part.stat().st_size for part in (node.data / "tmp").glob("fetch-*"))

    before = received()
    testing.eventually(lambda: received() > before, what="more of a file is here")


def events(node: testing.LocalNode) -> list[dict[str, Any]]:
    return [json.loads(line) for line in node.log_path.read_text().splitlines()]
