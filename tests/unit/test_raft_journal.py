"""The library's view of a log: positions, lazy slices, and what it may not do."""

from typing import Any

import pytest
from raft_net import MemoryLog

from lognode.client.protocol.invariants import InvariantError
from lognode.raft.journal import _SLICE_ENTRIES_MAX, EngineJournal
from lognode.raft.types import LogEntry


class CountingLog:
    """A log that counts the entries that are read."""

    def __init__(self) -> None:
        self._log = MemoryLog()
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def entries(self, first: int, last: int, bytes_max: int | None = None) -> list[LogEntry]:
        found: list[LogEntry] = self._log.entries(first, last, bytes_max)
        self.read += len(found)
        return found


def make(entries: int = 0, **options: bool) -> tuple[EngineJournal, Any]:
    log: Any = CountingLog()
    journal = EngineJournal(log, **options)
    for number in range(entries):
        journal.add(b"\x00%d" % number, number + 2, 1)
    return journal, log


def test_2_5_a_new_journal_holds_the_sentinel() -> None:
    journal, _ = make()
    assert (len(journal), journal[0], journal[-1]) == (1, (b"", 1, 0), (b"", 1, 0))


def test_2_6_a_slice_reads_nothing_until_it_is_iterated() -> None:
    journal, log = make(1000)
    tail = journal[500:]
    assert (len(tail), tail[0][1:], tail[-1][1:]) == (501, (501, 1), (1001, 1))
    assert log.read == 0


def test_2_6_the_part_that_was_iterated_is_not_read_again() -> None:
    journal, log = make(10)
    tail = journal[1:]
    taken = []
    for item in tail:
        taken.append(item)
        if len(taken) == 3:
            break
    assert tail[:3] == taken == [(b"\x00%d" % n, n + 2, 1) for n in range(3)]
    assert log.read == 10  # one page


def test_x23_a_slice_is_bounded_in_entries() -> None:
    journal, _ = make(_SLICE_ENTRIES_MAX + 10)
    assert len(journal[1:]) == _SLICE_ENTRIES_MAX
    assert journal[1:][-1][1] == _SLICE_ENTRIES_MAX + 1


def test_positions_follow_the_base() -> None:
    journal, log = make(10)
    log.set_commit(6)
    log.cut_front(6)
    assert (journal[0][1], len(journal), journal[1:][0][1]) == (6, 6, 7)


def test_hole_2_the_library_s_truncation_does_nothing_and_a_conflict_truncates() -> None:
    journal, log = make(5)
    journal.deleteEntriesFrom(2)
    assert log.last_index == 6
    journal.add(b"\x00x", 4, 1)
    assert log.last_index == 6, "held already"
    journal.add(b"\x00x", 4, 2)
    assert (log.last_index, log.last_term) == (4, 2)


def test_committed_entries_are_never_replaced() -> None:
    journal, log = make(5)
    log.set_commit(4)
    with pytest.raises(InvariantError):
        journal.add(b"\x00x", 4, 2)


def test_a_gap_is_refused() -> None:
    journal, _ = make(1)
    with pytest.raises(InvariantError, match="gap"):
        journal.add(b"\x00x", 4, 1)


def test_hole_7_the_commit_index_is_within_the_log() -> None:
    journal, log = make(3)
    log.set_commit(9)
    assert journal.getRaftCommitIndex() == 4


def test_hole_5_a_group_of_one_commits_what_is_durable() -> None:
    journal, log = make(3, cap_commit=True)
    journal.setRaftCommitIndex(4)
    assert log.commit_index == 1
    first = log.collect()
    journal.add(b"\x00x", 5, 1)
    journal.setRaftCommitIndex(5)
    log.complete(first)
    journal.settle()
    assert log.commit_index == 4


def test_a_vote_of_an_older_term_than_the_log_s_end_is_ignored() -> None:
    journal, log = make()
    log.set_hard_state(1, 3)
    assert journal.getVotedForNodeId() == 3
    log.append(2, 4, b"\x00")
    assert journal.getVotedForNodeId() is None


def test_holes_8_9_the_library_neither_clears_nor_compacts() -> None:
    journal, _ = make(3)
    with pytest.raises(InvariantError):
        journal.clear()
    with pytest.raises(InvariantError):
        journal.deleteEntriesTo(1)
