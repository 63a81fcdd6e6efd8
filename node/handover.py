"""Handing over: before a node stops in order, another member leads what it led.

The leader takes no more appends, waits until a follower has its whole log durable, and tells it to
stand for election at once. Clients then wait for one election round instead of a timeout. When no
follower gets there in time nothing is lost: the others find out by themselves.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ..client.connection import Connection
from ..client.errors import LognodeError, Unavailable
from ..client.wire import field
from ..raft.types import GroupId
from . import fields
from .host import Host
from .replica import Replica

_POLL_S = 0.01
_ELECTION_S = 1.0

Body = dict[str, Any]

log = logging.getLogger("lognode.handover")


class Handover:
    """Both sides: `all_groups` before a stop, `serve` where a member is asked to take over."""

    def __init__(self, host: Host, connection: Callable[[int], Connection | None]) -> None:
        self._host = host
        self._connection = connection
        self._stopping = False
        self._unwilling: set[int] = set()
        """Peers that stop as well."""

    async def all_groups(self, timeout_s: float) -> int:
        """Hand over whatever this node leads and others are members of.

        Returns how many groups it still leads when the time is up.
        """
        self._stopping = True
        led = [r for r in self._host.groups.values() if r.leads and len(r.members) > 1]
        for replica in led:
            replica.resigning = True
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(self._hand_over(replica) for replica in led))
        except TimeoutError:
            log.warning("not all groups were handed over in time")
        return sum(replica.leads for replica in led)

    async def _hand_over(self, replica: Replica) -> None:
        """Return when another member leads, or nobody is left who could."""
        while replica.leads and self._able(replica):
            for peer in self._able(replica) & replica.group.caught_up:
                if await self._taken_by(peer, replica):
                    return
            await asyncio.sleep(_POLL_S)

    def _able(self, replica: Replica) -> set[int]:
        linked = {peer for peer in replica.members if self._connection(peer) is not None}
        return linked - self._unwilling

    async def _taken_by(self, peer: int, replica: Replica) -> bool:
        """Ask the peer to take over; whether this node leads no longer, a moment later."""
        connection = self._connection(peer)
        if connection is None:
            return False
        body = {"groups": [list(replica.gid)]}
        deadline = asyncio.get_running_loop().time() + _ELECTION_S
        try:
            await connection.request("take_over", body, deadline=deadline)
        except LognodeError as error:
            if error.fields.get("reason") == "stopping":
                self._unwilling.add(peer)
            return not replica.leads
        for _ in range(round(_ELECTION_S / _POLL_S)):
            if not replica.leads:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def serve(self, _: int, body: Body) -> Body:
        """A leader that stops asks this member to stand for election. Raises Unavailable."""
        if self._stopping:
            raise Unavailable("this node stops as well", reason="stopping")
        for each in field(body, "groups", list):
            if not isinstance(each, list) or list(map(type, each)) != [int, int]:
                raise fields.invalid("groups")
            replica = self._host.groups.get(GroupId(each[0], each[1]))
            if replica is not None:
                replica.take_over()
        return {}
