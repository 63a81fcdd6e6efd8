"""`scripts/bench groups` finds what consumers left out, did twice, or did out of order."""

import asyncio
import time
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from benchmarks.groups import on_kafka, on_lognode, run
from benchmarks.groups.appends import Records
from benchmarks.groups.plan import DELIVERIES_MAX, POISON, Plan
from benchmarks.groups.verdict import Verdict
from benchmarks.groups.work import Done, Tally, Work, read

from lognode import CorruptData

PLAN = Plan("lognode", "group", [], "", 10, 128, 4, 2, 1)


def done(key: int, nth: int, begun: float, called: float, *, by: int = 1, due: float = 0.0) -> Done:
    return Done(key, nth, by, due, begun, called, called + 0.1)


def counts(*rows: Done, appended: tuple[int, ...] = (0, 3), **more: Any) -> tuple[int, int, int]:
    found = Verdict(rows, appended, 0.0, **more)
    return found.missing, found.repeated, found.out_of_order


def work_in(directory: Path, process: int = 0, **more: Any) -> tuple[Plan, Work]:
    plan = replace(PLAN, directory=str(directory), **more)
    if not plan.tally.exists():
        Tally.create(plan.tally, plan.processes)
    return plan, Work(plan, process)


def test_items_one_after_the_other_by_several_consumers_are_right() -> None:
    rows = done(1, 0, 1.0, 1.5), done(1, 1, 1.6, 1.9, by=2), done(1, 2, 2.0, 2.1)
    assert counts(*rows) == (0, 0, 0)


def test_missing_items_are_found_in_the_middle_and_at_the_end() -> None:
    assert counts(done(1, 0, 1.0, 1.5), done(1, 2, 1.6, 1.9)) == (1, 0, 0)
    assert counts(done(1, 0, 1.0, 1.5)) == (2, 0, 0)
    assert counts() == (3, 0, 0)
    assert counts(without=(1,)) == (0, 0, 0)


def test_an_item_that_two_consumers_acknowledge_is_repeated() -> None:
    rows = done(1, 0, 1.0, 1.5), done(1, 0, 1.7, 1.8, by=2), done(1, 1, 2.0, 2.1)
    assert counts(*rows, appended=(0, 2)) == (0, 1, 0)


def test_an_item_that_begins_before_the_item_before_is_acknowledged_is_out_of_order() -> None:
    rows = done(1, 0, 1.0, 1.5), done(1, 1, 1.4, 1.6, by=2)
    assert counts(*rows, appended=(0, 2)) == (0, 0, 1)
    rows = done(1, 0, 1.0, 1.5), done(1, 1, 1.4, 1.6)  # also of one consumer
    assert counts(*rows, appended=(0, 2)) == (0, 0, 1)


def test_the_items_of_a_batch_are_in_order() -> None:
    rows = done(1, 0, 1.0, 1.5), done(1, 1, 1.1, 1.5), done(1, 2, 1.2, 1.5)
    assert counts(*rows) == (0, 0, 0)


def test_an_item_that_nobody_appended_fails_the_run() -> None:
    with pytest.raises(CorruptData):
        counts(done(1, 3, 1.0, 1.5))


def test_a_key_stands_from_when_it_has_something_to_do_and_nobody_has_it() -> None:
    rows = (
        done(1, 0, 1.0, 3.0, due=0.5),
        done(1, 1, 3.2, 3.3, due=1.0),
        done(1, 2, 9.0, 9.5, due=8.0),
    )
    found = Verdict(rows, (0, 3), 0.0)
    assert list(found.stood) == pytest.approx([0.5, 0.2, 1.0])
    assert list(found.latency) == pytest.approx([0.5, 2.2, 1.0])
    assert list(Verdict(rows, (0, 3), 1.0).latency) == pytest.approx([1.0])
    assert found.interval == pytest.approx((1.0, 9.6))


