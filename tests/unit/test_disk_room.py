"""S1: what goes on with how much room on the disk, decided without a disk."""

import asyncio
import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lognode.client.protocol import limits
from lognode.node.directory.disk_room import (
    DiskRoom,
    Level,
    file_bytes,
    level_of,
    next_look_s,
    reserve_bytes,
)
from lognode.node.metrics import Metrics
from lognode.node.runtime.logs import JsonFormatter
from lognode.node.upkeep import disk_watch
from lognode.node.upkeep.disk_watch import DiskWatch

RESERVE = 800


@pytest.mark.parametrize(
    ("free", "level"),
    [(801, Level.AMPLE), (800, Level.AMPLE), (799, Level.LOW), (400, Level.LOW),
     (399, Level.SCARCE), (200, Level.SCARCE), (199, Level.LAST), (0, Level.LAST)],
)  # fmt: skip
def test_S1_the_less_room_the_less_goes_on(free: int, level: Level) -> None:
    assert level_of(free, RESERVE, Level.AMPLE) is level


def test_a_level_is_left_only_with_some_room_more_than_where_it_began() -> None:
    assert level_of(810, RESERVE, Level.LOW) is Level.LOW
    assert level_of(920, RESERVE, Level.LOW) is Level.AMPLE
    assert level_of(410, RESERVE, Level.SCARCE) is Level.SCARCE
    assert level_of(460, RESERVE, Level.SCARCE) is Level.LOW
    # However much there is at once.
    assert level_of(460, RESERVE, Level.LAST) is Level.LOW
    assert level_of(10_000, RESERVE, Level.LAST) is Level.AMPLE


def test_the_nearer_the_reserve_the_sooner_the_next_look() -> None:
    gib = 1 << 30
    assert next_look_s(100 * gib, gib) == 5.0
    assert next_look_s(2 * gib, gib) == 2.0
    assert next_look_s(gib, gib) == next_look_s(0, gib) == 0.25


def test_S1_appends_are_refused_without_room_here_or_at_most_members() -> None:
    room = DiskRoom(1, RESERVE)
    assert room.saw(10_000) is False
    assert room.refusal((1, 2, 3)) is None
    room.told(2, 5)
    assert room.refusal((1, 2, 3)) is None, "a majority has room"
    assert room.refusal((1, 2)) is not None, "both are needed"
    room.told(3, 5)
    refusal = room.refusal((1, 2, 3))
    assert refusal is not None
    assert (refusal.code, refusal.outcome) == ("OVERLOADED", "not_applied")
    assert "node 2, 3" in refusal.message
    assert refusal.fields["retry_after"] > 0
    assert room.refusal((1, 4, 5)) is None
    room.told(3, None)
    assert room.refusal((1, 2, 3)) is None
    assert room.saw(799) is True
    assert room.short == {1: 799, 2: 5}
    assert room.refusal((1,)) is not None
    assert room.refusal((1, 4, 5)) is not None


