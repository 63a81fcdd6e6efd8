"""Records that wait for a log of the cluster: order, retries, what is lost."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lognode.client.protocol.errors import Unavailable
from lognode.node.audit import system_log
from lognode.node.audit.system_log import WAITING_MAX, SystemLog


class Log:
    """Takes appends; refuses while `down`."""

    def __init__(self) -> None:
        self.down = False
        self.found: list[dict[str, Any]] = []
        self.calls = 0
        self.during: list[Any] = []

    async def append(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        self.calls += 1
        while self.during:
            self.during.pop()()
        if self.down:
            raise Unavailable("no leader")
        self.found += [json.loads(value) for _, value in records]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come true")


async def settled(log: SystemLog) -> None:
    await until(lambda: not log.waiting)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_log, "_LINGER_S", 0)
    monkeypatch.setattr(system_log, "_RETRY_S", 0)


def run(test: Any) -> None:
    async def whole() -> None:
        log = Log()
        records = SystemLog("_audit", log.append)
        task = asyncio.create_task(records.run())
        try:
            await test(log, records)
        finally:
            task.cancel()

    asyncio.run(whole())


def test_records_arrive_in_order_and_in_batches() -> None:
    async def test(log: Log, records: SystemLog) -> None:
        for number in range(1_200):
            records.put(b"k", {"n": number})
        await settled(records)
        assert [record["n"] for record in log.found] == list(range(1_200))
        assert log.calls == 3

    run(test)


def test_a_log_that_cannot_be_written_gets_everything_later() -> None:
    async def test(log: Log, records: SystemLog) -> None:
        log.down = True
        records.put(b"k", {"n": 1})
        await until(lambda: log.calls >= 3)
        records.put(b"k", {"n": 2})
        log.down = False
        await settled(records)
        assert [record["n"] for record in log.found] == [1, 2]
        assert records.lost == 0

    run(test)


def test_X1_X7_waiting_records_are_bounded_and_lost_ones_are_counted() -> None:
    async def test(log: Log, records: SystemLog) -> None:
        for number in range(WAITING_MAX + 7):
            records.put(b"k", {"n": number})
        assert records.waiting == WAITING_MAX
        await settled(records)
        assert log.found[0] == {"n": 7, "lost": 7}
        assert len(log.found) == WAITING_MAX
        assert not any("lost" in record for record in log.found[1:])

    run(test)


@pytest.mark.parametrize("many", [1, 499, 500, 501, 2_000])
def test_X7_records_dropped_while_they_are_written_are_not_lost(many: int) -> None:
    async def test(log: Log, records: SystemLog) -> None:
        def more() -> None:
            for number in range(many):
                records.put(b"k", {"n": WAITING_MAX + number})

        for number in range(WAITING_MAX):
            records.put(b"k", {"n": number})
        log.during.append(more)
        await settled(records)
        numbers = [record["n"] for record in log.found]
        lost = sum(record.get("lost", 0) for record in log.found)
        assert numbers == sorted(set(numbers))
        assert len(numbers) + lost == WAITING_MAX + many
        assert lost == max(0, many - 500)

    run(test)
