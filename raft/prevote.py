"""Elections: when this member asks for the lead, and what it answers to one that asks.

Pre-vote (Ongaro's thesis, 9.6; hole 21): a member whose leader fell silent first asks whether it
would be elected, and only a majority of grants starts an election, so that one who was cut off
and comes back raises no term and deposes nobody. The engine starts elections only while it sees a
peer; the group hides all peers and shows them for the one tick of an election that was won here.

The timer is the group's own. Its randomness comes from the rng it was given.
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
        """Minus infinity at start: else a new generation's first pre-vote waits (x2.13)."""
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
        """The next tick asks."""
        self._idle.unvouch()
        self.deadline = self._clock()

    def heard_leader(self, leader: int, *, rests: bool = False) -> None:
        """A live leader of the current term has spoken. `rests`: with nothing that ends the rest
        of this member, whose timer stands still."""
        self._leader_heard_at = self._clock()
        self._last_leader = leader
        if not rests:
            self.wait()

    def rest(self) -> None:
        """The leader's node vouches for it: no timer runs until `wait` or `ask_now`."""
        self.deadline = math.inf

    def leader_is_live(self) -> bool:
        """A leader was heard within the minimum election timeout, or the node that vouches."""
        heard_at = max(self._leader_heard_at, self._idle.leader_heard_at())
        return self._clock() - heard_at < self._options.election_timeout_min_s

    def begin(self) -> bool:
        """A new pre-vote round, our own grant included. True: that is a majority already."""
        self.wait()
        self.round += 1
        self.asking = True
        self._asked_at = self._clock()
        self._grants = {self._node_id}
        return len(self._grants) >= self._majority

    def granted(self, voter: int, asked_round: int) -> bool:
        """Count a grant. True: it is the one that makes the majority; the round is over."""
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

        A leader that asks no longer leads, however lately it was heard (x20). Of two
        that ask at once one must win, or both elections fail and a timeout is lost: for the time
        of a heartbeat the one who asks yields only to a longer log or a larger id, and the one
        who grants does not ask.
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
