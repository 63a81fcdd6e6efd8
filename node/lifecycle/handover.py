"""Handing over the lead of a group: before a node stops in order, or because an operator asks.

The leader keeps what is to be proposed, waits until the follower has its whole log durable, and
tells it to stand for election at once (Ongaro's thesis, 3.10). Clients wait for one election round
instead of a timeout: what was kept is refused with the new leader's name as soon as that is known.
When the follower does not get there in time the leader goes on as before, and tries again later;
under load a follower is never at the end of the log unless the leader pauses (x2.8).
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
"""So long appends are kept while the follower catches up; then it is their turn for a while."""
_PAUSE_S = 0.2
_ELECTION_S = 1.0
_TRANSFER_S = 5.0
_AT_ONCE = 8
"""Groups that are handed over at the same time before a stop."""

Body = dict[str, Any]

log = logging.getLogger("lognode.handover")


class Handover:
    """Both sides: `all_groups` and `hand_over` at the leader, `take_over` at who is to lead."""

    def __init__(self, host: Host, connection: Callable[[int], Connection | None]) -> None:
        self._host = host
        self._connection = connection
        self._stopping = False
        self._unwilling: set[int] = set()
        """Peers that stop as well."""
        self._wishes: dict[int, tuple[int, float]] = {}
        """Range to whom an operator who asked here last wanted to lead it, and when."""

    # Before a stop.

    async def all_groups(self, timeout_s: float) -> int:
        """Hand over whatever this node leads and others are members of.

        Returns how many groups it still leads when the time is up.
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
            log.warning("not all groups were handed over in time")
        return sum(replica.leads for replica in led)

    async def _to_anybody(self, replica: Replica) -> None:
        """Return when another member leads, or nobody is left who could."""
        while replica.leads and self._able(replica):
            if replica.resigning:
                await replica.lead_settled()  # an operator's hand-over: it may do for this one
            elif not await self._attempt(replica, self._able(replica)):
                await asyncio.sleep(_PAUSE_S)

    def _able(self, replica: Replica) -> set[int]:
        linked = {peer for peer in replica.members if self._connection(peer) is not None}
        return linked - self._unwilling

    # By itself.

    async def spare(self, replica: Replica, members: set[int], *, why: str) -> None:
        """Let one of these members lead, if one can now: this node should not.

        Raises Conflict while another hand-over is under way.
        """
        able = members & self._able(replica)
        if replica.leads and able and await self._attempt(replica, able):
            told = {"range": replica.gid.range_id, "to": replica.leader, "why": why}
            log.info("handed over", extra={"fields": told})

    async def give(self, _: int, body: Body) -> Body:
        """The controller's leader finds that this node leads too many ranges: one attempt.

        Raises InvalidArgument, NotLeader, Conflict.
        """
        replica, target = self._led(body)
        await self.spare(replica, {target}, why=body["why"])
        return {"given": not replica.leads}

    # Asked for.

    async def hand_over(self, _: int, body: Body) -> Body:
        """Have a member lead a group that this node leads.

        Raises NotLeader, Conflict when the member cannot be reached, Unavailable when it did not
        get there in time; then this node goes on.
        """
        replica, target = self._led(body)
        gid, me = replica.gid, replica.services.node_id
        loop = asyncio.get_running_loop()
        until = loop.time() + _TRANSFER_S
        while not await self._attempt(replica, {target}):
            if self._connection(target) is None:
                raise Conflict(f"node {target} cannot be reached from node {me}, which leads")
            if loop.time() > until:
                raise Unavailable(
                    f"node {target} did not catch up within {_TRANSFER_S:g} s; "
                    f"node {me} goes on leading"
                )
            await asyncio.sleep(_PAUSE_S)
        if replica.leader != target:
            raise Unavailable(f"another member than node {target} was elected", reason="election")
        log.info(
            "handed over",
            extra={"fields": {"range": gid.range_id, "generation": gid.generation, "to": target}},
        )
        self.wish(gid.range_id, target)
        return {"leader": target, "changed": True}

    def wish(self, range_id: int, node: int) -> None:
        """An operator wants this node to lead, and it does."""
        self._wishes[range_id] = node, asyncio.get_running_loop().time()

    def wishes(self, within_s: float) -> list[tuple[int, int, float]]:
        """Ranges that an operator lately wanted to be led by a node, that node, and how many
        seconds ago."""
        now = asyncio.get_running_loop().time()
        self._wishes = {r: wish for r, wish in self._wishes.items() if now - wish[1] < within_s}
        return [(range_id, node, now - at) for range_id, (node, at) in self._wishes.items()]

    def _led(self, body: Body) -> tuple[Replica, int]:
        """The replica, which leads, and the other member that is to lead."""
        gid, target = fields.group(body), body["node"]
        replica = self._host.groups.get(gid)
        if replica is None or not replica.leads:
            raise NotLeader(f"this node does not lead {gid}", hint=None)
        if target not in replica.members or target == replica.services.node_id:
            raise Conflict(f"node {target} is no other member of {gid}")
        return replica, target

    # One attempt.

    async def _attempt(self, replica: Replica, able: set[int]) -> bool:
        """Let one of these members take the lead; whether this node leads no longer."""
        if replica.resigning:
            raise Conflict(f"another hand-over of {replica.gid} is under way")
        resignation = replica.resign()
        try:
            peer = await self._ready(replica, able)
            if peer is not None and await self._asked(peer, replica):
                await _until(lambda: not replica.leads, _ELECTION_S)
                if not replica.leads:
                    # Who waits is told who leads as soon as that is known, not before.
                    await _until(lambda: replica.leader is not None, _ELECTION_S)
        finally:
            replica.end_resigning(resignation)
        return not replica.leads

    async def _ready(self, replica: Replica, able: set[int]) -> int | None:
        """A member with the whole log, once what was proposed is applied; None: not in time."""

        def all_have_it() -> bool:
            group = replica.group
            return not replica.leads or (
                bool(able & group.caught_up) and replica.applied_index >= group.last_index
            )

        await _until(all_have_it, _RESIGNING_S)
        return next(iter(able & replica.group.caught_up), None) if all_have_it() else None

    async def _asked(self, peer: int, replica: Replica) -> bool:
        """Ask the member to take over; whether it does."""
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

    # At who is to lead.

    async def take_over(self, _: int, body: Body) -> Body:
        """A leader asks this member to stand for election. Raises Unavailable, RangeNotFound."""
        if self._stopping:
            raise Unavailable("this node stops as well", reason="stopping")
        for gid in starmap(GroupId, body["groups"]):
            replica = self._host.groups.get(gid)
            if replica is None:
                raise RangeNotFound(f"no replica of {gid} on this node", range=gid.range_id)
            replica.take_over()
        return {}


async def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Return when it holds, or when the time is up."""
    for _ in range(round(timeout_s / _POLL_S)):
        if condition():
            return
        await asyncio.sleep(_POLL_S)
