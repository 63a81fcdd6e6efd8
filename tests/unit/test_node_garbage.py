"""Collections of what is old come when it has doubled, and not in the middle of operations."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lognode.node.runtime import garbage
from lognode.node.runtime.garbage import Garbage, only_the_young, uncollected


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """As a node has it."""
    before = gc.get_threshold()
    only_the_young()
    with _watched:
        yield
    gc.set_threshold(*before)


_watched = ExitStack()


def watched(looks: Garbage) -> Garbage:
    """The object as it is while it runs, until the end of the test."""
    _watched.enter_context(looks.watching())
    return looks


def collections() -> int:
    """Of what is old, by anyone, so far."""
    count: int = gc.get_stats()[2]["collections"]
    return count


def cycles(count: int) -> list[Any]:
    """Lists of themselves."""
    made: list[Any] = []
    for _ in range(count):
        itself: list[Any] = []
        itself.append(itself)
        made.append(itself)
    return made


def test_young_garbage_is_collected_and_old_garbage_only_on_demand() -> None:
    before = collections()
    alive = cycles(300_000)
    assert collections() == before
    assert len(gc.get_objects(generation=2)) > 0.9 * len(alive)
    found = sum(each["collected"] for each in gc.get_stats()[:2])
    for _ in range(100):
        cycles(1_000)
    assert sum(each["collected"] for each in gc.get_stats()[:2]) - found > 50_000
    assert collections() == before


def test_imported_modules_are_looked_at_no_more() -> None:
    assert gc.get_freeze_count() > 10_000


def test_a_collection_is_due_when_objects_have_doubled_and_no_request_runs() -> None:
    calm = [True]
    looks = watched(Garbage(lambda: calm[0]))
    assert not looks.is_due(0.0)
    alive = cycles(garbage._GROWTH_MIN + 20_000)
    calm[0] = False
    assert not looks.is_due(1.0)
    calm[0] = True
    assert looks.is_due(2.0)
    before = collections()
    looks.collect()
    assert collections() == before + 1
    assert not looks.is_due(3.0)
    # As much again is not twice as much and what is worth it.
    more = cycles(len(alive))
    assert not looks.is_due(4.0)
    more += cycles(len(alive))
    assert looks.is_due(5.0)


def test_a_collection_waits_at_most_a_minute_for_a_calm_moment() -> None:
    looks = watched(Garbage(lambda: False))
    alive = cycles(garbage._GROWTH_MIN + 20_000)
    assert not looks.is_due(10.0)
    assert not looks.is_due(10.0 + garbage._CALM_S)
    assert looks.is_due(10.1 + garbage._CALM_S)
    looks.collect()
    assert not looks.is_due(10.2 + garbage._CALM_S)
    assert alive


def test_old_objects_are_counted_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def count(**how: Any) -> list[Any]:
        counted.append(how)
        return get_objects(**how)

    get_objects = gc.get_objects
    monkeypatch.setattr(gc, "get_objects", count)
    looks = watched(Garbage(lambda: True))
    alive = []
    for at in range(250):
        cycles(2_000)  # garbage that the next young collection frees
        alive += cycles(800)
        if looks.is_due(float(at)):
            looks.collect()
    # 100,000 more are a reason to collect, which counts twice; then 300,000 more would be.
    assert len(counted) == 2


def test_objects_that_were_freed_meanwhile_cause_no_collection() -> None:
    looks = watched(Garbage(lambda: True))
    for at in range(5):
        alive = cycles(60_000)
        assert not looks.is_due(float(at))
        for each in alive:
            each.clear()  # freed by the count of references
        del alive


def test_many_ended_connections_are_a_reason_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few containers hold much memory where each has a TLS connection."""
    now, ended = 0.0, 0
    monkeypatch.setattr(garbage.time, "monotonic", lambda: now)
    looks = Garbage(lambda: True, lambda: ended)
    assert not looks.is_due(now)
    ended = garbage._ENDED_MAX - 1
    assert not looks.is_due(now)
    ended += 1
    assert looks.is_due(now)
    looks.collect()
    now, ended = garbage._ENDED_EVERY_S - 0.1, 10 * garbage._ENDED_MAX
    assert not looks.is_due(now)
    now = 1_000.0
    assert looks.is_due(now)
    looks.collect()
    now = 2_000.0
    assert not looks.is_due(now)


def test_collections_for_ended_connections_take_a_hundredth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, ended, took_s = 0.0, 1_000, 2.0

    def collect() -> int:
        nonlocal now
        now += took_s
        return 0

    monkeypatch.setattr(garbage.time, "monotonic", lambda: now)
    monkeypatch.setattr(garbage.time, "perf_counter", lambda: now)
    monkeypatch.setattr(gc, "collect", collect)
    looks = Garbage(lambda: True, lambda: ended)
    assert looks.is_due(now)
    looks.collect()
    ended = 5_000
    now = 199.0
    assert not looks.is_due(now)
    now = 203.0
    assert looks.is_due(now)


def test_nothing_is_collected_while_modules_are_imported() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
