"""Elections: when this member asks for votes, and how it answers a candidate.

Pre-vote (Ongaro's thesis, 9.6; hole 21): a member whose leader fell silent first asks whether it
would be elected. Only a majority of grants starts an election. So a member that was cut off and
comes back raises no term and deposes no leader. The engine starts elections only while it sees a
peer; the group hides all peers, and shows them for the one tick that starts an election.

The timer belongs to the group. Its randomness comes from the given rng.
"""

import math
import random
from collections.abc import Callable

from . import guard
from .idle import Idle
from .types import RaftOptions


class Elections:
    """The election timer of one member, and its pre-vote rounds."""

    def __init__(
        self,
        *,
        node_id: int,
        majority: int,
        options: RaftOptions,
        clock: Callable[[], float],
        rng: random.Random,
        idle: Idle,
    ) -> None:
        self._node_id = node_id
        self._majority = majority
        self._options = options
        self._clock = clock
        self._rng = rng
        self._idle = idle
        self._grants: set[int] = set()
        self._leader_heard_at = -math.inf
        """Minus infinity at start: otherwise the first pre-vote of a new generation would wait
        (x2.13)."""
        self._last_leader: int | None = None
        self._asked_at = -math.inf
        self.round = 0
        self.asking = False
        self.deadline = math.inf

    def wait(self) -> None:
        """Give others a full, randomized timeout before this member asks."""
        self._idle.unvouch()
        timeout = self._rng.uniform(
            self._options.election_timeout_min_s, self._options.election_timeout_max_s
        )
        self.deadline = self._clock() + timeout
        self.asking = False

    def ask_now(self) -> None:
        """Ask for votes at the next tick."""
        self._idle.unvouch()
        self.deadline = self._clock()

    def heard_leader(self, leader: int, *, rests: bool = False) -> None:
        """Note that a live leader of the current term has sent a message.

        `rests`: the message does not end the rest of this member, whose timer stands still.
        """
        self._leader_heard_at = self._clock()
        self._last_leader = leader
        if not rests:
            self.wait()

    def rest(self) -> None:
        """Stop the timer until `wait` or `ask_now`: the leader's node vouches for the leader."""
        self.deadline = math.inf

    def leader_is_live(self) -> bool:
        """Whether the leader or its vouching node was heard within the minimum election timeout."""
        heard_at = max(self._leader_heard_at, self._idle.leader_heard_at())
        return self._clock() - heard_at < self._options.election_timeout_min_s

    def begin(self) -> bool:
        """Begin a pre-vote round with our own grant. Return True if that is already a majority."""
        self.wait()
        self.round += 1
        self.asking = True
        self._asked_at = self._clock()
        self._grants = {self._node_id}
        return len(self._grants) >= self._majority

    def granted(self, voter: int, asked_round: int) -> bool:
        """Count a grant. Return True if it completes the majority; the round is then over."""
        if not self.asking or asked_round != self.round:
            return False
        self._grants.add(voter)
        if len(self._grants) < self._majority:
            return False
        self.asking = False
        return True

    def grants(
        self, candidate: int, last_index: int, last_term: int, *, tail: guard.Tail, leads: bool
    ) -> bool:
        """Whether we would vote for `candidate`. `leads`: we lead, and have heard a majority.

        A leader that asks for votes no longer leads, however lately it was heard (x20). If two
        members ask at once, one must win, or both elections fail and a timeout is lost. So for the
        time of a heartbeat the member that asks yields only to a longer log or a larger id, and the
        member that grants does not ask.
        """
        if leads or (self.leader_is_live() and candidate != self._last_leader):
            return False
        if not guard.up_to_date(tail, last_index, last_term):
            return False
        now, patience = self._clock(), self._options.heartbeat_s
        if self.asking and now - self._asked_at < patience:
            theirs = (last_term, last_index, candidate)
            if theirs < (tail.last_term, tail.last_index, self._node_id):
                return False
        self.deadline = max(self.deadline, now + patience)
        return True
