"""When faults begin and end, and what the history says of them."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lognode.chaos.history import History, Recorder
from lognode.chaos.nemesis import Nemesis
from lognode.client.protocol.errors import Conflict

_INTERVAL_S = 0.005


class _Package:
    """Counts what is under way; `result` is what its begin answers or raises."""

    def __init__(self, name: str, result: Any = ("it", [1])) -> None:
        self.name = name
        self.result = result
        self.open = self.begun = 0

    def missing(self) -> str | None:
        return None

    async def begin(self, target: Any) -> Any:
        self.begun += 1
        self.open += 1
        await asyncio.sleep(0)
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is None:
            self.open -= 1
        return self.result

    async def end(self, target: Any) -> None:
        self.open = 0


def _run(path: Path, packages: list[_Package], until: Callable[[], bool], seed: int = 0) -> History:
    async def enough() -> None:
        while not until():  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(_INTERVAL_S)

    async def run() -> History:
        recorder = Recorder(path, lambda: 0)
        given: Any = {package.name: package for package in packages}
        target: Any = None
        nemesis = Nemesis(given, target, recorder, interval_s=_INTERVAL_S, rng=random.Random(seed))
        running = asyncio.create_task(nemesis.run())
        await asyncio.wait_for(enough(), timeout=60)
        running.cancel()
        await asyncio.wait([running])
        await nemesis.heal()
        return recorder.close()

    return asyncio.run(run())


def test_every_package_has_its_turn_and_ends(tmp_path: Path) -> None:
    packages = [_Package(name) for name in "abc"]
    history = _run(tmp_path / "h", packages, lambda: all(package.begun > 3 for package in packages))
    assert all(package.open == 0 for package in packages)
    assert len(history.bands()) == sum(package.begun for package in packages)
    assert all(band.ended is not None for band in history.bands())


def test_a_fault_that_fails_to_begin_is_ended_and_recorded(tmp_path: Path) -> None:
    package = _Package("a", Conflict("not now"))
    history = _run(tmp_path / "h", [package], lambda: package.begun > 0)
    assert package.open == 0
    assert history.bands()[0].what == "a that failed: CONFLICT: not now"


def test_a_fault_without_a_target_leaves_no_trace(tmp_path: Path) -> None:
    package = _Package("a", None)
    history = _run(tmp_path / "h", [package], lambda: package.begun > 0)
    assert history.events == []


def test_a_fault_begins_when_it_is_begun_not_when_that_is_done(tmp_path: Path) -> None:
    async def run() -> History:
        times = iter(range(0, 1_000, 10))
        recorder = Recorder(tmp_path / "h", lambda: next(times))
        given: Any = {"a": _Package("a")}
        target: Any = None
        nemesis = Nemesis(given, target, recorder, interval_s=9, rng=random.Random(0))
        running = asyncio.create_task(nemesis.run())
        await asyncio.wait([running], timeout=0.1)
        running.cancel()
        await asyncio.wait([running])
        await nemesis.heal()
        return recorder.close()

    history = asyncio.run(run())
    assert [event.time for event in history.events] == [10, 20]
    assert [(band.began, band.ended) for band in history.bands()] == [(0, 20)]


def test_a_quarter_of_the_time_nothing_is_broken(tmp_path: Path) -> None:
    package = _Package("a")
    recorder = Recorder(tmp_path / "h", lambda: 0)
    target: Any = None
    given: Any = {"a": package}
    nemesis = Nemesis(given, target, recorder, interval_s=1, rng=random.Random(5))
    chosen = [len(nemesis.chosen()) for _ in range(1000)]
    recorder.close()
    assert 200 < chosen.count(0) < 300


def test_few_packages_break_things_at_once_however_many_are_chosen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "h", lambda: 0)
    target: Any = None
    given: Any = {name: _Package(name) for name in "abcdefgh"}
    nemesis = Nemesis(given, target, recorder, interval_s=1, rng=random.Random(5))
    chosen = [nemesis.chosen() for _ in range(1000)]
    recorder.close()
    assert {len(some) for some in chosen} == {0, 1, 2, 3}
    assert {name for some in chosen for name in some} == set("abcdefgh")
