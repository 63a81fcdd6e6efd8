"""A node hands metadata commands on to the controller's leader; a removed node does not."""

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from metadata_log import Controller

from lognode.client.protocol import Operation
from lognode.client.protocol.errors import (
    InvalidArgument,
    LognodeError,
    NotLeader,
    Timeout,
    Unavailable,
)
from lognode.client.protocol.peers import COMMAND
from lognode.client.retry import attempt_first_s
from lognode.node.serving import cluster_service
from lognode.node.serving.cluster_service import ClusterService
from lognode.partitions import commands
from lognode.partitions.metadata import Metadata
from lognode.partitions.proposals import _RECORDS


def service(
    node: int, metadata: Metadata, connection: Callable[[int], Any] = lambda _: None
) -> ClusterService:
    view = SimpleNamespace(metadata=metadata, controller_leader=lambda: 1)
    unused: Any = None
    return ClusterService(
        node_id=lambda: node, host=unused, view=view, connection=connection, status=unused,
        rng=random.Random(1), handover=unused, recoveries=SimpleNamespace(report=None),
        room=unused, images=unused, wall_ms=unused, alive=set,
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_client_of_a_removed_node_is_told_at_once_to_ask_another() -> None:
    """`Unauthorized`, which no client retries, ended the call of a client that asked for nothing
    forbidden."""
    controller = Controller().nodes(2)
    before = Metadata.from_image(controller.metadata.image())
    controller.do("node_state", node=2, state="DEAD")
    controller.do("remove_node", node=2, dead=True)
    leader, asked = service(1, controller.metadata), 0

    class Leader:
        async def request(self, op: Operation, body: dict[str, Any], *, deadline: float) -> Any:
            nonlocal asked
            assert op is COMMAND
            asked += 1
            return await leader.peer_command(2, body)

    removed = service(2, before, lambda _: Leader())
    with pytest.raises(Unavailable, match="node 2 was removed from the cluster; ask another"):
        asyncio.run(removed.command({"op": "remove_node", "node": 2, "dead": False}))
    assert asked == 1


def test_every_command_is_handed_on_or_is_the_leaders_own() -> None:
    """`node invite` failed at every node but the controller's leader: nobody handed it on."""
    assert not commands.FORWARDED & commands.OWN
    assert set(_RECORDS) == commands.FORWARDED | commands.OWN


@pytest.mark.parametrize("op", sorted(commands.OWN))
def test_the_leaders_own_commands_are_accepted_from_no_other_node(op: str) -> None:
    leader = service(1, Controller().nodes(2).metadata)
    with pytest.raises(InvalidArgument, match=f"the command '{op}'"):
        asyncio.run(leader.peer_command(2, {"command": {"op": op}}))


class Members:
    """The other members of the controller: each request to them fails with the next error, at
    last with NotLeader."""

    def __init__(self, *errors: LognodeError) -> None:
        self.errors = list(errors)

    async def request(self, op: Operation, body: dict[str, Any], *, deadline: float) -> Any:
        raise self.errors.pop(0) if self.errors else NotLeader("does not lead", hint=None)


CHANGE = {"op": "alter_log", "name": "l", "changes": {"retention_ms": 5}, "since": 1}


def test_S11_a_node_without_a_leader_says_so_before_the_client_gives_the_attempt_up() -> None:
    """The node held the request for 10 s, and the client's attempt ended after 2 s: the outcome
    was unknown although nothing was ever proposed."""
    node = service(4, Controller().nodes(2).metadata, lambda _: Members())

    async def run() -> None:
        async with asyncio.timeout(attempt_first_s):
            await node.command(CHANGE)

    with pytest.raises(Unavailable, match=r"nothing was changed.*does not lead") as caught:
        asyncio.run(run())
    assert caught.value.outcome == "not_applied"


def test_S11_a_node_tells_the_worst_outcome_of_its_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It told that of the last attempt: `not_applied` after an attempt without an answer."""
    monkeypatch.setattr(cluster_service, "_DEADLINE_S", 1.5)
    members = Members(Timeout("node 1 did not answer"))
    node = service(4, Controller().nodes(2).metadata, lambda _: members)
    with pytest.raises(Unavailable, match="the change may be made") as caught:
        asyncio.run(node.command(CHANGE))
    assert caught.value.outcome == "unknown"
