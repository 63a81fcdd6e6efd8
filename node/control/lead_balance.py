"""Hands over leadership until all nodes lead about as many ranges.

The controller's leader decides. It hears which node leads what, which nodes are alive and which are
short of disk. Every node knows that a moment later, but if each decided for itself, all would hand
over to the same node at once. So the controller's leader chooses once a second at most one range
from each node and one to each node. It asks the range's leader, which alone knows whether the
follower is at the end of the log.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from ...client.connection import Connection
from ...client.protocol.errors import LognodeError, Unavailable
from ...client.protocol.peers import GIVE_LEAD
from ...partitions.change import ALIVE_S
from ...partitions.facts import Facts
from ...partitions.leads import LEAD_RESTS_S, TRY_AGAIN_AFTER_S, Given, handovers
from ...partitions.leaving import DEAD_AFTER_S
from ..lifecycle.handover import Handover
from ..metadata.view import View
from ..replicas.host import Host

_PERIOD_S = 1.0
_ASK_S = 3.0

log = logging.getLogger("lognode.balance")


class LeadBalance:
    """Runs on every node; acts while its replica leads the controller."""

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        view: View,
        facts: Facts,
        connection: Callable[[int], Connection | None],
        handover: Handover,
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._view = view
        self._facts = facts
        self._connection = connection
        self._handover = handover
        self._settled: object = None
        """The situation in which there was nothing to do, so that the same ranges are not checked
        again."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.look()

    async def look(self) -> None:
        """Ask for hand-overs, once this node has led the controller for `DEAD_AFTER_S`."""
        replica, now = self._host.controller, time.monotonic()
        if replica is None or not replica.leads or replica.leads_since is None:
            return
        if now - replica.leads_since < DEAD_AFTER_S:
            return
        metadata, facts = replica.metadata, self._facts
        told = facts.alive(now, ALIVE_S), facts.keepers(now), set(facts.short)
        situation = metadata.controller.generation, metadata.version, self._view.leaders.number
        if (situation, told) == self._settled:
            return
        given = handovers(metadata, *told, self._view.leader)
        self._settled = None if given else (situation, told)
        await asyncio.gather(*map(self._give, given))

    async def _give(self, given: Given) -> None:
        told = {"range": given.range_id, "generation": given.generation, "node": given.to_node,
                "why": given.reason}  # fmt: skip
        keeper, rests_s = given.from_node, TRY_AGAIN_AFTER_S
        try:
            if given.from_node == self._node_id:
                answer = await self._handover.give(self._node_id, told)
            else:
                connection = self._connection(given.from_node)
                if connection is None:
                    raise Unavailable(f"this node has no link to node {given.from_node}")
                deadline = asyncio.get_running_loop().time() + _ASK_S
                answer = await connection.request(GIVE_LEAD, told, deadline=deadline)
            if answer["given"]:
                keeper, rests_s = given.to_node, LEAD_RESTS_S
        except LognodeError as error:
            log.info(
                "the leader did not give the lead up",
                extra={"fields": {**told, "error": str(error)}},
            )
        self._facts.keep(given.range_id, keeper, time.monotonic() + rests_s)
