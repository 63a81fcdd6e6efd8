"""S1: what goes on with how much room on the disk, decided without a disk."""

import asyncio
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.node import disk_watch
from lognode.node.disk_room import DiskRoom, Level, level_of, next_look_s
from lognode.node.disk_watch import DiskWatch
from lognode.node.logs import JsonFormatter
from lognode.node.metrics import Metrics

RESERVE = 800


@pytest.mark.parametrize(
    ("free", "level"),
    [(801, Level.AMPLE), (800, Level.AMPLE), (799, Level.LOW), (400, Level.LOW),
     (399, Level.SCARCE), (200, Level.SCARCE), (199, Level.LAST), (0, Level.LAST)],
)  # fmt: skip
def test_S1_the_less_room_the_less_goes_on(free: int, level: Level) -> None:
    assert level_of(free, RESERVE, Level.AMPLE) is level
    assert level_of(free, 0, Level.AMPLE) is Level.AMPLE


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
            on_change=lambda: changes.append(room.free),
        )  # fmt: skip
        for free[0] in (900, 799, 798, 300, 299, 500, 10_000, 10_000):
            await watch.look()

    caplog.set_level(logging.INFO, "lognode.disk")
    asyncio.run(run())
    assert changes == [799, 300, 500, 10_000]
    assert caplog.messages == [
        "little disk is left: appends to ranges led here are refused", "less disk is left",
        "more disk is left, and little", "the disk has room again",
    ]  # fmt: skip
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line["level"], line["disk_level"]) for line in lines] == [
        ("warning", "LOW"), ("warning", "SCARCE"), ("info", "LOW"), ("info", "AMPLE"),
    ], "alerts on warnings see a disk that fills"  # fmt: skip


def test_what_takes_room_ceases_step_by_step() -> None:
    room = DiskRoom(1, RESERVE)
    allowed = {}
    for free in (800, 799, 399, 199):
        room.saw(free)
        allowed[free] = (room.has_room(1), room.may_fetch, room.may_build(10**6))
        assert room.may_build(99), "what retention waits for before it can free anything"
    assert allowed == {
        800: (True, True, True), 799: (False, True, True), 399: (False, False, True),
        199: (False, False, False),
    }  # fmt: skip
