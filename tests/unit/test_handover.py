"""Handing over the lead: one attempt a group at a time, for every caller."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from storage_node import StorageNode, descriptor

from lognode.client.protocol import Operation
from lognode.client.protocol.errors import Conflict, NotLeader
from lognode.client.protocol.peers import TAKE_OVER
from lognode.node.lifecycle.handover import Handover
from lognode.node.replicas.replica import Replica
from lognode.raft.types import GroupId
from lognode.statemachine.range_state import Base

GID = GroupId(1, 1)


class Led:
    """A replica that leads until it is asked for the lead."""

    def __init__(self) -> None:
        self.gid = GID
        self.members = (1, 2, 3)
        self.leads = True
        self.leader = 1
        self.applied_index = 7
        self.group = self
        self.caught_up: set[int] = set()
        self.last_index = 7
        self.services = self
        self.node_id = 1
        self._resignation: object | None = None
        self._settled = asyncio.Event()
        self._settled.set()

    resigning = Replica.resigning
    resign = Replica.resign
    end_resigning = Replica.end_resigning

    def resigned(self) -> None:
        """Nothing was kept."""

    def wake(self) -> None:
        """Nothing is to be sent."""

    async def lead_settled(self) -> None:
        await self._settled.wait()

    async def request(self, op: Operation, body: dict[str, Any], deadline: float) -> None:
        """The connection to any member."""
        assert (op, body) == (TAKE_OVER, {"groups": [list(GID)]})
        self.leads, self.leader = False, 2


def test_L4_a_node_stops_in_order_while_an_operator_moves_the_lead() -> None:
    """The stop ended with Conflict, and with it the process: no last round, no clean stop."""

    async def main() -> None:
        replica: Any = Led()
        host: Any = type("Host", (), {"groups": {GID: replica}})
        handover = Handover(host, lambda _: replica)
        asked = asyncio.ensure_future(handover.hand_over(3, {**BODY, "node": 2}))
        while not replica.resigning:  # noqa: ASYNC110
            await asyncio.sleep(0)
        stopped = asyncio.ensure_future(handover.all_groups(2.0))
        await asyncio.sleep(0.05)
        replica.caught_up = {2}
        assert await stopped == 0
        assert (await asked)["leader"] == 2
        assert not replica.resigning

    asyncio.run(main())


def test_L4_a_hand_over_that_ended_by_itself_does_not_end_the_next(tmp_path: Path) -> None:
    """Its last step let the leader propose again in the middle of the next one."""

    async def main() -> None:
        node = StorageNode(tmp_path)
        await node.start()
        try:
            replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
            assert replica is not None
            await node.leading(replica)
            first = replica.resign()
            replica.end_resigning(first)  # as the pump does once another member leads
            second = replica.resign()
            replica.end_resigning(first)
            assert replica.resigning
            with pytest.raises(NotLeader):
                replica.propose(b"", ())
            replica.end_resigning(second)
            assert not replica.resigning
            await replica.lead_settled()
        finally:
            node.stop()

    asyncio.run(main())


def test_only_what_an_operator_hands_over_is_a_wish_and_giving_is_one_attempt() -> None:
    """A second attempt would keep appends waiting again."""

    async def main() -> None:
        replica: Any = Led()
        host: Any = type("Host", (), {"groups": {GID: replica}})
        handover = Handover(host, lambda _: replica)
        assert await handover.give(9, {**BODY, "why": "it leads more", "node": 2}) == {
            "given": False
        }
        assert replica.leads
        replica.caught_up = {2, 3}
        assert await handover.give(9, {**BODY, "why": "it leads more", "node": 2}) == {
            "given": True
        }
        assert handover.wishes(60.0) == []
        for body, error in (({}, NotLeader), ({"generation": 2}, NotLeader)):
            with pytest.raises(error):
                await handover.give(9, {**BODY, "why": "it leads more", **body, "node": 2})
        replica.leads = True
        with pytest.raises(Conflict, match="node 4 is not another member"):
            await handover.give(9, {**BODY, "why": "it leads more", "node": 4})
        await handover.hand_over(9, {**BODY, "node": 2})
        ((range_id, node, ago_s),) = handover.wishes(60.0)
        assert (range_id, node, ago_s < 5.0) == (1, 2, True)
        assert handover.wishes(0.0) == []

    asyncio.run(main())


def test_a_member_whose_link_was_lost_a_moment_ago_takes_over_and_one_that_is_down_is_refused() -> (
    None
):
    """The first lost link refused an operator, although the next dial would have connected."""

    async def main() -> None:
        replica: Any = Led()
        replica.caught_up = {2}
        host: Any = type("Host", (), {"groups": {GID: replica}})
        links: dict[int, Any] = {}
        handover = Handover(host, links.get)
        asked = asyncio.ensure_future(handover.hand_over(9, {**BODY, "node": 2}))
        await asyncio.sleep(0.1)
        assert not asked.done()
        assert not replica.resigning, "no append is kept meanwhile"
        links[2] = replica
        assert await asked == {"leader": 2, "changed": True}
        replica.leads = True
        with pytest.raises(Conflict, match="node 1, the leader, cannot reach node 3"):
            await handover.hand_over(9, {**BODY, "node": 3})

    asyncio.run(main())


BODY = {"range": 1, "generation": 1}
