"""Messages of a group on their way out: those that may leave, and those that wait for a sync.

A message that shows a term, a vote or entries is a promise to remember them, so it waits for the
WAL round that makes them durable (holes 5 and 6). It is stamped when it is made, not when it
leaves: what it said was true then, and all that this member did before it is durable when it goes
(x2.1). A restart drops what is held.
"""

from . import guard, messages
from .journal import RaftLog
from .types import Message


class Outbox:
    """One group's outgoing messages, in order except for those held."""

    def __init__(self, log: RaftLog, closed: frozenset[int]) -> None:
        self._log = log
        self._closed = closed
        self._ready: list[tuple[int, Message]] = []
        self._held: list[tuple[int, int, Message]] = []

    def send(self, peer: int, body: messages.Body) -> None:
        """Nothing in it needs to be durable: entries may travel while they are synced here."""
        self._ready.append((peer, messages.encode(body)))

    def promise(self, peer: int, body: messages.Body, index: int | None = None) -> None:
        """It shows term, vote and entries up to `index`: held until they are durable."""
        shown = self._log.base_index if index is None else index
        until = guard.hold_until(self._log, shown, self._closed)
        if until:
            self._held.append((until, peer, messages.encode(body)))
        else:
            self.send(peer, body)

    def release(self) -> None:
        """A round was synced: what waited for it may leave."""
        synced = self._log.synced_round
        self._ready.extend((peer, body) for until, peer, body in self._held if until <= synced)
        self._held = [held for held in self._held if held[0] > synced]

    def clear(self) -> None:
        """Nothing of this leaves."""
        self._ready.clear()
        self._held.clear()

    def take(self) -> list[tuple[int, Message]]:
        """What may leave now."""
        ready, self._ready = self._ready, []
        return ready
