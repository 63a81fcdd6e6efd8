"""The loop of a node measures what its turns take of the processor, and not of the clock."""

import asyncio
import time

import pytest

from lognode.node.runtime import turn_time
from lognode.node.runtime.turn_time import LONG_S, TimedLoop


def busy(seconds: float) -> None:
    """Take processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_turns_of_much_processor_time_are_counted() -> None:
    async def main() -> None:
        turns = turn_time.of_running_loop()
        await asyncio.sleep(0)
        before = turns.long_turns
        turns.take_longest_s()
        for _ in range(3):
            busy(1.2 * LONG_S)
            await asyncio.sleep(0)
        assert turns.long_turns == before + 3
        assert turns.take_longest_s() > LONG_S
        for _ in range(10):  # together long, one by one not
            busy(0.2 * LONG_S)
            await asyncio.sleep(0)
        time.sleep(1.2 * LONG_S)  # noqa: ASYNC251  others have the processor
        await asyncio.sleep(2 * LONG_S)
        assert turns.long_turns == before + 3
        assert 0 < turns.take_longest_s() < LONG_S

    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        runner.run(main())


def test_short_turns_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 turns of 0.05 ms ask for the processor time 50 times, and none of them is long."""
    elapsed, spent, asked = 0.0, 0.0, 0

    def thread_time() -> float:
        nonlocal asked
        asked += 1
        return spent

    monkeypatch.setattr(turn_time.time, "perf_counter", lambda: elapsed)
    monkeypatch.setattr(turn_time.time, "thread_time", thread_time)
    turns = turn_time.TurnTime()
    for _ in range(1_000):
        elapsed += 0.01  # waiting
        turns.began(1)
        elapsed, spent = elapsed + 0.00005, spent + 0.00004
        turns.ended()
    assert 40 <= asked <= 52
    assert turns.take_longest_s() == pytest.approx(0.00005)
    turns.began(1)
    elapsed, spent = elapsed + 0.2, spent + 0.06
    turns.ended()
    assert turns.long_turns == 1
    assert 0.06 <= turns.take_longest_s() <= 0.061
    turns.began(1)
    elapsed, spent = elapsed + 0.2, spent + 0.0005  # others have the processor
    turns.ended()
    assert turns.take_longest_s() == pytest.approx(0.0005)


def test_a_loop_of_another_class_measures_nothing() -> None:
    async def main() -> None:
        turns = turn_time.of_running_loop()
        busy(1.2 * LONG_S)
        await asyncio.sleep(0)
        assert (turns.long_turns, turns.take_longest_s()) == (0, 0.0)

    asyncio.run(main())
