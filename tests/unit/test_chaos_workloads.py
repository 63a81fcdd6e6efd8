"""What workloads are made of: keys that come and go, several appends as one operation."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from lognode.chaos.history import Recorder
from lognode.chaos.plan import STANDARD, WORKLOADS, Plan
from lognode.chaos.process import Pace, Process
from lognode.chaos.workloads import kafka
from lognode.chaos.workloads.groups import refused
from lognode.chaos.workloads.named import workload_of
from lognode.chaos.workloads.parts import Keys, settled
from lognode.client.protocol.errors import Fenced, PartialFailure, Timeout, Unavailable
from lognode.client.protocol.types import Ack


def test_a_key_has_its_appends_and_makes_room_for_another() -> None:
    keys = Keys(4, 10, random.Random(1))
    appended = [keys.to_append() for _ in range(400)]
    counts = {key: appended.count(key) for key in appended}
    assert max(counts.values()) == 10
    assert len(counts) >= 40
    assert len({key[1:4] for key in counts}) > 30, "they are spread over the space of keys"


def test_keys_that_are_full_are_still_read() -> None:
    keys = Keys(2, 3, random.Random(1))
    full = {keys.to_append() for _ in range(30)}
    assert full & {keys.to_read() for _ in range(100)}


_SURE, _UNSURE = Unavailable("nobody"), Timeout("late", outcome="unknown")
_ACK = Ack(5, 0)


@pytest.mark.parametrize(
    ("acks", "raises"),
    [
        ([_ACK, _SURE], PartialFailure),
        ([_SURE, _SURE], Unavailable),
        ([_SURE, _UNSURE], Timeout),
        ([_ACK, _UNSURE], Timeout),
        ([_SURE, ValueError()], ValueError),
    ],
)
def test_several_failures_have_the_least_certain_outcome(
    acks: list[Any], raises: type[Exception]
) -> None:
    with pytest.raises(raises) as error:
        settled(acks)
    if raises is PartialFailure:
        assert error.value.outcome == "unknown"  # type: ignore[attr-defined]


def test_successful_appends_have_seqs() -> None:
    assert settled([_ACK, Ack(None, None, duplicate=True)]) == [5, None]


def test_settles_of_one_operation_are_done_or_refused() -> None:
    assert refused([None, Fenced("late", key=b"k"), None]) == [1]


@pytest.mark.parametrize("error", [_UNSURE, ValueError()])
def test_a_settle_of_unknown_outcome_decides_the_outcome_of_all(error: Exception) -> None:
    with pytest.raises(type(error)):
        refused([None, _SURE, error])


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_roles_for_all_slots(name: str) -> None:
    workload = workload_of(name, random.Random(0))
    assert all(workload.role(slot) for slot in range(20))


def test_a_plan_is_told_and_read_again() -> None:
    plan = Plan("set", ("kill", "pause"), 5, seed=7, flags=("--balance", "off"))
    assert Plan.from_described(plan.described()) == plan
    assert plan.name == "set-kill+pause-5"
    assert "none" in STANDARD


class _SlowToAnswer:
    """A consumer of Kafka that answers the second question of each kind, and no earlier one."""

    def __init__(self) -> None:
        self._asked = {"ends": 0, "committed": 0}

    def _ask(self, what: str) -> None:
        self._asked[what] += 1
        if self._asked[what] == 1:
            raise Timeout("nobody answers yet", outcome="unknown")

    async def ends(self, partitions: int) -> dict[str, list[int]]:
        self._ask("ends")
        return {str(at): [0, 0] for at in range(partitions)}

    async def committed(self, partitions: int) -> dict[str, int]:
        self._ask("committed")
        return {}

    async def close(self) -> None:
        pass


def test_a_watcher_of_kafka_ends_with_an_answer_of_each_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kafka, "_consumer", lambda *_: _SlowToAnswer())
    monkeypatch.setattr(kafka, "_PAUSE_S", 0.01)
    recorder = Recorder(tmp_path / "history.jsonl", lambda: 0)

    async def drained() -> None:
        rng = random.Random(0)
        process = Process(
            5, "127.0.0.1:1", "a", recorder, rng, pace=Pace(50, rng), nodes=3, timeout_s=5.0
        )
        watcher = kafka.Watcher(process)
        await watcher.drain()
        await watcher.close()
        await process.close()

    asyncio.run(drained())
    told = [(event.f, event.type) for event in recorder.close().events]
    for f in ("offsets", "committed"):
        assert [came for of, came in told if of == f] == ["invoke", "fail", "invoke", "ok"]
