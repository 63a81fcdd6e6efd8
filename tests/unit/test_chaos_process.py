"""What a process of a live test records of an operation, by how it ended."""

import asyncio
import random
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from lognode.chaos.history import Event, Recorder
from lognode.chaos.process import BUG, Pace, Process, Retired
from lognode.client.protocol.errors import LognodeError, SequenceMismatch, Timeout, Unavailable


async def _answer(given: Any) -> dict[str, Any]:
    if isinstance(given, BaseException):
        raise given
    return {"seqs": given}


def _events(path: Path, given: Any, *, writes: bool) -> tuple[list[Event], Any]:
    """What is recorded of one operation that answers or raises `given`, and the result."""

    async def run() -> tuple[list[Event], Any]:
        recorder = Recorder(path, lambda: 7)
        rng = random.Random(0)
        process = Process(
            3, "lognode://127.0.0.1:1", "log", recorder, rng, pace=Pace(1, rng), nodes=3,
            timeout_s=1,
        )  # fmt: skip
        try:
            came: Any = await process.call("append", {"records": []}, _answer(given), writes=writes)
        except (Retired, asyncio.CancelledError) as error:
            came = type(error)
        await process.close()
        return recorder.close().events, came  # type: ignore[return-value]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "writes", "ended", "comes"),
    [
        ([4], True, "ok", {"seqs": [4]}),
        (Timeout("late", outcome="unknown"), True, "info", Retired),
        (Timeout("late", outcome="not_applied"), True, "fail", None),
        (Timeout("late", outcome="unknown"), False, "fail", None),
        (Unavailable("nobody"), True, "fail", None),
        (asyncio.CancelledError(), True, "info", asyncio.CancelledError),
        (asyncio.CancelledError(), False, "fail", asyncio.CancelledError),
        (ValueError("what"), False, "info", Retired),
    ],
)  # fmt: skip
def test_an_operation_ends_as_its_answer_says(
    tmp_path: Path, given: Any, writes: bool, ended: str, comes: Any
) -> None:
    events, came = _events(tmp_path / "history", given, writes=writes)
    assert [event.type for event in events] == ["invoke", ended]
    assert came == comes
    if isinstance(given, LognodeError):
        assert events[1].error == f"{given.code}: {given.message}"


def test_an_error_that_is_not_the_sdks_is_a_bug(tmp_path: Path) -> None:
    events, _ = _events(tmp_path / "history", ValueError("what"), writes=True)
    assert events[1].error == f"{BUG}: ValueError('what')"


def test_a_failed_condition_tells_the_last_seq(tmp_path: Path) -> None:
    failed = SequenceMismatch("no", key=b"k", expected=1, actual=5)
    events, came = _events(tmp_path / "history", failed, writes=True)
    assert events[1].type == "fail"
    assert events[1].value == {"last": 5}
    assert came is None


def test_the_pace_keeps_its_rate_and_makes_up_for_nothing() -> None:
    async def run(tasks: int, seconds: float, pause: float) -> int:
        pace = Pace(1000, random.Random(1))
        count = 0

        async def one() -> None:
            nonlocal count
            while True:
                await pace.turn()
                count += 1

        await pace.turn()
        await asyncio.sleep(pause)
        running: list[Awaitable[Any]] = [asyncio.create_task(one()) for _ in range(tasks)]
        _, pending = await asyncio.wait(running, timeout=seconds)  # type: ignore[type-var]
        for task in pending:
            task.cancel()  # type: ignore[attr-defined]
        return count

    assert asyncio.run(run(8, 0.5, pause=1.0)) < 700
