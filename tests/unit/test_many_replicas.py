"""A node with 4,096 replicas: what goes over all of them holds the event loop for no long turn."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from weakref import WeakKeyDictionary

import pytest
from pure_nodes import cluster, do

from lognode.node.directory.disk_room import DiskRoom
from lognode.node.lifecycle.duty_runner import DutyRunner
from lognode.node.load import load_reports
from lognode.node.metrics import Metrics
from lognode.node.replicas.pinned_files import PinnedFiles
from lognode.node.replicas.replica import Memory
from lognode.node.runtime import turn_time
from lognode.node.runtime.turn_time import TimedLoop
from lognode.node.upkeep import merges
from lognode.node.upkeep.disk_watch import DiskWatch
from lognode.node.upkeep.maintenance import Maintenance
from lognode.node.upkeep.memtables import Memtables
from lognode.partitions import commands
from lognode.partitions.metadata import Metadata
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

RANGES = 4_096
TURN_S = 0.005
"""Each look takes 9 ms of processor time or more over all replicas, in turns of about 1 ms."""
UNUSED: Any = None


class Memtable:
    size, unpacked_bytes = 100, 200

    def __len__(self) -> int:
        return 1


class Host:
    """Replicas that hold no more than what is looked at."""

    def __init__(self, first: int) -> None:
        gids = [GroupId(range_id, 1) for range_id in range(first, first + RANGES)]
        self.groups = {gid: self._replica(gid) for gid in gids}
        self.damaged: dict[GroupId, str] = {}
        self.aside, self.halted = dict(self.damaged), dict(self.damaged)
        self.marks = {gid.range_id: 1 for gid in gids}
        self.pinned = PinnedFiles()
        self.meta = SimpleNamespace(items=lambda prefix: [], get=lambda key: None)
        self.frozen = self.looked_at = 0

    def _replica(self, gid: GroupId) -> Any:
        base = Base(tables={"effects": b"effects"})
        state = SimpleNamespace(
            sealed=None, durable_base=base, memtable_bytes=100, frozen_bytes=0, memtable=Memtable(),
            queue=[], unflushed=True,
        )  # fmt: skip
        return SimpleNamespace(
            gid=gid, leads=True, leader=1, members=(1,), stopped=False, state=state, leads_since=0,
            group=SimpleNamespace(base_wanted=False), freeze_proposed=False,
            memtable_age_s=lambda now: 0.0, may_flush=lambda now: True,
            cooling=SimpleNamespace(is_cold=lambda size, now: False),
            propose_freeze=self._freeze,
        )  # fmt: skip

    def _freeze(self) -> None:
        self.frozen += 1

    def replica(self, gid: GroupId) -> Any:
        self.looked_at += 1
        return self.groups.get(gid)

    def ranges(self) -> list[Any]:
        self.looked_at += len(self.groups)
        return list(self.groups.values())


def longest_turn_s(main: Callable[[], Awaitable[None]]) -> float:
    """The processor time of the longest turn of the loop that runs `main`."""

    async def measured() -> float:
        await asyncio.sleep(0)
        turns = turn_time.of_running_loop()
        gc.collect()
        gc.disable()
        await asyncio.sleep(0)
        turns.take_longest_s()
        try:
            await main()
            await asyncio.sleep(0)
            return turns.take_longest_s()
        finally:
            gc.enable()

    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        return runner.run(measured())


def a_log() -> Metadata:
    metadata = cluster(1, 1)
    do(metadata, op=commands.DELETE_LOG, name="orders")
    do(metadata, op=commands.CREATE_LOG, name="wide", replicas=1, ranges=RANGES)
    return metadata


def longest_look_s() -> float:
    """The longest turn of looks for duties on a node that has just begun."""
    metadata = a_log()
    host: Any = Host(min(metadata.ranges))

    async def main() -> None:
        view: Any = SimpleNamespace(metadata=metadata, leader=lambda *_: 1)
        flusher: Any = SimpleNamespace(builds_at_once=True)
        runner = DutyRunner(
            node_id=1, host=host, view=view, flusher=flusher, fetcher=UNUSED, sync=UNUSED,
            report=UNUSED, room=DiskRoom(1, 0), on_broken=UNUSED,
        )  # fmt: skip
        running = asyncio.ensure_future(runner.run())
        async with asyncio.timeout(60):
            while host.looked_at < 3 * RANGES:
                runner.wake()
                await asyncio.sleep(0.001)
        running.cancel()

    return longest_turn_s(main)


def test_a_look_for_duties_takes_no_long_turn() -> None:
    # Other processes take the caches of the processor. A turn of too much work is long each time.
    assert min(longest_look_s() for _ in range(3)) < TURN_S


@pytest.mark.parametrize("is_short_of_room", [False, True])
def test_a_look_at_memtables_takes_no_long_turn(is_short_of_room: bool) -> None:
    host: Any = Host(1)

    async def main() -> None:
        room: Any = SimpleNamespace(
            may_build=lambda size: True,
            memtables_bytes_max=100 * RANGES // 2 if is_short_of_room else 1 << 40,
        )
        memtables = Memtables(host=host, wal=UNUSED, flusher=UNUSED, memory=Memory(), room=room)
        await memtables.look(1e9)

    assert longest_turn_s(main) < TURN_S
    assert host.frozen == (RANGES // 2 if is_short_of_room else 0)


class Slow:
    """A replica at which a look takes 20 µs of processor time, as at a real one."""

    looked_at = 0
    state: Any
    durable_base = "not seen yet"
    is_measured = False

    def __init__(self) -> None:
        self.state = self

    def _look(self) -> int:
        until = time.thread_time() + 20e-6
        while time.thread_time() < until:
            pass
        Slow.looked_at += 1
        return 0

    @property
    def merge_not_before(self) -> float:
        return self._look() + float("inf")

    @property
    def memtable_bytes(self) -> int:
        return self._look()


def slow_host() -> Any:
    Slow.looked_at = 0
    replicas = [Slow() for _ in range(RANGES)]
    return SimpleNamespace(ranges=lambda: replicas)


async def all_looked_at(work: Coroutine[Any, Any, Any]) -> None:
    running = asyncio.ensure_future(work)
    async with asyncio.timeout(60):
        while Slow.looked_at < RANGES:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    running.cancel()


def test_a_look_for_merges_takes_no_long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "_PERIOD_S", 0.0)
    found = merges.Merges.__new__(merges.Merges)
    found._host, found._seen = slow_host(), WeakKeyDictionary()
    assert longest_turn_s(lambda: all_looked_at(found.run())) < TURN_S


def test_a_look_for_files_to_measure_takes_no_long_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_reports, "_MEASURE_S", 0.0)
    loads = load_reports.Loads.__new__(load_reports.Loads)
    loads._host, loads._measure_at = slow_host(), WeakKeyDictionary()

    async def measure(replica: Any) -> None:
        replica._look()

    monkeypatch.setattr(loads, "_measure", measure)
    assert longest_turn_s(lambda: all_looked_at(loads.run())) < TURN_S


def test_a_look_at_the_disk_takes_no_long_turn(tmp_path: Path) -> None:
    watch = DiskWatch(
        room=DiskRoom(1, 0), places=[tmp_path], host=slow_host(), handover=UNUSED,
        on_change=UNUSED, wal=UNUSED, wal_directory=tmp_path, metrics=Metrics(),
    )  # fmt: skip
    assert longest_turn_s(lambda: all_looked_at(watch.look())) < TURN_S


def test_a_page_of_metrics_goes_over_the_replicas_once() -> None:
    """Each of six gauges went over all of them, which held the loop for 42 ms together."""
    replicas = {n: SimpleNamespace(group=SimpleNamespace(role="leader", idle=True)) for n in (1, 2)}
    looks = []

    class Counted:
        damaged = halted = ()
        empty = SimpleNamespace(bytes=0)
        store = SimpleNamespace(block_bytes=0, columns=empty, copies=empty)

        @property
        def groups(self) -> Any:
            looks.append(1)
            return replicas

    async def page() -> bytes:
        metrics = Metrics()
        wal = SimpleNamespace(file_count=1, groups={})
        Maintenance(
            host=cast("Any", Counted()), wal=cast("Any", wal), sync=UNUSED, rounds=UNUSED,
            flusher=UNUSED, metrics=metrics, room=UNUSED,
        )  # fmt: skip
        return metrics.exposition()

    shown = asyncio.run(page())
    assert b'lognode_replicas{role="leader"} 2.0' in shown
    assert b"lognode_idle_replicas 2.0" in shown
    assert len(looks) == 1


@pytest.mark.parametrize(("files", "kept"), [(2, 0), (7, RANGES)])
def test_the_logs_of_resting_groups_cost_turns_only_while_there_are_too_many_files(
    files: int, kept: int
) -> None:
    """Each of 1,000 groups at rest took a turn of the loop every five seconds, for nothing."""
    rewritten: list[GroupId] = []
    groups = {GroupId(range_id, 1): SimpleNamespace(oldest_file=1) for range_id in range(RANGES)}
    wal = SimpleNamespace(
        file_count=files, groups=groups, oldest_pins=lambda: dict.fromkeys(groups, 1),
        rewrite=rewritten.append,
    )  # fmt: skip
    host = SimpleNamespace(groups={}, damaged=(), halted=())

    async def main() -> int:
        upkeep = Maintenance(
            host=cast("Any", host), wal=cast("Any", wal), sync=UNUSED, flusher=UNUSED,
            rounds=cast("Any", SimpleNamespace(kick=lambda: None)), metrics=Metrics(),
            room=cast("Any", SimpleNamespace(level=0)),
        )  # fmt: skip
        looking, turns = asyncio.ensure_future(upkeep._unpin_wal()), 0
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(main()) < RANGES // 16
    assert len(rewritten) == kept
