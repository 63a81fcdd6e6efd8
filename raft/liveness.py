"""Which nodes are alive, told once per pair of nodes and not once per group.

Nodes ping each other. A group whose members have agreed to rest (`idle.py`) sends nothing: the
pings of its leader's node stand in for heartbeats, and `Liveness` knows, per peer, the groups that
it vouches for. What voids a vouch wakes the group: the peer has been missing for a randomized
election timeout, it runs in a new incarnation, or it says that the group left the set of those it
leads idle (x20). Every leaving has a number, the set's version. A ping carries the
version and the groups that left since the one which the receiver is known to have; who finds that
the list does not reach back far enough takes all vouches of that peer as void.

Nothing here affects commits, votes or reads: only when somebody looks at a timer.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..client.protocol.errors import RemoteProtocolError
from .types import GroupId, RaftOptions

_LEFT_MAX: Final = 256
"""Leavings kept for those who have not acknowledged them; beyond it their vouches are void."""
_SPREAD_PER_GROUP_S: Final = 0.003
_SPREAD_MAX_S: Final = 1.0
"""Elections of many groups begin spread out over so long: each costs a few milliseconds."""
_VERSION_BITS: Final = 32
"""Of a version, those that count within an incarnation (see `limits.boot_max`)."""


class Ping(NamedTuple):
    """What goes with every frame from one node to another; a frame without messages is a ping."""

    version: int
    """How often groups left the set of those that the sender leads idle, above its incarnation."""
    seen: int
    """The receiver's version as the sender knows it; 0: none."""
    left: list[GroupId]
    """The last groups that left, the newest last, as far back as the receiver needs them."""

    @classmethod
    def from_wire(cls, told: Sequence[Any]) -> "Ping":
        """From the array that it is on the wire, of which the table has checked the fields."""
        version, seen, left = told
        return cls(version, seen, [GroupId(*gid) for gid in left])


class Wake(NamedTuple):
    """A group that must no longer rest because of what is known of `peer`."""

    gid: GroupId
    peer: int
    campaign: bool
    """The peer led it and is missing: whoever wakes first asks for the lead."""


@dataclass(slots=True)
class _Peer:
    incarnation: int
    heard_at: float = -math.inf
    missing_at: float = math.inf
    missing: bool = False
    version: int = 0
    """The newest version of it that we know; 0: none."""
    seen: int = 0
    """Our version as far as it has said to know it."""
    vouches: set[GroupId] = field(default_factory=set)
    """Groups that rest here because it leads them."""


@dataclass(slots=True)
class _Led:
    peers: frozenset[int]
    confirmed: set[int]


