"""One group at rest: no heartbeats, no timers, until somebody wants something of it.

After a quiet second a leader whose members have everything offers to rest. A member that has the
same log and the same commit index agrees, and from then on it is the pings of the leader's node
that keep its election timer still (`liveness.py`). When all members but the missing ones have
agreed, the leader ceases to beat. A missing member is caught up when its ping returns (2.14).

The offer is a set that the leader's node announces: a group enters it with the first offer, so
that no member can rest while its leader is not in it, and leaves it for whatever reason the leader
stops resting. The leaving is announced with the pings, so that a member which hears nothing of the
group still learns that nobody vouches for it (executions 1.20).
"""

import math
from collections.abc import Callable

from .liveness import Liveness
from .types import GroupId, RaftOptions

_OFFERS = 2
"""A follower that nobody spoke to for so many heartbeats does rest."""


class Idle:
    """What one member knows of its group's rest. Without `liveness` the group never rests."""

    __slots__ = (
        "_active_at", "_clock", "_confirmed", "_gid", "_idle_after_s", "_liveness", "_majority",
        "_offer_s", "_offered", "_peers", "_vouched_at", "at_rest", "leader", "round",
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
        self._offer_s = options.heartbeat_s
        self._vouched_at = -math.inf
        self._clock = clock
        self._active_at = -math.inf
        self._offered = False
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
        """Ask all again, those who agreed too: a heartbeat since has woken them. The version of
        the set that the offer is made under."""
        if self._liveness is None:
            return 0
        self.round += 1
        if self._offered:
            self._confirmed.clear()
        else:
            self._offered, self._confirmed = True, set()
            self._liveness.enter(self._gid, self._peers, self._confirmed)
        self.at_rest = not self._present()
        return self._liveness.version

    def confirmed(self, peer: int, offer: int) -> None:
        """A member agrees to an offer. The last one that is there ends the heartbeats."""
        if self._offered and offer == self.round:
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

    def _present(self) -> frozenset[int]:
        if self._liveness is None:
            return self._peers
        return frozenset(peer for peer in self._peers if not self._liveness.missing(peer))

    # The follower's side.

    def vouch(self, leader: int, version: int) -> bool:
        """Rest while this leader's node pings. False: its pings do not vouch for that offer."""
        if self._liveness is None or not self._liveness.vouch(self._gid, leader, version):
            return False
        self.leader, self._vouched_at = leader, self._clock()
        return True

    def unvouch(self) -> None:
        """Rest no longer; nothing if we do not."""
        leader, self.leader = self.leader, None
        if leader is not None and self._liveness is not None:
            self._liveness.unvouch(self._gid, leader)
            # While others have not agreed yet, each heartbeat ends the rest and a new offer
            # follows: who was only offered to rest has not slept.
            if self._clock() - self._vouched_at > _OFFERS * self._offer_s:
                self._liveness.on_wake("follower")

    def leader_heard_at(self) -> float:
        """When the node that vouches was last heard; minus infinity without one."""
        if self.leader is None or self._liveness is None:
            return -math.inf
        return self._liveness.vouched_at(self._gid, self.leader)
