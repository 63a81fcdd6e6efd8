"""Replicas of new ranges: not too many that are not settled at the same time."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from lognode.node.lifecycle import young
from lognode.node.lifecycle.young import YOUNG_MAX, Young
from lognode.node.replicas.range_replica import RangeReplica


def replica() -> RangeReplica:
    return cast(RangeReplica, _Replica())


class _Replica(SimpleNamespace):
    stopped = False
    is_settled = False
    __hash__ = object.__hash__
    __eq__ = object.__eq__


async def has_room(begun: Young) -> bool:
    try:
        await asyncio.wait_for(begun.few(), 0.1)
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("change", [{"is_settled": True}, {"stopped": True}])
def test_another_one_begins_once_one_is_settled_or_stopped(change: dict[str, bool]) -> None:
    async def begin() -> None:
        begun, first = Young(), replica()
        replicas = [first, *(replica() for _ in range(YOUNG_MAX - 1))]  # a host keeps them
        for each in replicas:
            assert await has_room(begun)
            begun.add(each)
        assert not await has_room(begun)
        vars(first).update(change)
        assert await has_room(begun)

    asyncio.run(begin())


def test_one_that_is_not_settled_for_long_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(young, "_PATIENCE_S", 0.3)

    async def begin() -> None:
        begun = Young()
        replicas = [replica() for _ in range(YOUNG_MAX)]  # a host keeps them
        for each in replicas:
            begun.add(each)
        assert not await has_room(begun)
        await asyncio.sleep(0.25)
        assert await has_room(begun)

    asyncio.run(begin())
