"""Hands over the leadership of a group before a node stops in order, or on an operator's request.

The leader keeps new proposals and waits until the follower has its whole log durable. Then it tells
the follower to stand for election at once (Ongaro's thesis, 3.10). Clients wait for one election
round instead of a timeout: the kept proposals are refused with the new leader's name as soon as it
is known. When the follower is not ready in time, the leader continues as before and tries again
later. Under load a follower reaches the end of the log only while the leader pauses (x2.8).
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import starmap
from typing import Any

from ...client.connection import Connection
from ...client.protocol.errors import Conflict, LognodeError, NotLeader, RangeNotFound, Unavailable
from ...client.protocol.peers import TAKE_OVER
from ...raft.types import GroupId
from ..replicas.host import Host
from ..replicas.replica import Replica
from ..runtime import fields

_POLL_S = 0.002
_RESIGNING_S = 0.1
"""How long appends are kept while the follower catches up; then they proceed for a while."""
_PAUSE_S = 0.2
_ELECTION_S = 1.0
_REDIAL_S = 1.0
"""A link that was lost a moment ago is dialled again within this time if the member is there."""
_TRANSFER_S = 5.0
_AT_ONCE = 8
"""Groups that are handed over at the same time before a stop."""

Body = dict[str, Any]

log = logging.getLogger("lognode.handover")


class Handover:
    """Both sides: `all_groups` and `hand_over` at the leader, `take_over` at the future leader."""

    def __init__(self, host: Host, connection: Callable[[int], Connection | None]) -> None:
        self._host = host
        self._connection = connection
        self._stopping = False
        self._unwilling: set[int] = set()
        """Peers that are stopping as well."""
        self._wishes: dict[int, tuple[int, float]] = {}
        """The node that an operator last asked here to lead each range, and when."""

    # Before a stop.

    async def all_groups(self, timeout_s: float) -> int:
        """Hand over every group that this node leads and that has other members.

        Return how many groups this node still leads when the time is up.
        """
        self._stopping = True
        led = [r for r in self._host.groups.values() if r.leads and len(r.members) > 1]
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(replica: Replica) -> None:
            async with turns:
                await self._to_anybody(replica)

        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*map(one, led))
        except TimeoutError:
            log.warning("the node did not hand over the lead of all groups in time")
        return sum(replica.leads for replica in led)

    async def _to_anybody(self, replica: Replica) -> None:
        """Return when another member leads, or when no other member could lead."""
        while replica.leads and self._able(replica):
            if replica.resigning:
                await replica.lead_settled()  # an operator's hand-over may be enough
            elif not await self._attempt(replica, self._able(replica)):
                await asyncio.sleep(_PAUSE_S)

    def _able(self, replica: Replica) -> set[int]:
        linked = {peer for peer in replica.members if self._connection(peer) is not None}
        return linked - self._unwilling

    # By itself.

    async def spare(self, replica: Replica, members: set[int], *, why: str) -> None:
        """Let one of these members lead if one is ready now, because this node should not lead.

        Raises Conflict while another hand-over is under way.
        """
        able = members & self._able(replica)
        if replica.leads and able and await self._attempt(replica, able):
            told = {"range": replica.gid.range_id, "to": replica.leader, "why": why}
            log.info("handed over", extra={"fields": told})

    async def give(self, _: int, body: Body) -> Body:
        """Attempt once to hand over a range, at the request of the controller's leader.

        The controller's leader finds that this node leads too many ranges. Raises InvalidArgument,
        NotLeader, Conflict.
        """
        replica, target = self._led(body)
        await self.spare(replica, {target}, why=body["why"])
        return {"given": not replica.leads}

    # Asked for.

    async def hand_over(self, _: int, body: Body) -> Body:
        """Hand over a group that this node leads to the given member.

        Raises NotLeader, Conflict when the member cannot be reached for a second, or Unavailable
        when the member was not ready in time; this node then continues as leader.
        """
        replica, target = self._led(body)
        gid, me = replica.gid, replica.services.node_id
        loop = asyncio.get_running_loop()
        until = loop.time() + _TRANSFER_S
        while True:
            if not await _until(lambda: self._connection(target) is not None, _REDIAL_S):
                raise Conflict(f"node {me}, the leader, cannot reach node {target}")
            if await self._attempt(replica, {target}):
                break
            if loop.time() > until:
                raise Unavailable(
                    f"node {target} did not catch up within {_TRANSFER_S:g} s; node {me} is "
                    "still the leader"
                )
            await asyncio.sleep(_PAUSE_S)
        if replica.leader != target:
            raise Unavailable(
                f"the members elected another leader than node {target}", reason="election"
            )
        log.info(
            "handed over",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation, "to": target}},
        )
        self.wish(gid.range_id, target)
        return {"leader": target, "changed": True}

    def wish(self, range_id: int, node: int) -> None:
        """Note that an operator asked this node to lead the range, and that it does."""
        self._wishes[range_id] = node, asyncio.get_running_loop().time()

    def wishes(self, within_s: float) -> list[tuple[int, int, float]]:
        """Return range, node and age in seconds of each operator's request for a leader."""
        now = asyncio.get_running_loop().time()
        self._wishes = {r: wish for r, wish in self._wishes.items() if now - wish[1] < within_s}
        return [(range_id, node, now - at) for range_id, (node, at) in self._wishes.items()]

    def _led(self, body: Body) -> tuple[Replica, int]:
        """Return the replica, which must lead, and the other member that is to lead."""
        gid, target = fields.group(body), body["node"]
        replica = self._host.groups.get(gid)
        if replica is None or not replica.leads:
            raise NotLeader(f"this node does not lead {gid}", hint=None)
        if target not in replica.members or target == replica.services.node_id:
            raise Conflict(
                f"node {target} is not another member of {gid}; give the number of another member"
            )
        return replica, target

    # One attempt.

    async def _attempt(self, replica: Replica, able: set[int]) -> bool:
        """Hand over to one of these members; return whether this node no longer leads."""
        if replica.resigning:
            raise Conflict(f"another hand-over of {replica.gid} is in progress; try again later")
        resignation = replica.resign()
        try:
            peer = await self._ready(replica, able)
            if peer is not None and await self._asked(peer, replica):
                await _until(lambda: not replica.leads, _ELECTION_S)
                if not replica.leads:
                    # Waiting callers are told the new leader as soon as it is known, not before.
                    await _until(lambda: replica.leader is not None, _ELECTION_S)
        finally:
            replica.end_resigning(resignation)
        return not replica.leads

    async def _ready(self, replica: Replica, able: set[int]) -> int | None:
        """Return a member with the whole log, once the proposals are applied; None: not in time."""

        def all_have_it() -> bool:
            group = replica.group
            return not replica.leads or (
                bool(able & group.caught_up) and replica.applied_index >= group.last_index
            )

        await _until(all_have_it, _RESIGNING_S)
        return next(iter(able & replica.group.caught_up), None) if all_have_it() else None

    async def _asked(self, peer: int, replica: Replica) -> bool:
        """Ask the member to take over; return whether it agrees."""
        connection = self._connection(peer)
        if connection is None:
            return False
        body = {"groups": [list(replica.gid)]}
        deadline = asyncio.get_running_loop().time() + _ELECTION_S
        try:
            await connection.request(TAKE_OVER, body, deadline=deadline)
        except LognodeError as error:
            if error.fields.get("reason") == "stopping":
                self._unwilling.add(peer)
            return False
        return True

    # At the future leader.

    async def take_over(self, _: int, body: Body) -> Body:
        """Stand for election at the leader's request. Raises Unavailable, RangeNotFound."""
        if self._stopping:
            raise Unavailable("this node stops too", reason="stopping")
        for gid in starmap(GroupId, body["groups"]):
            replica = self._host.groups.get(gid)
            if replica is None:
                raise RangeNotFound(f"this node has no replica of {gid}", range=gid.range_id)
            replica.take_over()
        return {}


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Return True as soon as the condition holds, or False when the time is up."""
    for _ in range(round(timeout_s / _POLL_S)):
        if condition():
            return True
        await asyncio.sleep(_POLL_S)
    return condition()
