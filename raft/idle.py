"""One group at rest: no heartbeats, no timers, until somebody wants something of it.

After a quiet second a leader whose members have everything offers to rest. A member that has the
same log and the same commit index agrees, and from then on it is the pings of the leader's node
that keep its election timer still (`liveness.py`). When all members but the missing ones have
agreed, the leader ceases to beat. A missing member is caught up when its ping returns (x2.14).

The leader beats and offers anew until then. A heartbeat that brings nothing new ends no rest, and
an answer to any of the offers counts. If only an answer that came within a heartbeat counted, nodes
that are too busy to answer so fast would never rest, and their heartbeats would keep them busy.

The offer is a set that the leader's node announces: a group enters it with the first offer, so
that no member can rest while its leader is not in it, and leaves it for whatever reason the leader
stops resting. The leaving is announced with the pings, so that a member which hears nothing of the
group still learns that nobody vouches for it (x20).
"""

import math
from collections.abc import Callable

from .liveness import Liveness
from .types import GroupId, RaftOptions


class Idle:
    """What one member knows of its group's rest. Without `liveness` the group never rests."""

    __slots__ = (
        "_active_at", "_clock", "_confirmed", "_first_round", "_gid", "_idle_after_s", "_liveness",
        "_majority", "_offered", "_peers", "at_rest", "leader", "round",
    )  # fmt: skip

    def __init__(
        self,
        *,
        gid: GroupId,
        peers: frozenset[int],
        majority: int,
        liveness: Liveness | None,
        options: RaftOptions,
        clock: Callable[[], float],
    ) -> None:
        self._gid = gid
        self._peers = peers
        self._majority = majority
        self._liveness = liveness
        self._idle_after_s = options.idle_after_s
        self._clock = clock
        self._active_at = -math.inf
        self._offered = False
        self._first_round = 0
        """The first offer since the group entered the set."""
        self._confirmed: set[int] = set()
        self.round = 0
        self.at_rest = False
        """As leader: all who are there have agreed, and nothing has happened since."""
        self.leader: int | None = None
        """As follower: who vouches for the group; None: it does not rest here."""

    # The leader's side.

    def active(self) -> None:
        """Something was asked of the group: the quiet time begins anew."""
        self._active_at = self._clock()

    def may_rest(self, caught_up: frozenset[int]) -> bool:
        """Whether it was quiet for long enough, and who is there has everything."""
        if self._liveness is None or self._clock() - self._active_at < self._idle_after_s:
            return False
        present = self._present()
        return present <= caught_up and 1 + len(present) >= self._majority

    def offer(self) -> int:
        """Ask all, also those who agreed: something may have woken them since. The version of
        the set that the offer is made under."""
        if self._liveness is None:
            return 0
        self.round += 1
        if not self._offered:
            self._offered, self._first_round, self._confirmed = True, self.round, set()
            self._liveness.enter(self._gid, self._peers, self._confirmed)
        self.at_rest = self._present() <= self._confirmed
        return self._liveness.version

    def confirmed(self, peer: int, offer: int) -> None:
        """A member agrees to an offer. The last one that is there ends the heartbeats."""
        if self._offered and self._first_round <= offer <= self.round:
            self._confirmed.add(peer)
            self.at_rest = self._present() <= self._confirmed

    def withdraw(self) -> frozenset[int]:
        """Rest no longer. The members for which their node's pings speak: they had agreed."""
        if self._liveness is None or not self._offered:
            return frozenset()
        vouched = frozenset(peer for peer in self._confirmed if self._liveness.alive(peer))
        if self.at_rest:
            self._liveness.on_wake("leader")
        self._offered = self.at_rest = False
        self._confirmed = set()
        self._liveness.leave(self._gid)
        return vouched

    def pinged_at(self, peer: int) -> float:
        """When the node of a member that agreed to the rest was last heard; minus infinity while
        the group does not rest: pings say nothing of a group that is awake."""
        if self._liveness is None or not self.at_rest or peer not in self._confirmed:
            return -math.inf
        return self._liveness.heard_at(peer)

    def _present(self) -> frozenset[int]:
        if self._liveness is None:
            return self._peers
        return frozenset(peer for peer in self._peers if not self._liveness.missing(peer))

    # The follower's side.

    def vouch(self, leader: int, version: int) -> bool:
        """Rest while this leader's node pings. False: its pings do not vouch for that offer."""
        if self._liveness is None or not self._liveness.vouch(self._gid, leader, version):
            return False
        self.leader = leader
        return True

    def unvouch(self) -> None:
        """Rest no longer; nothing if we do not."""
        leader, self.leader = self.leader, None
        if leader is not None and self._liveness is not None:
            self._liveness.unvouch(self._gid, leader)
            self._liveness.on_wake("follower")

    def leader_heard_at(self) -> float:
        """When the node that vouches was last heard; minus infinity without one."""
        if self.leader is None or self._liveness is None:
            return -math.inf
        return self._liveness.vouched_at(self._gid, self.leader)
