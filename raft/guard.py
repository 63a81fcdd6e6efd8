"""What stands between the wire and the engine: the holes of the library, and the protocol's rules.

Functions of (log, message) that accept, rewrite, answer or refuse, and nothing else: no state, no
effects. `group.py` calls them and moves the messages. The numbers are the rows of the table of
holes in docs; each has a regression test that opens its hole and demands to see the violation.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from ..client.protocol import limits
from .journal import RaftLog
from .messages import Append, BaseProbe, Reject
from .types import RaftOptions, RefusedMessageError

HOLES: Final[Mapping[int, str]] = {
    1: "a snapshot message moves the commit index over entries that nobody verified",
    2: "an append behind the end truncates what follows, matching or not",
    3: "replies of another term or connection count",
    4: "a reset goes back to wherever the library thinks, not to the commit index",
    5: "entries count before they are durable",
    6: "terms and votes are shown before they are durable",
    16: "votes are counted per message, not per voter",
    20: "a leader without a quorum leads on for 30 s",
    21: "no pre-vote",
    26: "no bound on what is sent to a peer that does not answer",
}
"""Those that this folder closes and a test may open; the log and the state machine close others."""

ALL_HOLES: Final = frozenset(HOLES)

_LIBRARY_FALLBACK_S = 30.0


class Tail(Protocol):
    """The end of the log as the engine sees it."""

    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...


def majority(members: int) -> int:
    """Votes that elect, acks that commit."""
    return members // 2 + 1


def fallback_s(options: RaftOptions, closed: frozenset[int]) -> float:
    """How long a leader that hears no majority goes on (hole 20)."""
    return 1.5 * options.election_timeout_max_s if 20 in closed else _LIBRARY_FALLBACK_S


def stall_s(options: RaftOptions) -> float:
    """How long a leader's own disk may stand still with work to do before it makes room.

    Its heartbeats need no disk, so nobody else would notice; nothing commits meanwhile (hole 5).
    Far above any healthy sync, so that disks which are merely slow do not drive out every leader.
    """
    return 2.0 * options.election_timeout_max_s


def verified(log: RaftLog, append: Append) -> Append:
    """The part of a leader's append that is news, for an engine that takes everything literally.

    What lies at or below our base is committed, so equal in both logs: the append then speaks
    from the base on. Entries that we hold already are skipped, but only those that the message
    carries: an entry that it does not name may differ from the leader's (x2.4). The
    commit index goes no further than what this message verifies, since entries behind its
    reach may be another leader's (x2.3).

    Raises RefusedMessageError for an append that contradicts what is committed here. Of two members
    one is then wrong; this one keeps what it has.
    """
    index, term, entries = append.prev_index, append.prev_term, append.entries
    if index < log.base_index:
        passed = min(log.base_index - index, len(entries))
        if index + passed == log.base_index and entries[passed - 1][0] != log.base_term:
            raise RefusedMessageError("contradicts_base")
        index, term, entries = log.base_index, log.base_term, entries[passed:]
    if log.term_at(index) == term:
        held = _held(log, index, entries)
        if held:
            index, term, entries = index + held, int(entries[held - 1][0]), entries[held:]
        if entries and index < log.commit_index:
            raise RefusedMessageError("contradicts_commit")
    commit = min(append.commit, index + len(entries))
    return Append(append.term, append.epoch, index, term, commit, entries)


def is_impossible(term: int, ours: int) -> bool:
    """Whether so many elections cannot have passed unheard: a term that is believed is never given
    up, and a group whose term reaches the end of the numbers elects nobody any more."""
    return term - ours > limits.term_jump_max


def _held(log: RaftLog, prev_index: int, entries: list[list[int | bytes]]) -> int:
    """How many of the entries after prev_index our log already has."""
    for position, (term, _command) in enumerate(entries):
        if log.term_at(prev_index + 1 + position) != term:
            return position
    return len(entries)


def probe_as_append(probe: BaseProbe) -> Append:
    """A base probe asks what an empty append at the leader's base would ask.

    All up to the base is committed, which `verified` grants where the base itself is held.
    """
    return Append(probe.term, probe.epoch, probe.base_index, probe.base_term, probe.base_index, [])


def rejection(term: int, epoch: int, commit_index: int, tail: Tail) -> Reject:
    """The one answer to any gap (hole 4): up to our commit index the logs are surely equal.

    The end of our log goes with it, since the leader may know it, and may no longer hold what
    follows our commit index (x1).
    """
    return Reject(term, epoch, commit_index + 1, tail.last_index, tail.last_term)


def next_after_rejection(log: RaftLog, reject: Reject, acked: int) -> int | None:
    """The leader's next index for a peer that rejected; None: it needs a base.

    Equal (index, term) means equal logs up to there. What a peer has acked it has for good, so
    that a late rejection never takes it back behind that.
    """
    if log.term_at(reject.last_index) == reject.last_term:
        return max(reject.last_index, acked) + 1
    start = min(max(reject.next_index, acked + 1), log.last_index + 1)
    return start if start > log.base_index else None


def up_to_date(tail: Tail, last_index: int, last_term: int) -> bool:
    """Raft's election restriction: a log that ends there is not behind ours."""
    return (last_term, last_index) >= (tail.last_term, tail.last_index)


def hold_until(log: RaftLog, index: int, closed: frozenset[int]) -> int:
    """The WAL round that a message waits for which shows our term and our entries up to `index`.

    By round, not by index: the sync of (10, T5) says nothing of (10, T6) (x2.1).
    """
    if 5 in closed and 6 in closed:
        return log.message_round(index)
    if 5 in closed:
        return log.round_of(index)
    if 6 in closed:
        return log.message_round(log.base_index)
    return 0


def credit(acked: int, durable_index: int, closed: frozenset[int]) -> int:
    """Up to where a follower's ack counts: the leader votes with what it has on its own disk."""
    return min(acked, durable_index) if 5 in closed else acked
