"""The guard between the wire and the engine: the library's holes and the protocol's rules.

The functions take (log, message) and accept, rewrite, answer or refuse. They have no state and no
effects. `group.py` calls them and moves the messages. The numbers are the rows of the table of
holes in docs. Each hole has a regression test that opens it and demands to see the violation.
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
"""The holes that this folder closes and a test may open. The log and the state machine close
others."""

ALL_HOLES: Final = frozenset(HOLES)

_LIBRARY_FALLBACK_S = 30.0


class Tail(Protocol):
    """The end of the log as the engine sees it."""

    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...


def majority(members: int) -> int:
    """Return the number of votes that elect, and of acks that commit."""
    return members // 2 + 1


def fallback_s(options: RaftOptions, closed: frozenset[int]) -> float:
    """Return for how long a leader goes on without hearing a majority (hole 20)."""
    return 1.5 * options.election_timeout_max_s if 20 in closed else _LIBRARY_FALLBACK_S


def stall_s(options: RaftOptions) -> float:
    """Return how long a leader's own disk may stall with work to do before it steps down.

    Heartbeats need no disk, so no other member would notice; nothing commits meanwhile (hole 5).
    The time is far above any healthy sync, so that slow disks do not depose every leader.
    """
    return 2.0 * options.election_timeout_max_s


def verified(log: RaftLog, append: Append) -> Append:
    """Return the new part of a leader's append, for an engine that takes everything literally.

    Entries at or below our base are committed, so they are equal in both logs: the append then
    starts at the base. Entries that we already hold are skipped, but only those that the message
    carries: an entry that the message does not name may differ from the leader's (x2.4). The commit
    index goes no further than the entries that this message verifies, since later entries may come
    from another leader (x2.3).

    Raises RefusedMessageError for an append that contradicts entries committed here. One of the two
    members is then wrong; this member keeps its entries.
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
    """Whether `term` is too far above `ours` to be reached by elections.

    A member never gives up a term that it believed, and a group at the largest term can elect
    nobody.
    """
    return term - ours > limits.term_jump_max


def _held(log: RaftLog, prev_index: int, entries: list[list[int | bytes]]) -> int:
    """Return how many of the entries after prev_index our log already holds."""
    for position, (term, _command) in enumerate(entries):
        if log.term_at(prev_index + 1 + position) != term:
            return position
    return len(entries)


def probe_as_append(probe: BaseProbe) -> Append:
    """Return the empty append at the leader's base that asks the same as the probe.

    All entries up to the base are committed. `verified` passes this on only if we hold the base.
    """
    return Append(probe.term, probe.epoch, probe.base_index, probe.base_term, probe.base_index, [])


def rejection(term: int, epoch: int, commit_index: int, tail: Tail) -> Reject:
    """Return the answer to any gap (hole 4): the logs are surely equal up to our commit index.

    The answer also names the end of our log. The leader may hold that entry, and may no longer hold
    the entries after our commit index (x1).
    """
    return Reject(term, epoch, commit_index + 1, tail.last_index, tail.last_term)


def next_after_rejection(log: RaftLog, reject: Reject, acked: int) -> int | None:
    """Return the leader's next index for a peer that rejected, or None if the peer needs a base.

    Equal (index, term) means equal logs up to there. A peer keeps the entries that it acked, so a
    late rejection never moves the next index back below them.
    """
    if log.term_at(reject.last_index) == reject.last_term:
        return max(reject.last_index, acked) + 1
    start = min(max(reject.next_index, acked + 1), log.last_index + 1)
    return start if start > log.base_index else None


def up_to_date(tail: Tail, last_index: int, last_term: int) -> bool:
    """Whether a log ending at (last_index, last_term) is as new as ours (Raft's election rule)."""
    return (last_term, last_index) >= (tail.last_term, tail.last_index)


def hold_until(log: RaftLog, index: int, closed: frozenset[int]) -> int:
    """Return the WAL round that a message showing our term and entries up to `index` waits for.

    By round, not by index: the sync of (10, T5) says nothing about (10, T6) (x2.1). 0: no wait.
    """
    if 5 in closed and 6 in closed:
        return log.message_round(index)
    if 5 in closed:
        return log.round_of(index)
    if 6 in closed:
        return log.message_round(log.base_index)
    return 0


def credit(acked: int, durable_index: int, closed: frozenset[int]) -> int:
    """Return the index up to which a follower's ack counts.

    The leader may commit only entries that are on its own disk.
    """
    return min(acked, durable_index) if 5 in closed else acked
