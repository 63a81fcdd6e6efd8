"""Read index (Ongaro's thesis, 6.4): a linearizable read without an entry in the log.

A member that is asked for a read asks the others whether they are still at its term. Once a
majority has said so, itself included, nobody leads a later term yet, so that the commit index of
this term's leader, noted after the read arrived, covers every append acknowledged before it. The
leader knows the index itself, provided that it has committed an entry of its own term; a follower
has it from the leader, whose answer tells it. One round is outstanding at a time, reads that
arrive meanwhile join the next.
"""

from collections.abc import Collection
from typing import NamedTuple


class ReadQuestion(NamedTuple):
    """Are you at this term? `round` is the asker's own and counts its rounds."""

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
        """What the outstanding round asks; None without one."""
        return ReadQuestion(self._term, self._round) if self._asked else None

    @property
    def busy(self) -> bool:
        """Some read is not settled."""
        return bool(self._asked or self._waiting)

    def request(self) -> int:
        """A new read; its ticket."""
        self._tickets += 1
        self._waiting.append(self._tickets)
        return self._tickets

    def begin(self, term: int, index: int | None) -> bool:
        """Start a round for what waits, if none is outstanding. True: ask the members.

        `index`: the commit index of a leader that has committed in this term, None of a follower.
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
        """A member said yes. `index`: its commit index, if it leads and may tell it; else 0."""
        if question == self.question:
            self._confirmed.add(peer)
            self._index = self._index or index or None
            self._settle()

    def targets(self, linked: Collection[int], leader: int | None) -> list[int]:
        """Those of the linked peers that the outstanding round is still to be asked of."""
        if not self._asked:
            return []
        if self._index is None and self._majority == 2:
            linked = [peer for peer in linked if peer == leader]  # with us it is a majority
        return [
            peer
            for peer in linked
            if peer not in self._confirmed or (peer == leader and self._index is None)
        ]

    def _settle(self) -> None:
        if self._index is not None and len(self._confirmed) >= self._majority:
            self._done.extend((ticket, self._index) for ticket in self._asked)
            self._asked = []

    def fail(self) -> None:
        """The term or its leader is over: nothing is known of any read that waits."""
        self._done.extend((ticket, None) for ticket in (*self._asked, *self._waiting))
        self._asked, self._waiting = [], []

    def take(self) -> list[tuple[int, int | None]]:
        """(ticket, read index) of the reads that are settled; None: failed."""
        done, self._done = self._done, []
        return done
