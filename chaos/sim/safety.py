"""Properties of Raft, checked from outside after every step of a replica.

The checks are Raft's five properties (Ongaro's thesis, figure 3.2) and one more of lognode: an
entry counts as acknowledged only when it lies on a majority of disks (S1). The checker knows no
product code. It sees a log through `LogView`, and learns what is durable from the simulated disk's
finished syncs, not from the product.

By log matching, (index, term) names one entry and everything before it. Each log is therefore
reduced to a chain of hashes, and one table for all replicas holds the chain value of each (index,
term) ever seen. A second value for the same name is the violation.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from .violation import Violation


class EntryView(Protocol):
    """One log entry."""

    @property
    def term(self) -> int: ...
    @property
    def command(self) -> bytes: ...


class LogView(Protocol):
    """The part of a replica's log that the checker reads."""

    @property
    def base_index(self) -> int: ...
    @property
    def base_term(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def term_at(self, index: int) -> int | None: ...
    def entry(self, index: int) -> EntryView: ...


class Committed(NamedTuple):
    """An entry that some replica held as committed, and the term in which that was first seen."""

    term: int
    chain: bytes
    commit_term: int


@dataclass(slots=True)
class DurableLog:
    """The log that a disk holds for sure: terms of the entries after `base`, and all before it."""

    base: int
    terms: list[int]

    def holds(self, index: int, term: int) -> bool:
        offset = index - self.base - 1
        return offset < 0 or (offset < len(self.terms) and self.terms[offset] == term)


@dataclass(slots=True)
class _Replica:
    """The checker's copy of one replica's log; `terms[i]`, `chain[i]` are of index base + 1 + i."""

    base: int
    base_chain: bytes
    terms: list[int] = field(default_factory=list)
    chain: list[bytes] = field(default_factory=list)
    term: int = 0
    commit: int = 0
    applied: int = 0
    leads: bool = False
    pending: dict[int, DurableLog] = field(default_factory=dict)
    durable: DurableLog = field(default_factory=lambda: DurableLog(0, []))

    @property
    def last(self) -> int:
        return self.base + len(self.terms)


def _link(previous: bytes, term: int, command: bytes) -> bytes:
    return hashlib.blake2b(previous + term.to_bytes(8, "big") + command, digest_size=16).digest()


class SafetyChecker:
    """Watches all replicas of one group. Every method raises Violation."""

    def __init__(self, members: Iterable[int], base_index: int, base_term: int) -> None:
        self.members = tuple(members)
        self.majority = len(self.members) // 2 + 1
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, Committed] = {}
        self.last_committed = base_index
        self.hashes: dict[int, bytes] = {}
        self.effects: dict[int, bytes] = {}
        """Per entry, the hash of what the entries up to it did."""
        root = _link(b"", base_term, b"")
        self._chains: dict[tuple[int, int], bytes] = {(base_index, base_term): root}
        self._votes: dict[tuple[int, int], int] = {}
        self._shown: dict[int, int] = {}
        self._acked: tuple[int, int] | None = None
        self._replicas: dict[int, _Replica] = {}
        self._damaged: set[int] = set()
        self._kept: int | None = None
        """In a checker of `alone`: the index up to which the member had everything durably at the
        start."""

    # One life of a replica.

    def started(
        self, node: int, log: LogView, *, term: int, commit: int, applied: int, vote: int | None
    ) -> None:
        """Check a replica that has recovered; by x4 everything that it read is durable now."""
        self._check_sound(node)
        if len(self.members) == 1:
            # A single member leads before its term is durable, since it sends nothing to anybody: a
            # crash may lose entries that were never seen, with their term, and others take their
            # names.
            for name in [name for name in self._chains if name[0] > log.last_index]:
                del self._chains[name]
            if self._kept is not None:
                self._forget_above(max(self._kept, log.last_index))
        shown = self._shown.get(node, 0)
        if term < shown:
            raise Violation("durable-term", "a restart forgot a term shown", node=node,
                            term=term, shown=shown)  # fmt: skip
        self._check_vote(node, term, vote)
        before = self._replicas.get(node)
        chain = self._chains.get((log.base_index, log.base_term))
        if chain is None:
            raise Violation("base-install", "a base that no log ever held", node=node,
                            index=log.base_index, term=log.base_term)  # fmt: skip
        replica = _Replica(log.base_index, chain, term=term, applied=applied)
        self._replicas[node] = replica
        self._read_log(node, replica, log)
        self._read_commit(node, replica, log, commit)
        replica.durable = DurableLog(replica.base, list(replica.terms))
        if before is not None and not self._is_replaced(before.durable, log):
            self._check_recovery(node, before, replica.durable)
        self._check_acknowledged()

    def observe(self, node: int, log: LogView, *, term: int, commit: int, leads: bool) -> bool:
        """Check a replica after a step.

        Returns True when the replica has just become leader of a new term.
        """
        replica = self._replicas[node]
        if term < replica.term:
            raise Violation("monotonic-term", "the term went back", node=node,
                            was=replica.term, term=term)  # fmt: skip
        still_leads = leads and replica.leads and term == replica.term
        kept = self._read_log(node, replica, log)
        if still_leads and kept is not None:
            raise Violation("leader-append-only", "a leader cut its own log", node=node,
                            term=term, kept=kept)  # fmt: skip
        replica.term = term
        replica.leads = leads
        elected = leads and not still_leads and self._elected(node, replica, term)
        self._read_commit(node, replica, log, commit)
        return elected

    def applied(self, node: int, index: int, term: int, state_hash: bytes) -> None:
        """Note that the replica applied this entry, and the rolling hash of its state."""
        replica = self._replicas[node]
        if index != replica.applied + 1:
            raise Violation("apply-order", "an entry was skipped or applied twice", node=node,
                            index=index, applied=replica.applied)  # fmt: skip
        replica.applied = index
        entry = self.committed.get(index)
        if entry is None or entry.term != term:
            raise Violation("state-machine-safety", "applied what is not committed", node=node,
                            index=index, term=term, committed=entry and entry.term)  # fmt: skip
        self.same_state(node, index, state_hash)

    def same_state(self, node: int, index: int, state_hash: bytes) -> None:
        """Check that all replicas have equal state at equal index, across restarts and bases."""
        expected = self.hashes.setdefault(index, state_hash)
        if expected != state_hash:
            raise Violation("state-machine-safety", "two states at one applied index", node=node,
                            index=index)  # fmt: skip

    def did(self, node: int, index: int, effects: bytes) -> None:
        """Check that this entry had the same seqs, replies and changed rows as on its peers."""
        if self.effects.setdefault(index, effects) != effects:
            raise Violation("state-machine-safety", "an entry did different things", node=node,
                            index=index)  # fmt: skip

    def installed(self, node: int, log: LogView, applied: int) -> None:
        """Note that a base replaced the replica's state at this index; the index never falls."""
        replica = self._replicas[node]
        if applied < replica.applied:
            raise Violation("base-install", "installed below what was applied", node=node,
                            base=applied, applied=replica.applied)  # fmt: skip
        replica.applied = applied
        self._read_log(node, replica, log)

    # Durability, from the disk's side.

    def collected(self, node: int, round_number: int) -> None:
        """Note that the WAL took the queued items into this round."""
        replica = self._replicas[node]
        replica.pending[round_number] = DurableLog(replica.base, list(replica.terms))

    def synced(self, node: int, round_number: int) -> None:
        """Note that the disk finished this round."""
        replica = self._replicas[node]
        replica.durable = replica.pending.pop(round_number, replica.durable)
        if self._acked is not None and not replica.durable.holds(*self._acked):
            self._check_acknowledged()

    def acknowledged(self, index: int, term: int) -> None:
        """Check that a majority of disks has an acknowledged entry (S1)."""
        held = self._holders(index, term)
        if len(held) < self.majority:
            raise Violation("S1", "acknowledged without a majority of disks", index=index,
                            term=term, durable_on=held)  # fmt: skip
        entry = self.committed.get(index)
        if entry is None or entry.term != term:
            raise Violation("S2", "acknowledged what is not committed", index=index, term=term)
        if self._acked is None or index > self._acked[0]:
            self._acked = (index, term)

    def showed(self, node: int, term: int) -> None:
        """Note a sent message of this term: no later life may have a lower term."""
        self._check_sound(node)
        if term > self._shown.get(node, 0):
            self._shown[node] = term

    def voted(self, voter: int, term: int, candidate: int) -> None:
        """Check a sent vote: over all its lives, a node gives one vote a term."""
        self._check_sound(voter)
        first = self._votes.setdefault((voter, term), candidate)
        if first != candidate:
            raise Violation("one-vote", "a node voted twice in a term", node=voter, term=term,
                            candidates=(first, candidate))  # fmt: skip

    def damaged(self, node: int) -> None:
        """Note that the node's log or vote was lost: it leaves this generation for good (x2).

        Its former disk content still counts: it was there at the acknowledgement, and an election
        takes a majority of the others.
        """
        self._damaged.add(node)

    def alone(self, node: int, applied: int) -> "SafetyChecker":
        """Return the checker of one member that goes on alone in the generation, from `applied`.

        Other members take no part any more, and entries that only they had are lost. Committed
        entries stay committed as far as they are durable on this member; the rest of its log may be
        anything. Its terms and votes still hold, those of others do not.
        """
        replica = self._replicas[node]
        left = SafetyChecker((node,), replica.base, 0)
        left._chains = {
            (replica.base, term): chain
            for (index, term), chain in self._chains.items()
            if (index, chain) == (replica.base, replica.base_chain)
        }
        for offset, term in enumerate(replica.terms):
            left._chains[replica.base + 1 + offset, term] = replica.chain[offset]
        kept = left._kept = self.kept_by(node)
        known = left.last_committed = max(kept, replica.commit)
        left.committed = {i: c for i, c in self.committed.items() if i <= known}
        left.hashes = {i: h for i, h in self.hashes.items() if i <= known}
        left.effects = {i: h for i, h in self.effects.items() if i <= known}
        left._shown = {node: self._shown.get(node, 0)}
        left._votes = {name: c for name, c in self._votes.items() if name[0] == node}
        left._replicas = {node: replace(replica, applied=applied, leads=False)}
        if kept in left.committed:
            left._acked = (kept, left.committed[kept].term)
        return left

    def kept_by(self, node: int) -> int:
        """Return the last committed entry up to which a member has everything durably."""
        kept = self._replicas[node].durable.base
        while True:
            entry = self.committed.get(kept + 1)
            if entry is None or not self._replicas[node].durable.holds(kept + 1, entry.term):
                return kept
            kept += 1

    # Internals.

    def _forget_above(self, index: int) -> None:
        """Forget commitments from before the member was left alone that were not durable there."""
        self.committed = {i: c for i, c in self.committed.items() if i <= index}
        self.hashes = {i: h for i, h in self.hashes.items() if i <= index}
        self.effects = {i: h for i, h in self.effects.items() if i <= index}

    def _check_sound(self, node: int) -> None:
        if node in self._damaged:
            raise Violation("x2", "a damaged replica takes part again", node=node)

    def _check_vote(self, node: int, term: int, vote: int | None) -> None:
        """Check that a node that has voted in its present term still knows its vote."""
        given = self._votes.get((node, term))
        if given not in (None, vote):
            raise Violation("one-vote", "a restart forgot a vote", node=node, term=term,
                            candidate=given, recovered=vote)  # fmt: skip

    def _holders(self, index: int, term: int) -> list[int]:
        return [n for n, r in self._replicas.items() if r.durable.holds(index, term)]

    def _check_acknowledged(self) -> None:
        """Check that all entries up to the newest acknowledged one stay on a majority of disks."""
        if self._acked is None:
            return
        held = self._holders(*self._acked)
        if len(held) < self.majority:
            raise Violation("S2", "an acknowledged entry left a majority of disks",
                            entry=self._acked, durable_on=held)  # fmt: skip

    def _is_replaced(self, synced: DurableLog, log: LogView) -> bool:
        """Whether a committed base differs from the synced log.

        The crash came between the base in meta and the reset of the log to it; the start has
        completed the reset (x2.10).
        """
        entry = self.committed.get(log.base_index)
        return (
            entry is not None
            and entry.term == log.base_term
            and not synced.holds(log.base_index, log.base_term)
        )

    @staticmethod
    def _check_recovery(node: int, before: _Replica, after: DurableLog) -> None:
        """Check that synced entries are recovered, unless a later round was replacing them."""
        synced = before.durable
        last = synced.base + len(synced.terms)
        if last <= synced.base:
            return
        versions = [synced, *before.pending.values()]
        term = synced.terms[-1]
        if not after.holds(last, term) and all(v.holds(last, term) for v in versions):
            raise Violation("S1", "recovery lost a synced entry", node=node, index=last, term=term)

    def _read_log(self, node: int, replica: _Replica, log: LogView) -> int | None:
        """Follow the log's changes. Return the index kept when a suffix was cut, else None."""
        base = log.base_index
        if base > replica.base:
            self._move_base(node, replica, base, log.base_term)
        last = log.last_index
        kept = min(replica.last, last)
        terms, chains, first = replica.terms, replica.chain, replica.base + 1
        while kept > replica.base and terms[kept - first] != log.term_at(kept):
            kept -= 1
        cut = kept < replica.last
        if cut:
            del terms[kept - first + 1 :], chains[kept - first + 1 :]
            if kept < replica.commit:
                raise Violation("S2", "a committed entry was cut", node=node, kept=kept,
                                commit=replica.commit)  # fmt: skip
        for index in range(kept + 1, last + 1):
            entry = log.entry(index)
            before = chains[-1] if chains else replica.base_chain
            chain = _link(before, entry.term, entry.command)
            if self._chains.setdefault((index, entry.term), chain) != chain:
                raise Violation("log-matching", "one index and term, two logs", node=node,
                                index=index, term=entry.term)  # fmt: skip
            if terms and entry.term < terms[-1]:
                raise Violation("log-matching", "terms fall along a log", node=node, index=index)
            terms.append(entry.term)
            chains.append(chain)
        return kept if cut else None

    def _move_base(self, node: int, replica: _Replica, base: int, term: int) -> None:
        chain = self._chains.get((base, term))
        if chain is None:
            raise Violation("base-install", "a base that no log ever held", node=node,
                            index=base, term=term)  # fmt: skip
        dropped = base - replica.base
        if dropped <= len(replica.terms) and replica.terms[dropped - 1] == term:
            del replica.terms[:dropped], replica.chain[:dropped]
        else:
            replica.terms.clear()
            replica.chain.clear()
        replica.base = base
        replica.base_chain = chain

    def _read_commit(self, node: int, replica: _Replica, log: LogView, commit: int) -> None:
        if commit < replica.commit:
            raise Violation("monotonic-commit", "the commit index went back", node=node,
                            was=replica.commit, commit=commit)  # fmt: skip
        if commit > replica.last:
            raise Violation("commit", "commit index beyond the log", node=node, commit=commit,
                            last=replica.last)  # fmt: skip
        news = None
        for index in range(max(replica.commit, replica.base) + 1, commit + 1):
            offset = index - replica.base - 1
            seen = Committed(replica.terms[offset], replica.chain[offset], replica.term)
            known = self.committed.setdefault(index, seen)
            if known is seen:
                news = index
            if known.term != seen.term or known.chain != seen.chain:
                raise Violation("state-machine-safety", "two entries committed at one index",
                                node=node, index=index, terms=(known.term, seen.term))  # fmt: skip
        if news is not None:
            self._check_quorum(news, self.committed[news].term)
        replica.commit = commit
        self.last_committed = max(self.last_committed, commit)

    def _check_quorum(self, index: int, term: int) -> None:
        """Check that committed entries lie, and stay, on a majority of disks (holes 3 and 5)."""
        held = self._holders(index, term)
        if len(held) < self.majority:
            raise Violation("commit-quorum", "committed without a majority of disks", index=index,
                            term=term, durable_on=held)  # fmt: skip

    def _elected(self, node: int, replica: _Replica, term: int) -> bool:
        first = self.leaders.setdefault(term, node)
        if first != node:
            raise Violation("election-safety", "two leaders in one term", term=term,
                            leaders=(first, node))  # fmt: skip
        votes = [v for (v, t), c in self._votes.items() if (t, c) == (term, node) and v != node]
        if len(votes) + 1 < self.majority:
            raise Violation("election-quorum", "a leader without the votes of a majority",
                            node=node, term=term, votes=votes)  # fmt: skip
        for index in range(self.last_committed, replica.base, -1):
            entry = self.committed.get(index)
            if entry is None or entry.commit_term >= term:
                continue
            offset = index - replica.base - 1
            if offset >= len(replica.terms) or replica.terms[offset] != entry.term:
                raise Violation("leader-completeness", "a leader lacks a committed entry",
                                node=node, term=term, index=index)  # fmt: skip
            break
        return True
