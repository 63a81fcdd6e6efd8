"""The follower's side of replication: which parts of a leader's messages the engine gets.

The engine takes every append literally and answers each. The engine gets the part of an append that
`guard.verified` leaves. Its acks go out when they are durable. Its resets go out as one rejection a
gap, in the one form that brings the logs together (hole 4).
"""

from collections.abc import Callable

from . import guard
from .engine import Packet
from .member import Member
from .messages import Ack, Append, BaseProbe, Snapshot


class Follower:
    """How one member handles the messages of its leader."""

    def __init__(self, member: Member, accepts: Callable[[], bool]) -> None:
        self._accepts = accepts
        self._engine = member.engine
        self._journal = member.journal
        self._log = member.journal.log
        self._outbox = member.outbox
        self._options = member.options
        self._clock = member.clock
        self._closed = member.closed
        self._asker: tuple[int, int] = (0, 0)
        """Sender and epoch of the message that the engine is answering."""
        self._heartbeat = False
        """Whether that message carries no entries."""
        self._gap: tuple[tuple[int, int, int], float] | None = None
        """The (leader, term, epoch) whose gap was answered last, and the time of the answer."""
        self._probed = False
        self.base_wanted = False
        """A base must be installed, since the leader's log no longer continues ours."""

    def append(self, sender: int, append: Append) -> None:
        """Handle entries or a heartbeat of the leader of our term or a higher term.

        Without room for the entries, the message counts as a heartbeat: the entries are as if lost.
        """
        if append.entries and not self._accepts():
            append = append._replace(entries=[])
        self._deliver(sender, guard.verified(self._log, append) if 2 in self._closed else append)

    def probe(self, sender: int, probe: BaseProbe) -> None:
        """Handle a probe of the leader, which no longer holds entries that we may need.

        If we do not hold the leader's base, we need one.
        """
        verified = guard.verified(self._log, guard.probe_as_append(probe))
        self._probed = True
        self._deliver(sender, verified)
        self._probed = False

    def snapshot(self, sender: int, snapshot: Snapshot) -> None:
        """Drop the message.

        With hole 1 open, the engine takes its commit index and verifies nothing.
        """
        if 1 in self._closed:
            return
        packet = {
            "type": "append_entries",
            "term": snapshot.term,
            "commit_index": snapshot.commit,
            "serialized": None,
        }
        self._engine.deliver(sender, packet)

    def _deliver(self, sender: int, append: Append) -> None:
        self._asker = sender, append.epoch
        self._heartbeat = not append.entries
        first = append.prev_index + 1
        self._engine.deliver(
            sender,
            {
                "type": "append_entries",
                "term": append.term,
                "commit_index": append.commit,
                "entries": [
                    (command, first + position, term)
                    for position, (term, command) in enumerate(append.entries)
                ],
                "prevLogIdx": append.prev_index,
                "prevLogTerm": append.prev_term,
            },
        )

    def answer(self, packet: Packet) -> None:
        """Send the engine's verdict.

        Term and epoch are the present ones, not those at the sync (x2.1).
        """
        sender, epoch = self._asker
        term, next_index = self._engine.term, packet["next_node_idx"]
        if not packet["reset"]:
            self._gap = None
            self.base_wanted = False
            durable = self._log.durable_index
            if self._heartbeat and durable < next_index - 1:
                # A slow disk must not make the leader believe that this member is dead.
                self._outbox.promise(sender, Ack(term, epoch, durable + 1), durable)
            self._outbox.promise(sender, Ack(term, epoch, next_index), next_index - 1)
            return
        self.base_wanted = self.base_wanted or self._probed
        reject = guard.rejection(term, epoch, self._log.commit_index, self._journal)
        if 4 not in self._closed:
            reject = reject._replace(next_index=next_index)
        elif self._answered_before((sender, term, epoch)):
            return
        self._outbox.promise(sender, reject)

    def _answered_before(self, gap: tuple[int, int, int]) -> bool:
        """Whether this gap was answered within the last heartbeat (x2.9).

        So a gap gets one answer, instead of one for each pipelined append.
        """
        now = self._clock()
        if self._gap is not None:
            known, answered_at = self._gap
            if known == gap and now - answered_at < self._options.heartbeat_s:
                return True
        self._gap = gap, now
        return False