def test_a_change_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast the disk fills, and however often it is looked at."""
    room, free = DiskRoom(1, RESERVE), [0]
    changes: list[int] = []
    host: Any = SimpleNamespace(ranges=list)
    unused: Any = None
    monkeypatch.setattr(disk_watch, "_free", lambda places: free[0])

    async def run() -> None:
        watch = DiskWatch(
            room=room, places=[tmp_path], host=host, handover=unused, metrics=Metrics(),
            on_change=lambda: changes.append(room.free), wal=unused, wal_directory=tmp_path,
        )  # fmt: skip
        for free[0] in (900, 799, 798, 300, 299, 500, 10_000, 10_000):
            await watch.look()

    caplog.set_level(logging.INFO, "lognode.disk")
    asyncio.run(run())
    assert changes == [799, 300, 500, 10_000]
    assert caplog.messages == [
        "the disk has little space: ranges that this node leads refuse appends", "the disk has "
                                                                                 "less space than "
                                                                                 "before",
        "the disk has more space than before, but still little", "the disk has enough space again",
    ]  # fmt: skip
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line["level"], line["disk_level"]) for line in lines] == [
        ("warning", "LOW"), ("warning", "SCARCE"), ("info", "LOW"), ("info", "AMPLE"),
    ], "alerts on warnings see a disk that fills"  # fmt: skip


def test_activities_that_need_disk_space_stop_step_by_step() -> None:
    room = DiskRoom(1, RESERVE)
    allowed = {}
    for free in (800, 799, 399, 199):
        room.saw(free)
        allowed[free] = (room.has_room(1), room.may_fetch, room.may_build(150))
        assert room.may_build(79), "what retention waits for before it can free anything"
    assert allowed == {
        800: (True, True, True), 799: (False, True, True), 399: (False, False, True),
        199: (False, False, False),
    }  # fmt: skip
    room.saw(800)
    assert not room.may_build(700), "it would leave less than the last room"
    room.saw(799)
    assert not room.may_build(500), "its file would have 625 bytes"
    assert room.may_build(479)


def test_S1_memtables_count_as_if_their_segments_were_built() -> None:
    """Memory was full of what had no room to become a segment, and nothing ever made room."""
    room = DiskRoom(1, RESERVE)
    assert room.saw(2_000, 960) is False
    assert room.saw(2_000, 961) is True
    assert (room.level, room.free, room.to_use) == (Level.LOW, 2_000, 799)
    assert room.may_build(961)
    assert room.saw(2_000, 1_500) is True
    assert not room.takes_entries()
    assert room.may_build(1_440), "there is room for that, and it is what makes room"
    assert room.saw(2_000, 0) is True
    assert room.takes_entries()


def test_S1_bytes_since_the_last_check_count() -> None:
    """At 60 MB/s as much came between two looks as the reserve was."""
    room = DiskRoom(1, RESERVE)
    room.spent(10**9)
    assert room.level is Level.AMPLE, "nobody has looked yet"
    room.saw(2_000)
    room.spent(532)
    assert room.level is Level.AMPLE
    room.spent(4)
    assert (room.level, room.to_use) == (Level.LOW, 794)
    room.spent(300)
    assert not room.takes_entries()
    room.saw(2_000, 0)
    assert room.level is Level.AMPLE


def test_S1_the_reserve_is_two_wal_files_at_least() -> None:
    mib = 1 << 20
    assert reserve_bytes(0, 64 * mib) == 128 * mib
    assert reserve_bytes(512 * mib, 64 * mib) == 512 * mib
    assert reserve_bytes(100 * mib, 64 * mib) == 128 * mib
    assert reserve_bytes(0, 1 << 16) == 2 * limits.entry_bytes_max, "an entry makes a larger file"


def test_memtables_are_smaller_where_segments_of_them_would_not_fit() -> None:
    room = DiskRoom(1, 100 << 20)
    assert room.memtables_bytes_max == limits.memtables_bytes_max, "nobody has looked yet"
    for free_mib, allowed_mib in ((4_096, 512), (300, 100), (120, 10), (100, 4), (0, 4)):
        room.saw(free_mib << 20)
        assert room.memtables_bytes_max == allowed_mib << 20


class FakeWal:
    """A WAL of files of 100 bytes."""

    file_bytes = 100 << 20

    def __init__(self) -> None:
        self.has_spare = False
        self.is_full = False

    def make_spare(self, _: Callable[[str], None]) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "full")
        self.has_spare = True


def test_S1_entries_are_not_taken_where_no_wal_file_could_be_begun(tmp_path: Path) -> None:
    """A follower took entries until its disk was full, and ended."""
    room, wal = DiskRoom(1, 200 << 20), FakeWal()
    unused: Any = None
    watch = DiskWatch(
        room=room, places=[tmp_path], host=unused, handover=unused, metrics=Metrics(),
        on_change=lambda: None, wal=wal, wal_directory=tmp_path,  # type: ignore[arg-type]
    )  # fmt: skip

    def looked(free_mib: int) -> tuple[bool, bool, int | None]:
        room.saw(free_mib << 20)
        asyncio.run(watch._make_spare())
        return wal.has_spare, room.takes_entries(), room.told_free

    assert looked(1_000) == (True, True, None)
    assert looked(60) == (True, True, 60 << 20), "the next file is there"
    assert looked(40) == (True, False, 0), "the rest is for what is in memory"
    wal.has_spare = False  # it was begun
    assert looked(103) == (False, False, 0), "making one would leave nothing for anything else"
    refusal = room.growth_refusal((1, 2, 3))
    assert refusal is not None
    assert "the disk of node 1 is full" in refusal.message
    assert room.growth_refusal((2, 3)) is None
    wal.is_full = True
    assert looked(150) == (False, False, 0), "somebody else took the room"
    wal.is_full = False
    assert looked(150) == (True, True, 150 << 20)
    assert room.growth_refusal((1, 2, 3)) is None
    room.told(3, 0)
    room.told(2, 2 << 20)
    assert room.exhausted_others == {3}
    assert room.growth_refusal((1, 2)) is None
    assert room.growth_refusal((1, 2, 3)) is not None
    assert looked(40)[0] is True
    assert room.growth_refusal((1,)) is None
    assert looked(0)[0] is True
    assert room.growth_refusal((1,)) is not None, "the next file is there, and nothing else"


def test_the_next_wal_file_is_made_as_soon_as_one_was_begun(tmp_path: Path) -> None:
    """A round that finds no file ahead writes 64 MiB of zeros before its entries."""
    wal = FakeWal()
    host: Any = SimpleNamespace(ranges=list, send_no_entries=lambda _: None)
    unused: Any = None
    watch = DiskWatch(
        room=DiskRoom(1, 1), places=[tmp_path], host=host, handover=unused,
        on_change=lambda: None, wal=wal, wal_directory=tmp_path,  # type: ignore[arg-type]
        metrics=Metrics(),
    )  # fmt: skip

    async def main() -> None:
        watching = asyncio.create_task(watch.run())
        for _ in range(3):
            async with asyncio.timeout(1.0):  # looks are seconds apart
                while not wal.has_spare:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            wal.has_spare = False
            watch.look_soon()
        watching.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(("wal_mib", "warns"), [(1, False), (1 << 40, True)])
def test_a_disk_that_is_too_small_for_an_empty_node_is_said_at_the_start(
    tmp_path: Path, wal_mib: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wal = FakeWal()
    wal.file_bytes = wal_mib << 20  # type: ignore[misc]
    unused: Any = None
    watch = DiskWatch(
        room=DiskRoom(1, 2 * wal.file_bytes), places=[tmp_path], host=unused, handover=unused,
        on_change=lambda: None, wal=wal, wal_directory=tmp_path,  # type: ignore[arg-type]
        metrics=Metrics(),
    )  # fmt: skip
    watch.check_size()
    assert bool(caplog.messages) is warns
    assert not warns or "give smaller --disk-reserve-bytes and --wal-file-bytes" in caplog.text


def test_a_node_that_stops_does_not_finish_the_file_that_it_makes_ahead(tmp_path: Path) -> None:
    """The stop of a node that had just begun waited a second for zeros to reach the disk."""
    (tmp_path / "ahead").write_bytes(bytes(8 << 20))
    given_up: list[OSError] = []

    async def stop() -> None:
        begun, loop = asyncio.Event(), asyncio.get_running_loop()

        class Made(FakeWal):
            def make_spare(self, settle: Callable[[str], None]) -> None:
                loop.call_soon_threadsafe(begun.set)
                try:
                    settle("ahead")
                except OSError as error:
                    given_up.append(error)

        host: Any = SimpleNamespace(ranges=list, send_no_entries=lambda nodes: None)
        wal, unused = Made(), cast("Any", None)
        watch = DiskWatch(
            room=DiskRoom(1, 1), places=[tmp_path], host=host, handover=unused, metrics=Metrics(),
            on_change=lambda: None, wal=wal, wal_directory=tmp_path,  # type: ignore[arg-type]
        )  # fmt: skip
        wal.file_bytes = 1
        running = loop.create_task(watch.run())
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        await watch.stop()
        # The next process may begin as soon as the node has released its directory.
        assert [type(error) for error in given_up] == [InterruptedError]

    asyncio.run(stop())


def test_entries_that_come_during_a_look_are_counted() -> None:
    """The entries in memory are counted in several turns, and appends go on in between."""
    room = DiskRoom(1, 800)
    room.saw(10_000)
    room.looking()
    room.spent(1_000)
    room.saw(10_000, 0)
    assert room.to_use == 10_000 - 1_000 - file_bytes(1_000)
    room.spent(500)
    room.saw(10_000, 500)
    assert room.to_use == 10_000 - file_bytes(500), "counted once, in memory"
