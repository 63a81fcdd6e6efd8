"""Parts that read what others say are begun again after a bug; what is wrong here ends the node."""

import asyncio
import logging

import pytest

from lognode.client.protocol.errors import Unavailable
from lognode.client.protocol.invariants import DiskFailure, InvariantError
from lognode.node.metrics import Metrics
from lognode.node.runtime import supervision
from lognode.node.runtime.supervision import supervised


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_PAUSE_FIRST_S", 0.001)


@pytest.mark.parametrize("error", [KeyError("leaders"), TypeError("a bug"), Unavailable("later")])
def test_L4_a_part_that_meets_a_bug_is_begun_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """One answer without a field ended the node that had asked."""
    begun: list[int] = []

    async def part() -> None:
        begun.append(1)
        if len(begun) < 4:
            raise error

    metrics = Metrics()
    caplog.set_level(logging.ERROR)
    asyncio.run(asyncio.wait_for(supervised("heartbeat", part, metrics), 10))
    assert len(begun) == 4
    assert metrics.restarted_parts.labels("heartbeat")._value.get() == 3.0
    assert ["this is a bug" in record.message for record in caplog.records] == [True] * 3


@pytest.mark.parametrize("error", [InvariantError("broken"), DiskFailure("gone")])
def test_a_broken_invariant_and_a_failed_disk_end_the_node(error: Exception) -> None:
    async def part() -> None:
        raise error

    with pytest.raises(type(error)):
        asyncio.run(supervised("heartbeat", part, Metrics()))


def test_a_part_that_is_cancelled_ends() -> None:
    async def main() -> None:
        async def part() -> None:
            await asyncio.sleep(60)

        task = asyncio.ensure_future(supervised("heartbeat", part, Metrics()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
