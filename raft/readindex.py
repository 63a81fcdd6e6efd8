"""Read index (Ongaro's thesis, 6.4): a linearizable read without an entry in the log.

A member with a read asks the others whether they are still at its term. A majority of yes, itself
included, shows that no leader of a later term exists yet. So the commit index of this term's
leader, noted after the read arrived, covers every append acknowledged before the read. The leader
knows the index itself, provided that it has committed an entry of its own term. A follower learns
the index from the leader's answer. One round is outstanding at a time; reads that arrive meanwhile
join the next round.

As many members are asked at first as suffice. The others are asked when those have not answered for
a moment (a hedged request: Dean and Barroso, The Tail at Scale, 2013).
"""

from collections.abc import Collection
from typing import NamedTuple


class ReadQuestion(NamedTuple):
    """The question: are you at this term? `round` counts the rounds of the asker."""

    term: int
    round: int


class ReadIndex:
    """The reads of one member. Tickets are numbers of this object, never reused."""

    def __init__(self, *, node_id: int, majority: int) -> None:
        self._node_id = node_id
        self._majority = majority
        self._tickets = 0
        self._waiting: list[int] = []
        self._asked: list[int] = []
        self._confirmed: set[int] = set()
        self._term = 0
        self._index: int | None = None
        self._round = 0
        self._done: list[tuple[int, int | None]] = []

    @property
    def question(self) -> ReadQuestion | None:
        """The question of the outstanding round; None without a round."""
        return ReadQuestion(self._term, self._round) if self._asked else None

    @property
    def busy(self) -> bool:
        """Whether a read is not settled yet."""
        return bool(self._asked or self._waiting)

    def request(self) -> int:
        """Add a read and return its ticket."""
        self._tickets += 1
        self._waiting.append(self._tickets)
        return self._tickets

    def begin(self, term: int, index: int | None) -> bool:
        """Start a round for the waiting reads, unless one is outstanding.

        Returns True if the members must be asked. `index`: the commit index of a leader that has
        committed in this term, None for a follower.
        """
        if self._asked or not self._waiting:
            return False
        self._round += 1
        self._asked, self._waiting = self._waiting, []
        self._term, self._index = term, index
        self._confirmed = {self._node_id}
        self._settle()
        return bool(self._asked)

    def confirmed(self, peer: int, question: ReadQuestion, index: int) -> None:
        """Count a member's yes. `index`: its commit index if it leads and may tell it, else 0."""
        if question == self.question:
            self._confirmed.add(peer)
            self._index = self._index or index or None
            self._settle()

    def targets(
        self, linked: Collection[int], leader: int | None, *, first: bool = False
    ) -> list[int]:
        """Return the linked peers that have yet to be asked the outstanding round.

        `first`: only as many as suffice, the leader before the others, which go in their order.
        """
        if not self._asked:
            return []
        if self._index is None and self._majority == 2:
            linked = [peer for peer in linked if peer == leader]  # these two are a majority
        found = [
            peer
            for peer in linked
            if peer not in self._confirmed or (peer == leader and self._index is None)
        ]
        if first:
            found.sort(key=lambda peer: peer != leader)
            del found[self._majority - len(self._confirmed) :]
        return found

    def _settle(self) -> None:
        if self._index is not None and len(self._confirmed) >= self._majority:
            self._done.extend((ticket, self._index) for ticket in self._asked)
            self._asked = []

    def fail(self) -> None:
        """Fail all waiting reads: the term is over, or its leader is gone."""
        self._done.extend((ticket, None) for ticket in (*self._asked, *self._waiting))
        self._asked, self._waiting = [], []

    def take(self) -> list[tuple[int, int | None]]:
        """Take the settled reads as (ticket, read index); the index is None if the read failed."""
        done, self._done = self._done, []
        return done
