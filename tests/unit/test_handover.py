"""Handing over the lead: one attempt a group at a time, whoever asks for it."""

import asyncio
from typing import Any

from lognode.node.handover import Handover
from lognode.raft.types import GroupId

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
        self.resigning = False
        self._settled = asyncio.Event()
        self._settled.set()

    def park(self) -> None:
        self.resigning = True
        self._settled.clear()

    def unpark(self) -> None:
        self.resigning = False
        self._settled.set()

    async def lead_settled(self) -> None:
        await self._settled.wait()

    async def request(self, op: str, body: dict[str, Any], deadline: float) -> None:
        """The connection to any member."""
        assert (op, body) == ("take_over", {"groups": [list(GID)]})
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


BODY = {"range": 1, "generation": 1}
