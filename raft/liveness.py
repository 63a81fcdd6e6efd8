"""Which nodes are alive, tracked once per pair of nodes instead of once per group.

Nodes ping each other. A group whose members have agreed to rest (`idle.py`) sends nothing. The
pings of its leader's node replace the heartbeats, and `Liveness` knows, per peer, the groups that
the peer vouches for. A group wakes when its vouch becomes void (x20):

- the peer has been missing for a randomized election timeout,
- the peer runs in a new incarnation, or
- the peer says that the group left the set of groups that it leads idle.

Every leaving has a number, the set's version. A ping carries the version, and the groups that left
since the version that the receiver is known to have. A receiver whose version is older than the
list reaches voids all vouches of that peer.

`Liveness` affects only timers. It never affects commits, votes or reads.
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
"""The leavings kept for peers that have not acknowledged them; peers further behind void all
vouches."""
_SPREAD_PER_GROUP_S: Final = 0.003
_SPREAD_MAX_S: Final = 1.0
"""The time over which the elections of many groups are spread: each costs a few milliseconds."""
_VERSION_BITS: Final = 32
"""The low bits of a version, which count within an incarnation (see `limits.boot_max`)."""


class Ping(NamedTuple):
    """The part of every frame that carries liveness; a frame without messages is a ping."""

    version: int
    """The number of leavings from the set of groups that the sender leads idle, above its
    incarnation."""
    seen: int
    """The receiver's version as the sender knows it; 0: unknown."""
    left: list[GroupId]
    """The last groups that left, newest last, as far back as the receiver needs them."""

    @classmethod
    def from_wire(cls, told: Sequence[Any]) -> "Ping":
        """Return the ping of a wire array whose fields the table of messages has checked."""
        version, seen, left = told
        return cls(version, seen, [GroupId(*gid) for gid in left])


class Wake(NamedTuple):
    """A group that must wake because of news about `peer`."""

    gid: GroupId
    peer: int
    campaign: bool
    """The peer led the group and is missing: the first member to wake asks for votes."""


@dataclass(slots=True)
class _Peer:
    incarnation: int
    heard_at: float = -math.inf
    missing_at: float = math.inf
    missing: bool = False
    version: int = 0
    """The peer's newest version that we know; 0: unknown."""
    seen: int = 0
    """Our version as far as the peer has acknowledged it."""
    vouches: set[GroupId] = field(default_factory=set)
    """Groups that rest here because the peer leads them."""


@dataclass(slots=True)
class _Led:
    peers: frozenset[int]
    confirmed: set[int]


class Liveness:
    """A node's knowledge of its peers' liveness. All calls come from one thread.

    Times are in seconds of the given clock. The caller calls `tick` at `next_deadline` and sends a
    frame to every peer when it returns True. The caller gives each frame the `ping` of its
    receiver, and passes each received frame to `heard`. After each of these calls, it calls
    `Group.disturb` for each of `take_wakes`.
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
        """Create the liveness of a node. `incarnation` is higher at each start of the node.

        A group's `Idle` calls `on_wake` when the group ceases to rest, with the role of this
        member, leader or follower.
        """
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
        """The version of the set of groups that this node leads idle; each leaving raises it."""
        return self._version

    def ping(self, peer: int) -> Ping:
        """Return the ping to send with a frame to this peer now."""
        known = self._peers.get(peer)
        if known is None:
            return Ping(self._version, 0, list(self._left))
        if known.seen == self._version or not self._left:
            return Ping(self._version, known.version, [])
        news = min(self._version - known.seen, len(self._left))
        left = [self._left[i] for i in range(len(self._left) - news, len(self._left))]
        return Ping(self._version, known.version, left)

    def heard(self, peer: int, incarnation: int, ping: Ping) -> None:
        """Handle the ping of a peer's frame. A frame of an older incarnation is ignored.

        Raises RemoteProtocolError for a version of a later incarnation, since it would outrank all
        later versions.
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
        """Void the peer's vouches and wake its groups.

        The restarted peer has forgotten its confirmations and no longer leads its groups (x2.14).
        """
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
        """Find the missing peers. Return True when a frame must be sent to every peer now."""
        now = self._clock()
        if now < self._ping_at:
            return False
        late = now - self._ping_at > self._options.ping_s
        self._ping_at = now + self._options.ping_s
        for peer, known in self._peers.items():
            if late:
                # This node was away, not the peers: their messages of that time are still unread.
                known.missing_at = max(known.missing_at, self._ping_at)
            if not known.missing and now >= known.missing_at:
                known.missing = True
                self._wake_spread(known.vouches, peer, campaign=True)
                self._wake_spread(
                    (g for g, led in self._led.items() if self._lacks_quorum(peer, led)), peer
                )
        return True

    def take_wakes(self) -> list[Wake]:
        """Take the groups to disturb now.

        A group rests on if its missing peer has returned in time.
        """
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

    # The state of a node.

    def missing(self, peer: int) -> bool:
        """Whether the peer was never heard, or not within its randomized election timeout."""
        known = self._peers.get(peer)
        return known is None or known.missing

    def heard_at(self, peer: int) -> float:
        """When the last frame of the peer came; minus infinity if none came."""
        known = self._peers.get(peer)
        return -math.inf if known is None else known.heard_at

    def alive(self, peer: int) -> bool:
        """Whether the peer was heard within the least election timeout.

        Nobody may depose a leader that was heard so lately.
        """
        return self._clock() - self.heard_at(peer) < self._options.election_timeout_min_s

    # Calls of groups.

    def vouch(self, gid: GroupId, leader: int, version: int) -> bool:
        """Let the group here rest while this leader's node pings. False: the group must not rest.

        `version` is the version under which the leader asked. If we know a later version, the group
        may have left the set since, and its leaving may have been in an earlier ping.
        """
        known = self._peers.get(leader)
        if known is None or known.missing or known.version != version:
            return False
        known.vouches.add(gid)
        return True

    def unvouch(self, gid: GroupId, leader: int) -> None:
        """Note that the group here no longer rests."""
        known = self._peers.get(leader)
        if known is not None:
            known.vouches.discard(gid)

    def vouched_at(self, gid: GroupId, leader: int) -> float:
        """Return when the leader's node was last heard, or -infinity if it does not vouch."""
        known = self._peers.get(leader)
        return known.heard_at if known is not None and gid in known.vouches else -math.inf

    def enter(self, gid: GroupId, peers: frozenset[int], confirmed: set[int]) -> None:
        """Note that this node asks the peers of a group to let it rest; this node leads the group.

        The caller owns `confirmed` and adds the peers that have agreed.
        """
        self._led[gid] = _Led(peers, confirmed)

    def leave(self, gid: GroupId) -> None:
        """Note that the group rests no longer, or that this node no longer leads it."""
        if self._led.pop(gid, None) is not None:
            self._version += 1
            self._left.append(gid)
