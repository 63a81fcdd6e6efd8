"""How long requests for offsets take."""

import asyncio
from typing import Any

import pytest

from lognode.node.kafka import codes, fetching
from lognode.node.kafka.answers import Offset
from lognode.node.kafka.fetching import Fetching
from lognode.node.kafka.partition_news import Tail
from lognode.node.kafka.requests import Asked
from lognode.node.kafka.room import Room


class Slow:
    """A cluster whose ranges look up a time in 20 ms; also its only topic."""

    def __init__(self) -> None:
        self.news = self
        self.routes = None
        self.calls = 0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def known(self, *_: Any) -> Any:
        return self

    async def ask_all(self, _: float) -> None:
        pass

    def check(self, _: int) -> None:
        pass

    def tail(self, _: int) -> Tail:
        return Tail(0, 9)

    async def call(self, _: Any, __: bytes, operation: Any, ___: Any, **____: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0.01)
        if operation.name == "resolve":
            return {"seq": 4}, None
        return {"seqs": [5], "timestamps": [77], "more": False}, None


def asked(count: int) -> tuple[list[Offset], float, Slow]:
    """The offsets of so many partitions, how long they took, and the cluster."""
    cluster: Any = Slow()
    door = Fetching(cluster, cluster, Room(1))

    async def run() -> tuple[list[Offset], float]:
        began = asyncio.get_running_loop().time()
        found = await door.offsets([Asked("t", at, 70) for at in range(count)])
        return found, asyncio.get_running_loop().time() - began

    return *asyncio.run(run()), cluster


def test_times_of_partitions_are_looked_up_together_and_answered_in_order() -> None:
    found, took_s, _ = asked(160)
    assert found == [Offset("t", at, codes.NONE, 77, 5) for at in range(160)]
    assert took_s < 160 * 0.02, "one after another"


def test_a_request_with_very_many_times_ends_with_an_error_that_clients_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "_TIMEOUT_S", 0.1)
    found, took_s, cluster = asked(9_000)
    errors = [each.error for each in found]
    done = errors.count(codes.NONE)
    assert errors == [codes.NONE] * done + [codes.NOT_LEADER_OR_FOLLOWER] * (9_000 - done)
    assert 0 < done == cluster.calls / 2 <= 7 * 16
    assert took_s < 9_000 * 0.02 / 16, "each of the others is looked up"
