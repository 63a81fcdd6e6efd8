"""What the driver of a dispatcher does with requests, and with groups that were deleted."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from lognode.client.protocol import limits
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.serving import group_driver
from lognode.node.serving.group_service import GroupService
from lognode.statemachine import commands
from lognode.statemachine.groups.row import Row

MOST = 512


class Replica(SimpleNamespace):
    """Two of them are never the same."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def parts_of(**counts: int) -> list[list[int]]:
    names = ("acks", "releases", "rejects", "extends")
    body = {name: [(name, at) for at in range(counts.get(name, 0))] for name in names}
    parts = list(group_driver._in_parts(body))
    for at, name in enumerate(names):
        assert [row for part in parts for row in part[at]] == body[name], "rows are lost"
    return [[len(rows) for rows in part] for part in parts]


def test_a_large_request_to_settle_takes_several_turns_of_the_loop() -> None:
    assert parts_of() == [[0, 0, 0, 0]]
    assert parts_of(acks=3) == [[3, 0, 0, 0]]
    assert parts_of(acks=3, extends=1) == [[3, 0, 0, 1]]
    most = limits.group_keys_a_command_max
    for counts in ({"acks": most}, dict.fromkeys(("acks", "releases", "rejects", "extends"), most)):
        parts = parts_of(**counts)
        assert len(parts) > 1
        assert all(sum(part) <= MOST for part in parts)


def test_the_leader_forgets_a_group_that_the_metadata_knew_and_know_no_more() -> None:
    proposed: list[tuple[int, Any]] = []
    metadata = SimpleNamespace(next_ids={"group": 4}, groups={1: object()})
    service = cast(GroupService, SimpleNamespace(_metadata=lambda: metadata))
    state = SimpleNamespace(groups=SimpleNamespace(by_id={1: None, 3: None, 4: None}))
    replica = SimpleNamespace(
        state=state, propose_in_passing=lambda kind, payload: proposed.append((kind, payload))
    )
    GroupService.forget_deleted(service, cast(RangeReplica, replica))
    # Group 4 is newer than this node's metadata.
    assert proposed == [(commands.GROUP_FORGET, [3])]


def test_a_leader_goes_on_with_dead_letters_that_no_consumer_asks_for() -> None:
    """Group 1 has dead letters and a parked key, 2 has no parked key, 3 parks, 4 has a driver."""

    async def run() -> list[int]:
        opened: list[int] = []
        dead = SimpleNamespace(dead_letters="dead")
        parked = SimpleNamespace(rows={b"k": Row(1, parked=True)})
        groups = {1: dead, 2: dead, 3: SimpleNamespace(dead_letters=None), 4: dead}
        states = {1: parked, 2: SimpleNamespace(rows={b"k": Row(1, 3)}), 3: parked, 4: parked,
                  5: parked}  # fmt: skip
        replica = Replica(state=SimpleNamespace(groups=SimpleNamespace(by_id=states)))

        async def reopen(_: Any, group_id: int) -> None:
            opened.append(group_id)

        service = cast(Any, SimpleNamespace(
            _metadata=lambda: SimpleNamespace(groups=groups), forget_deleted=lambda _: None,
            drivers=SimpleNamespace(present=lambda _, group_id: group_id == 4 or None),
            _reopening={}, _reopen=reopen, _on_broken=lambda error: None,
        ))  # fmt: skip
        service._reopened = lambda at, task: GroupService._reopened(service, at, task)
        for _ in range(2):  # the second look finds it under way
            GroupService.look_after(service, cast(RangeReplica, replica))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not service._reopening
        return opened

    assert asyncio.run(run()) == [1]
