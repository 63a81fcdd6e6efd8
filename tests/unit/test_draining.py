"""A node that drains hands its leads to members that stay, and says how many it has left."""

import asyncio
from types import SimpleNamespace
from typing import Any

from metadata_log import Controller

from lognode.client.protocol.errors import Conflict
from lognode.node.lifecycle.draining import Draining


def test_leads_are_given_to_members_that_stay_and_what_is_left_is_told() -> None:
    """What has no other member, or none on an ACTIVE node, is left as it is, and not counted."""
    controller = Controller().nodes(4)
    view: Any = SimpleNamespace(metadata=controller.metadata)
    groups = [
        SimpleNamespace(gid=at, leads=leads, members=members)
        for at, (leads, members) in enumerate(
            [(True, (1, 2, 3)), (True, (1, 2, 4)), (True, (1,)), (False, (1, 2, 3)), (True, (1, 3))]
        )
    ]
    given: dict[int, set[int]] = {}

    async def spare(replica: Any, members: set[int], *, why: str) -> None:
        given[replica.gid] = members
        if replica.gid == 1:
            raise Conflict("another hand-over is under way")
        replica.leads = False

    host: Any = SimpleNamespace(groups=dict(enumerate(groups)))
    handover: Any = SimpleNamespace(spare=spare)
    draining = Draining(node_id=1, host=host, view=view, handover=handover)

    def left_after_a_look() -> int | None:
        asyncio.run(draining.look())
        return draining.leads_left

    assert (left_after_a_look(), given) == (None, {}), "it does not drain"
    for node in (1, 3):
        controller.do("drain_node", node=node)
    assert left_after_a_look() == 1
    assert given == {0: {2}, 1: {2, 4}}
    groups[1].leads = False
    assert left_after_a_look() == 0
    controller.do("drain_node", node=1, undo=True)
    assert left_after_a_look() is None
