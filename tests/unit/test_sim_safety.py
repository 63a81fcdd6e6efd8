"""The simulator's Raft checker: good steps pass, and each broken property is found."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from lognode.chaos.sim.safety import SafetyChecker
from lognode.chaos.sim.violation import Violation


class _Entry(NamedTuple):
    term: int
    command: bytes


class _Log:
    """A log of a base (index, term) and (term, command) pairs after it."""

    def __init__(self, *entries: tuple[int, bytes], base: tuple[int, int] = (1, 0)) -> None:
        self.base_index, self.base_term = base
        self.entries = [_Entry(*entry) for entry in entries]

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.entries)

    def term_at(self, index: int) -> int | None:
        if index == self.base_index:
            return self.base_term
        offset = index - self.base_index - 1
        return self.entries[offset].term if 0 <= offset < len(self.entries) else None

    def entry(self, index: int) -> _Entry:
        return self.entries[index - self.base_index - 1]


A, B, C = (1, b"a"), (1, b"b"), (2, b"c")


def _checker() -> SafetyChecker:
    """Node 1 leads term 1 and has committed a and b, which 1 and 2 have on disk; 3 is empty."""
    checker = SafetyChecker((1, 2, 3), 1, 0)
    for node in (1, 2, 3):
        checker.started(node, _Log(), term=0, commit=1, applied=1, vote=None)
    checker.voted(2, 1, 1)
    for node in (1, 2):
        checker.observe(node, _Log(A, B), term=1, commit=1, leads=node == 1)
        checker.collected(node, 1)
        checker.synced(node, 1)
    checker.observe(1, _Log(A, B), term=1, commit=3, leads=True)
    checker.applied(1, 2, 1, b"hash of a")
    checker.applied(1, 3, 1, b"hash of b")
    checker.acknowledged(3, 1)
    return checker


def test_a_good_run_passes() -> None:
    checker = _checker()
    checker.voted(1, 2, 2)
    checker.observe(2, _Log(A, B, C), term=2, commit=1, leads=True)
    checker.observe(1, _Log(A, B, C), term=2, commit=3, leads=False)
    for node in (1, 2):
        checker.collected(node, 2)
        checker.synced(node, 2)
    checker.observe(2, _Log(C, base=(3, 1)), term=2, commit=4, leads=True)
    checker.observe(3, _Log(base=(3, 1)), term=2, commit=3, leads=False)
    assert checker.leaders == {1: 1, 2: 2}


def _base_before_its_log_is_reset(checker: SafetyChecker, *, committed: bool) -> None:
    """Node 2 has synced entries of a lead that nobody followed; 1 and 3 have another one there."""
    checker.voted(1, 2, 2)
    checker.observe(2, _Log(A, B, C, (2, b"d")), term=2, commit=1, leads=True)
    checker.collected(2, 2)
    checker.synced(2, 2)
    other = (3, b"other")
    checker.voted(3, 3, 1)
    checker.observe(1, _Log(A, B, other), term=3, commit=3, leads=True)
    checker.observe(3, _Log(A, B, other), term=3, commit=1, leads=False)
    for node in (1, 3):
        checker.collected(node, 3)
        checker.synced(node, 3)
    if committed:
        checker.observe(1, _Log(A, B, other), term=3, commit=4, leads=True)
    checker.started(2, _Log(base=(4, 3)), term=3, commit=4, applied=4, vote=None)


def test_a_base_that_is_in_meta_replaces_the_log_at_the_next_start() -> None:
    """Seed 33825 of commit 4017a3d: the power went between meta and the reset of the log."""
    _base_before_its_log_is_reset(_checker(), committed=True)


def _base_of_what_is_not_committed(checker: SafetyChecker) -> None:
    _base_before_its_log_is_reset(checker, committed=False)


def _synced_entry_behind_a_base_lost(checker: SafetyChecker) -> None:
    """A base that the log holds cuts only the front (x1)."""
    checker.started(2, _Log(base=(2, 1)), term=1, commit=2, applied=2, vote=1)


def _two_leaders(checker: SafetyChecker) -> None:
    checker.observe(2, _Log(A, B), term=1, commit=1, leads=True)


def _leader_without_votes(checker: SafetyChecker) -> None:
    checker.observe(2, _Log(A, B), term=2, commit=1, leads=True)


def _leader_without_committed(checker: SafetyChecker) -> None:
    checker.voted(1, 2, 3)
    checker.observe(3, _Log(), term=2, commit=1, leads=True)


def _leader_with_another_entry(checker: SafetyChecker) -> None:
    checker.voted(1, 3, 3)
    checker.observe(3, _Log(A, (2, b"x")), term=3, commit=1, leads=True)


def _two_logs_under_one_name(checker: SafetyChecker) -> None:
    checker.observe(3, _Log((1, b"x")), term=1, commit=1, leads=False)


def _same_entry_after_another_past(checker: SafetyChecker) -> None:
    checker.observe(3, _Log((0, b"x"), B), term=1, commit=1, leads=False)


def _terms_fall(checker: SafetyChecker) -> None:
    checker.observe(3, _Log((5, b"x"), (4, b"y")), term=5, commit=1, leads=False)


def _term_goes_back(checker: SafetyChecker) -> None:
    checker.observe(1, _Log(A, B), term=0, commit=3, leads=False)


def _commit_goes_back(checker: SafetyChecker) -> None:
    checker.observe(1, _Log(A, B), term=1, commit=2, leads=True)


def _commit_beyond_log(checker: SafetyChecker) -> None:
    checker.observe(3, _Log(A), term=1, commit=4, leads=False)


def _another_entry_committed(checker: SafetyChecker) -> None:
    checker.observe(3, _Log(A, (2, b"x")), term=2, commit=3, leads=False)


def _committed_entry_cut(checker: SafetyChecker) -> None:
    checker.observe(1, _Log(A), term=2, commit=3, leads=False)


def _committed_on_a_minority(checker: SafetyChecker) -> None:
    checker.observe(1, _Log(A, B, (1, b"d")), term=1, commit=4, leads=True)


def _leader_cuts_itself(checker: SafetyChecker) -> None:
    checker.voted(1, 2, 2)
    checker.observe(2, _Log(A, B, C), term=2, commit=1, leads=True)
    checker.observe(2, _Log(A, B), term=2, commit=1, leads=True)


def _applied_uncommitted(checker: SafetyChecker) -> None:
    checker.observe(3, _Log(A, B, C), term=2, commit=3, leads=False)
    checker.applied(3, 2, 1, b"hash of a")
    checker.applied(3, 3, 1, b"hash of b")
    checker.applied(3, 4, 2, b"hash of c")


def _applied_with_a_gap(checker: SafetyChecker) -> None:
    checker.applied(2, 3, 1, b"hash of b")


def _states_differ(checker: SafetyChecker) -> None:
    checker.applied(2, 2, 1, b"another")


def _ack_on_a_minority(checker: SafetyChecker) -> None:
    checker.observe(1, _Log(A, B, (1, b"d")), term=1, commit=3, leads=True)
    checker.observe(2, _Log(A, B, (1, b"d")), term=1, commit=3, leads=False)
    checker.collected(1, 2)
    checker.synced(1, 2)
    checker.acknowledged(4, 1)


def _ack_of_a_round_under_way(checker: SafetyChecker) -> None:
    for node in (1, 2, 3):
        log = _Log(A, B, (1, b"d"))
        checker.observe(node, log, term=1, commit=3 if node == 1 else 1, leads=node == 1)
        checker.collected(node, 2)
    checker.acknowledged(4, 1)


def _acked_entry_leaves_the_majority(checker: SafetyChecker) -> None:
    checker.observe(2, _Log(A), term=2, commit=1, leads=False)
    checker.collected(2, 2)
    checker.synced(2, 2)


def _recovery_loses_a_synced_entry(checker: SafetyChecker) -> None:
    checker.started(2, _Log(A), term=1, commit=1, applied=1, vote=1)


def _base_from_nowhere(checker: SafetyChecker) -> None:
    checker.observe(3, _Log(base=(9, 4)), term=4, commit=9, leads=False)


def _base_below_applied(checker: SafetyChecker) -> None:
    checker.installed(1, _Log(A, B), 2)


def _two_votes(checker: SafetyChecker) -> None:
    checker.voted(3, 5, 1)
    checker.voted(3, 5, 2)


def _term_forgotten(checker: SafetyChecker) -> None:
    checker.showed(3, 7)
    checker.started(3, _Log(), term=6, commit=1, applied=1, vote=None)


def _vote_forgotten(checker: SafetyChecker) -> None:
    checker.voted(3, 6, 1)
    checker.started(3, _Log(), term=6, commit=1, applied=1, vote=None)


def _vote_changed(checker: SafetyChecker) -> None:
    checker.voted(3, 6, 1)
    checker.started(3, _Log(), term=6, commit=1, applied=1, vote=2)


def test_a_restart_that_remembers_its_vote_passes() -> None:
    checker = _checker()
    checker.voted(3, 6, 1)
    checker.started(3, _Log(), term=6, commit=1, applied=1, vote=1)
    checker.started(3, _Log(), term=7, commit=1, applied=1, vote=None)


@pytest.mark.parametrize(
    ("promise", "broken"),
    [
        ("election-safety", _two_leaders),
        ("election-quorum", _leader_without_votes),
        ("commit-quorum", _committed_on_a_minority),
        ("leader-completeness", _leader_without_committed),
        ("leader-completeness", _leader_with_another_entry),
        ("log-matching", _two_logs_under_one_name),
        ("log-matching", _same_entry_after_another_past),
        ("log-matching", _terms_fall),
        ("monotonic-term", _term_goes_back),
        ("monotonic-commit", _commit_goes_back),
        ("commit", _commit_beyond_log),
        ("state-machine-safety", _another_entry_committed),
        ("S2", _committed_entry_cut),
        ("leader-append-only", _leader_cuts_itself),
        ("state-machine-safety", _applied_uncommitted),
        ("apply-order", _applied_with_a_gap),
        ("state-machine-safety", _states_differ),
        ("S1", _ack_on_a_minority),
        ("S1", _ack_of_a_round_under_way),
        ("S2", _acked_entry_leaves_the_majority),
        ("S1", _recovery_loses_a_synced_entry),
        ("S1", _synced_entry_behind_a_base_lost),
        ("S1", _base_of_what_is_not_committed),
        ("base-install", _base_from_nowhere),
        ("base-install", _base_below_applied),
        ("one-vote", _two_votes),
        ("one-vote", _vote_forgotten),
        ("one-vote", _vote_changed),
        ("durable-term", _term_forgotten),
    ],
)
def test_each_broken_property_is_found(
    promise: str, broken: Callable[[SafetyChecker], None]
) -> None:
    with pytest.raises(Violation) as found:
        broken(_checker())
    assert found.value.promise == promise
