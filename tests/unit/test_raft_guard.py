"""The guard's rules, one by one, as functions of a log and a message."""

import pytest
from raft_net import MemoryLog

from lognode.client.protocol import limits
from lognode.raft import guard
from lognode.raft.guard import ALL_HOLES
from lognode.raft.messages import Append, BaseProbe, Reject
from lognode.raft.types import RefusedMessageError


def log_of(*terms: int, base: tuple[int, int] = (1, 0), commit: int = 1) -> MemoryLog:
    """A log with these terms after its base."""
    log = MemoryLog()
    log.reset(*base)
    for position, term in enumerate(terms):
        log.append(base[0] + 1 + position, term, b"\x00")
    log.set_commit(commit)
    return log


def append(prev: tuple[int, int], *terms: int, commit: int = 1) -> Append:
    return Append(9, 1, *prev, commit, [[term, b"\x00"] for term in terms])


def terms(found: Append) -> list[object]:
    return [term for term, _ in found.entries]


def test_an_append_at_the_end_is_left_as_it_is() -> None:
    message = append((3, 1), 2, 2, commit=3)
    assert guard.verified(log_of(1, 1), message) == message


def test_hole_2_entries_that_are_held_are_skipped() -> None:
    found = guard.verified(log_of(1, 1, 2), append((2, 1), 1, 2, 2, commit=1))
    assert (found.prev_index, found.prev_term, terms(found)) == (4, 2, [2])


def test_hole_2_the_first_conflict_ends_the_skipping() -> None:
    found = guard.verified(log_of(1, 1, 1), append((2, 1), 1, 3, 3))
    assert (found.prev_index, found.prev_term, terms(found)) == (3, 1, [3, 3])


def test_2_4_skipping_goes_no_further_than_the_message_carries() -> None:
    """Our log goes on to 5; the heartbeat at 3 verifies nothing behind 3."""
    found = guard.verified(log_of(1, 1, 1, 1), append((3, 1), commit=5))
    assert (found.prev_index, found.commit) == (3, 3)


def test_2_3_the_commit_index_is_capped_at_what_the_message_verifies() -> None:
    found = guard.verified(log_of(1, 1, 1, 1), append((2, 1), 1, commit=5))
    assert found.commit == 3


def test_a_gap_is_left_for_the_engine_to_refuse() -> None:
    message = append((7, 1), 1, commit=8)
    assert guard.verified(log_of(1, 1), message) == message
    conflict = append((3, 2), 2)
    assert guard.verified(log_of(1, 1), conflict) == conflict


@pytest.mark.parametrize(
    ("message", "prev", "carried", "commit"),
    [
        (append((3, 1), 1, 1, 2, 2, commit=7), (6, 2), [2], 7),  # across the base, 6 is held
        (append((3, 1), 1, commit=7), (5, 1), [], 5),  # ends below the base
        (append((3, 1), 1, 1, commit=7), (5, 1), [], 5),  # ends at the base
        (append((4, 1), commit=7), (5, 1), [], 5),  # a heartbeat below the base
    ],
)
def test_entries_below_the_base_are_equal(
    message: Append, prev: tuple[int, int], carried: list[int], commit: int
) -> None:
    found = guard.verified(log_of(2, base=(5, 1)), message)
    assert (found.prev_index, found.prev_term) == prev
    assert (terms(found), found.commit) == (carried, commit)


def test_S3_a_leader_that_contradicts_the_base_is_refused() -> None:
    with pytest.raises(RefusedMessageError, match="contradicts_base"):
        guard.verified(log_of(2, base=(5, 1)), append((3, 1), 1, 3, 3))


@pytest.mark.parametrize("message", [append((1, 0), 2), append((2, 1), 2)])
def test_S3_an_append_that_would_replace_a_committed_entry_is_refused(message: Append) -> None:
    """The log's own invariant ended the node: any member could end any other with one message."""
    log = log_of(1, 1, 1, commit=3)
    with pytest.raises(RefusedMessageError, match="contradicts_commit"):
        guard.verified(log, message)
    assert guard.verified(log, append((3, 1), 2)).entries, "what is not committed may be replaced"


def test_a_term_far_above_ours_is_impossible() -> None:
    assert not guard.is_impossible(7, 9)
    assert not guard.is_impossible(9 + limits.term_jump_max, 9)
    assert guard.is_impossible(10 + limits.term_jump_max, 9)


def test_a_base_probe_asks_for_the_base_and_commits_it() -> None:
    found = guard.verified(log_of(1, 1, 1), guard.probe_as_append(BaseProbe(9, 1, 3, 1)))
    assert (found.prev_index, found.prev_term, found.commit, found.entries) == (3, 1, 3, [])


@pytest.mark.parametrize(
    ("reject", "acked", "start"),
    [
        (Reject(9, 1, 3, 4, 1), 0, 5),  # the offered end is in the log: go on from there
        (Reject(9, 1, 3, 4, 2), 0, None),  # another term there, and the commit is below the base
        (Reject(9, 1, 5, 9, 2), 0, 5),  # unknown end: back to the commit index
        (Reject(9, 1, 2, 9, 2), 5, 6),  # a late rejection does not undo an ack
        (Reject(9, 1, 3, 4, 1), 6, 7),  # nor does one whose end is known
        (Reject(9, 1, 2, 2, 1), 0, None),  # ends below the base
        (Reject(9, 1, 99, 98, 7), 0, 8),  # never past the end of the log
    ],
)
def test_hole_4_where_to_go_on_after_a_rejection(
    reject: Reject, acked: int, start: int | None
) -> None:
    log = log_of(1, 1, 1, 1, base=(3, 1), commit=3)
    assert log.last_index == 7
    assert guard.next_after_rejection(log, reject, acked) == start


@pytest.mark.parametrize(
    ("candidate", "granted"),
    [((4, 2), True), ((9, 1), False), ((3, 2), False), ((2, 3), True), ((5, 2), True)],
)
def test_the_election_restriction(candidate: tuple[int, int], granted: bool) -> None:
    assert guard.up_to_date(log_of(1, 2, 2), *candidate) is granted


def test_2_1_promises_wait_by_round_and_not_by_index() -> None:
    """(2, T5) is synced, then replaced by (2, T6): its ack waits for the later round."""
    log = log_of()
    log.append(2, 5, b"\x00")
    first = log.collect()
    log.append(2, 6, b"\x00")
    log.complete(first)
    assert log.durable_index == 1
    assert guard.hold_until(log, 2, ALL_HOLES) == log.open_round
    log.complete(log.collect())
    assert (log.durable_index, guard.hold_until(log, 2, ALL_HOLES)) == (2, 0)


def test_a_message_is_held_with_holes_5_and_6_open() -> None:
    log = log_of()
    log.complete(log.collect())
    log.append(2, 1, b"\x00")
    entry_round = log.open_round
    log.collect()
    log.set_hard_state(2, None)
    state_round = log.open_round
    assert guard.hold_until(log, 2, ALL_HOLES) == state_round
    assert guard.hold_until(log, 2, ALL_HOLES - {6}) == entry_round
    assert guard.hold_until(log, 2, ALL_HOLES - {5}) == state_round
    assert guard.hold_until(log, 2, ALL_HOLES - {5, 6}) == 0


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_majorities(members: int, needed: int) -> None:
    assert guard.majority(members) == needed
