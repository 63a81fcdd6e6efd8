"""Outgoing messages of a group: some may leave, the others wait for a sync.

A message that shows a term, a vote or entries is a promise to remember them. So the message waits
for the WAL round that makes them durable (holes 5 and 6). A message is stamped when it is made, not
when it leaves: its statement was true then, and every earlier action of this member is durable when
the message leaves (x2.1). A restart drops the held messages.
"""

from . import guard, messages
from .journal import RaftLog
from .types import Message


class Outbox:
    """The outgoing messages of one group, in order except for the held messages."""

    def __init__(self, log: RaftLog, closed: frozenset[int]) -> None:
        self._log = log
        self._closed = closed
        self._ready: list[tuple[int, Message]] = []
        self._held: list[tuple[int, int, Message]] = []

    def send(self, peer: int, body: messages.Body) -> None:
        """Send a message that promises nothing: entries may travel while they are synced here."""
        self._ready.append((peer, messages.encode(body)))

    def promise(self, peer: int, body: messages.Body, index: int | None = None) -> None:
        """Hold a message that shows term, vote and entries up to `index` until they are durable."""
        shown = self._log.base_index if index is None else index
        until = guard.hold_until(self._log, shown, self._closed)
        if until:
            self._held.append((until, peer, messages.encode(body)))
        else:
            self.send(peer, body)

    def release(self) -> None:
        """Release the messages that waited for a synced round."""
        synced = self._log.synced_round
        self._ready.extend((peer, body) for until, peer, body in self._held if until <= synced)
        self._held = [held for held in self._held if held[0] > synced]

    def clear(self) -> None:
        """Drop all messages."""
        self._ready.clear()
        self._held.clear()

    def take(self) -> list[tuple[int, Message]]:
        """Take the (peer, message) pairs that may leave now."""
        ready, self._ready = self._ready, []
        return ready
