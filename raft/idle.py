"""A group at rest: no heartbeats and no timers until the group has work again.

After a quiet second a leader whose members have everything offers to rest. A member with the same
log and the same commit index agrees. From then on the pings of the leader's node keep the member's
election timer still (`liveness.py`). When all members but the missing ones have agreed, the leader
ceases to beat. A missing member is caught up when its ping returns (x2.14).

The leader sends heartbeats and new offers until then. A heartbeat that brings nothing new ends no
rest, and an answer to any of the offers counts. If an answer counted only within a heartbeat, nodes
too busy to answer so fast would never rest, and their heartbeats would keep them busy.

The leader's node announces the set of groups that it offers to rest. A group enters the set with
its first offer, so that no member can rest while its group is not in the set. A group leaves the
set whenever its leader stops resting, for any reason. The pings announce each leaving, so that a
member which hears nothing of the group still learns that nobody vouches for it (x20).
"""

import math
from collections.abc import Callable

from .liveness import Liveness
from .types import GroupId, RaftOptions


class Idle:
    """One member's state of its group's rest. Without `liveness` the group never rests."""

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
        """The round of the first offer since the group entered the set."""
        self._confirmed: set[int] = set()
        self.round = 0
        self.at_rest = False
        """As leader: all present members have agreed, and nothing has happened since."""
        self.leader: int | None = None
        """As follower: the leader whose node vouches for the group, or None if the group does not
        rest here."""

    # The leader's side.

    def active(self) -> None:
        """Note that the group has work: the quiet time begins anew."""
        self._active_at = self._clock()

    def may_rest(self, caught_up: frozenset[int]) -> bool:
        """Return whether the quiet time is over and every present member has all entries."""
        if self._liveness is None or self._clock() - self._active_at < self._idle_after_s:
            return False
        present = self._present()
        return present <= caught_up and 1 + len(present) >= self._majority

    def offer(self) -> int:
        """Offer rest to all members, and return the version of the set that the offer belongs to.

        Members that agreed are asked again: something may have woken them since.
        """
        if self._liveness is None:
            return 0
        self.round += 1
        if not self._offered:
            self._offered, self._first_round, self._confirmed = True, self.round, set()
            self._liveness.enter(self._gid, self._peers, self._confirmed)
        self.at_rest = self._present() <= self._confirmed
        return self._liveness.version

    def confirmed(self, peer: int, offer: int) -> None:
        """Note that a member agrees to an offer. The last present member ends the heartbeats."""
        if self._offered and self._first_round <= offer <= self.round:
            self._confirmed.add(peer)
            self.at_rest = self._present() <= self._confirmed

    def withdraw(self) -> frozenset[int]:
        """Stop resting. Return the members that had agreed and whose nodes still ping."""
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
        """Return when the node of a member that agreed to the rest was last heard.

        Minus infinity while the group does not rest: pings say nothing of a group that is awake.
        """
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
        """Stop resting; do nothing if the group does not rest here."""
        leader, self.leader = self.leader, None
        if leader is not None and self._liveness is not None:
            self._liveness.unvouch(self._gid, leader)
            self._liveness.on_wake("follower")

    def leader_heard_at(self) -> float:
        """Return when the vouching node was last heard, or minus infinity without one."""
        if self.leader is None or self._liveness is None:
            return -math.inf
        return self._liveness.vouched_at(self._gid, self.leader)
