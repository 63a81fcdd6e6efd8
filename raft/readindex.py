"""Read index (Ongaro's thesis, 6.4): a linearizable read without an entry in the log.

A leader that has committed in its own term notes its commit index and asks the members whether it
still leads; after a majority has said yes, every append acknowledged before the read is at or
below that index. One round is outstanding at a time, reads that arrive meanwhile join the next.
"""

from collections.abc import Collection


class ReadIndex:
    """The reads of one leader. Tickets are numbers of this object, never reused."""

    def __init__(self, *, node_id: int, majority: int) -> None:
        self._node_id = node_id
        self._majority = majority
        self._tickets = 0
        self._waiting: list[int] = []
        self._asked: list[int] = []
        self._confirmed: set[int] = set()
        self._index = 0
        self._done: list[tuple[int, int | None]] = []
        self.round = 0

    @property
    def outstanding(self) -> bool:
        """A round waits for answers."""
        return bool(self._asked)

    def request(self) -> int:
        """A new read; its ticket."""
        self._tickets += 1
        self._waiting.append(self._tickets)
        return self._tickets

    def begin(self, commit_index: int) -> bool:
        """Start a round for what waits, if none is outstanding. True: ask the members."""
        if self._asked or not self._waiting:
            return False
        self.round += 1
        self._asked, self._waiting = self._waiting, []
        self._index = commit_index
        self._confirmed = {self._node_id}
        self._settle()
        return bool(self._asked)

    def confirmed(self, peer: int, asked_round: int) -> None:
        """A member said that we lead."""
        if self._asked and asked_round == self.round:
            self._confirmed.add(peer)
            self._settle()

    def unconfirmed(self, peers: Collection[int]) -> list[int]:
        """Those of the peers that have not answered the outstanding round."""
        return [peer for peer in peers if self._asked and peer not in self._confirmed]

    def _settle(self) -> None:
        if len(self._confirmed) >= self._majority:
            self._done.extend((ticket, self._index) for ticket in self._asked)
            self._asked = []

    def fail(self) -> None:
        """We lead no longer: nothing is known of any read that waits."""
        self._done.extend((ticket, None) for ticket in (*self._asked, *self._waiting))
        self._asked, self._waiting = [], []

    def take(self) -> list[tuple[int, int | None]]:
        """(ticket, read index) of the reads that are settled; None: failed."""
        done, self._done = self._done, []
        return done