class Liveness:
    """One per node. All calls on one thread; times are of the clock given, in seconds.

    The caller calls `tick` at `next_deadline`, sends a frame to every peer when it returns True,
    gives each frame the `ping` of its receiver and each frame received to `heard`, and calls
    `Group.disturb` for what `take_wakes` gives, after each of them.
    """

    def __init__(
        self,
        *,
        incarnation: int,
        clock: Callable[[], float],
        rng: random.Random,
        options: RaftOptions,
        on_wake: Callable[[str], None] = lambda role: None,
    ) -> None:
        """`incarnation` is higher at each start of the node. `on_wake` is told of each group
        that ceases to rest, with its role here, leader or follower, by the group's `Idle`."""
        self._clock = clock
        self._rng = rng
        self._options = options
        self._version = incarnation << _VERSION_BITS
        self._left: deque[GroupId] = deque(maxlen=_LEFT_MAX)
        self._peers: dict[int, _Peer] = {}
        self._led: dict[GroupId, _Led] = {}
        self._wakes: list[tuple[float, int, Wake]] = []
        self._wake_count = 0
        self._ping_at = clock()
        self.on_wake = on_wake

    # Pings.

    @property
    def version(self) -> int:
        """Of the set of groups that this node leads idle; moves when one leaves it."""
        return self._version

    def ping(self, peer: int) -> Ping:
        """What to send with a frame to this peer now."""
        known = self._peers.get(peer)
        if known is None:
            return Ping(self._version, 0, list(self._left))
        if known.seen == self._version or not self._left:
            return Ping(self._version, known.version, [])
        news = min(self._version - known.seen, len(self._left))
        left = [self._left[i] for i in range(len(self._left) - news, len(self._left))]
        return Ping(self._version, known.version, left)

    def heard(self, peer: int, incarnation: int, ping: Ping) -> None:
        """A frame of the peer has come. One of an older incarnation says nothing.

        Raises RemoteProtocolError for a version that is not of this incarnation: it would hold
        against all later ones.
        """
        if ping.version >> _VERSION_BITS > incarnation:
            raise RemoteProtocolError("a ping whose version is of a later incarnation")
        known = self._peers.get(peer)
        if known is not None and incarnation < known.incarnation:
            return
        returned = known is None or known.missing
        if known is None or incarnation > known.incarnation:
            if known is not None:
                self._restarted(peer, known)
            known = self._peers[peer] = _Peer(incarnation)
        known.heard_at = now = self._clock()
        known.missing_at = now + self._timeout()
        known.missing = False
        if known.seen < ping.seen <= self._version:
            known.seen = ping.seen
        if ping.version > known.version:
            self._learn_left(peer, known, ping)
        if returned:
            behind = (g for g, led in self._led.items() if peer in led.peers - led.confirmed)
            self._wake_spread(behind, peer)

    def _learn_left(self, peer: int, known: _Peer, ping: Ping) -> None:
        news = ping.version - known.version
        gap = known.version > 0 and news > len(ping.left)
        known.version = ping.version
        if gap:
            self._void(peer, known)
            return
        for gid in ping.left[-news:]:
            if gid in known.vouches:
                known.vouches.discard(gid)
                self._wake_at(self._clock(), Wake(gid, peer, campaign=False))

    def _restarted(self, peer: int, known: _Peer) -> None:
        """It has forgotten what it confirmed, and no longer leads what it led (x2.14)."""
        self._void(peer, known)
        self._wake_spread((g for g, led in self._led.items() if peer in led.peers), peer)

    def _void(self, peer: int, known: _Peer) -> None:
        vouches, known.vouches = known.vouches, set()
        self._wake_spread(vouches, peer)

    # Time.

    def next_deadline(self) -> float:
        """When to call `tick`."""
        return min(self._ping_at, self._wakes[0][0]) if self._wakes else self._ping_at

    def tick(self) -> bool:
        """Find out who is missing. True: send a frame to every peer now."""
        now = self._clock()
        if now < self._ping_at:
            return False
        late = now - self._ping_at > self._options.ping_s
        self._ping_at = now + self._options.ping_s
        for peer, known in self._peers.items():
            if late:
                # It is we who were away: what the peers said meanwhile is still to be read.
                known.missing_at = max(known.missing_at, self._ping_at)
            if not known.missing and now >= known.missing_at:
                known.missing = True
                self._wake_spread(known.vouches, peer, campaign=True)
                self._wake_spread(
                    (g for g, led in self._led.items() if self._lacks_quorum(peer, led)), peer
                )
        return True

    def take_wakes(self) -> list[Wake]:
        """Groups to disturb now. Those of a missing peer that has returned in time rest on."""
        now, due = self._clock(), []
        while self._wakes and self._wakes[0][0] <= now:
            wake = heapq.heappop(self._wakes)[2]
            if not (wake.campaign and self._vouches(wake.peer, wake.gid)):
                due.append(wake)
        return due

    def _vouches(self, peer: int, gid: GroupId) -> bool:
        known = self._peers[peer]
        return not known.missing and gid in known.vouches

    def _lacks_quorum(self, peer: int, led: _Led) -> bool:
        present = sum(not self.missing(other) for other in led.peers)
        return peer in led.peers and 2 * (1 + present) <= 1 + len(led.peers)

    def _timeout(self) -> float:
        options = self._options
        return self._rng.uniform(options.election_timeout_min_s, options.election_timeout_max_s)

    def _wake_spread(self, gids: Iterable[GroupId], peer: int, *, campaign: bool = False) -> None:
        woken = list(gids)
        spread, now = min(len(woken) * _SPREAD_PER_GROUP_S, _SPREAD_MAX_S), self._clock()
        for gid in sorted(woken):
            self._wake_at(now + self._rng.uniform(0.0, spread), Wake(gid, peer, campaign))

    def _wake_at(self, due: float, wake: Wake) -> None:
        self._wake_count += 1
        heapq.heappush(self._wakes, (due, self._wake_count, wake))

    # What is known of a node.

    def missing(self, peer: int) -> bool:
        """Not heard of for its randomized election timeout, or never."""
        known = self._peers.get(peer)
        return known is None or known.missing

    def heard_at(self, peer: int) -> float:
        """When the last frame of the peer came; minus infinity if none did."""
        known = self._peers.get(peer)
        return -math.inf if known is None else known.heard_at

    def alive(self, peer: int) -> bool:
        """Heard within the least election timeout, as of a leader that nobody may depose."""
        return self._clock() - self.heard_at(peer) < self._options.election_timeout_min_s

    # What groups tell.

    def vouch(self, gid: GroupId, leader: int, version: int) -> bool:
        """The group here may rest while this leader's node pings. False: not on these terms.

        `version` is the one under which the leader asked. If we know a later one, the group may
        have left the set since, and its number in the list has passed already.
        """
        known = self._peers.get(leader)
        if known is None or known.missing or known.version != version:
            return False
        known.vouches.add(gid)
        return True

    def unvouch(self, gid: GroupId, leader: int) -> None:
        """The group here no longer rests."""
        known = self._peers.get(leader)
        if known is not None:
            known.vouches.discard(gid)

    def vouched_at(self, gid: GroupId, leader: int) -> float:
        """When the leader's node was last heard, if it vouches for the group; else -infinity."""
        known = self._peers.get(leader)
        return known.heard_at if known is not None and gid in known.vouches else -math.inf

    def enter(self, gid: GroupId, peers: frozenset[int], confirmed: set[int]) -> None:
        """This node asks the peers of a group that it leads to let it rest. `confirmed` is
        the caller's, who adds to it those that have agreed."""
        self._led[gid] = _Led(peers, confirmed)

    def leave(self, gid: GroupId) -> None:
        """The group that this node led rests no longer, or is no longer led here."""
        if self._led.pop(gid, None) is not None:
            self._version += 1
            self._left.append(gid)
