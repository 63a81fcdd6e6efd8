"""What the driver of a dispatcher does with requests, and with groups that were deleted."""

from types import SimpleNamespace
from typing import Any, cast

from lognode.client.protocol import limits
from lognode.node.replicas.range_replica import RangeReplica
from lognode.node.serving import group_driver
from lognode.node.serving.group_service import GroupService
from lognode.statemachine import commands

MOST = 512


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