def test_work_is_read_as_it_was_done_and_counted_by_all_processes(tmp_path: Path) -> None:
    rows = []
    for process in range(PLAN.processes):
        plan, work = work_in(tmp_path, process)
        key = plan.stamps.key(process)
        items = [work.begin(key, plan.stamps.value(key, nth, 1.0 + nth)) for nth in (0, 65_000)]
        called = time.perf_counter()
        work.end(7, items, called)
        work.write(plan.done(process))
        rows = list(read(plan.done(process)))
        assert [(row.key, row.nth, row.consumer) for row in rows] == [
            (process, 0, 7), (process, 65_000, 7),
        ]  # fmt: skip
        assert [row.due for row in rows] == [1.0, 65_001.0]
        assert all(row.begun <= row.called == called <= row.ended for row in rows)
    assert Tally(plan.tally, 0).sum() == 4


def test_a_value_of_another_key_fails_the_run(tmp_path: Path) -> None:
    plan, work = work_in(tmp_path)
    with pytest.raises(CorruptData):
        work.begin(plan.stamps.key(1), plan.stamps.value(plan.stamps.key(2), 0, 0.0))


def test_kafka_tries_the_poison_key_and_then_leaves_the_item_out(tmp_path: Path) -> None:
    plan, work = work_in(tmp_path, fails=True)
    keys = [plan.stamps.key(number) for number in (POISON, POISON + 1)]
    bad, good = (work.begin(key, plan.stamps.value(key, 0, 0.0)) for key in keys)
    assert on_kafka.done(good, work)
    assert not on_kafka.done(bad, work)
    assert work.failed == DELIVERIES_MAX


def test_records_go_to_all_keys_in_order_in_bursts_and_some_to_the_poison_key() -> None:
    in_order = Records(replace(PLAN, in_order=True))
    in_order.draw(25, 0.0)
    assert list(in_order.counts) == [3] * 5 + [2] * 5
    bursts = Records(replace(PLAN, keys=1_000_000, burst=10))
    keys = [key for key, _ in bursts.draw(95, 0.0)]
    assert [len(list(same)) for _, same in groupby(keys)] == [10] * 9 + [5]
    poisoned = Records(replace(PLAN, keys=1_000_000, poison_every=10))
    drawn = poisoned.draw(1_000, 2.5)
    assert poisoned.counts[POISON] >= 100
    stamps = PLAN.stamps
    own = [value for key, value in drawn if key == stamps.key(POISON)]
    assert [stamps.nth(stamps.key(POISON), value, 0) for value in own] == list(range(len(own)))


class _Slow:
    """A consumer whose flush takes until it is let go on."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def flush(self) -> None:
        await self.may_end.wait()


def test_a_consumer_that_leaves_within_a_flush_counts_what_it_acknowledged(tmp_path: Path) -> None:
    plan, work = work_in(tmp_path)
    key = plan.stamps.key(3)

    async def leave() -> None:
        slow = _Slow()
        consumer = on_lognode.Consumer(1, work, slow)  # type: ignore[arg-type]
        item = work.begin(key, plan.stamps.value(key, 0, 0.0))
        consumer.sent.append(([item], time.perf_counter()))
        flushing = asyncio.create_task(consumer.settled())
        await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.wait([flushing])
        assert work.acknowledged == 0
        slow.may_end.set()
        await consumer.settled()
        await consumer.settled()

    asyncio.run(leave())
    assert work.acknowledged == 1


def test_a_turn_fails_for_what_its_system_promises() -> None:
    fine = {"missing": 0, "repeated": 0, "out of order": 0}
    for what in fine:
        wrong = {**fine, what: 1}
        assert run.is_wrong({"system": "lognode", **wrong})
        assert run.is_wrong({"system": "nats", **wrong}) == (what == "missing")
    assert not run.is_wrong({"system": "lognode", **fine})
    assert run.is_wrong({"system": "lognode", "failed": "ended"})
    assert not run.is_wrong({"system": "kafka", "refused": "no java on PATH"})


def test_a_plan_goes_from_process_to_process() -> None:
    assert Plan.from_text(PLAN.to_text()) == PLAN
