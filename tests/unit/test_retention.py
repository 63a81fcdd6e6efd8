"""What a policy asks to be removed, given what a range holds and what time it is."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lognode.node.replicas.clocks import Clocks
from lognode.node.upkeep import retention
from lognode.node.upkeep.retention import Holding, Piece, Proposal, decide
from lognode.partitions.policy import Policy
from lognode.statemachine import commands
from lognode.statemachine.commands import COMPACT, SNAPSHOT
from lognode.statemachine.floors import Compaction

NOW = 1_000_000
SEGMENTS = (Piece(10, 100, 500_000), Piece(20, 100, 600_000), Piece(30, 100, 700_000))
HELD = Holding(b"a", b"m", SEGMENTS, Piece(40, 0, 900_000))


def trim(before: int) -> list[Proposal]:
    return [Proposal(commands.TRIM_SPANS, [[b"a", b"m", before]])]


def compact(before: int, mode: int, delete_retention_ms: int = 0) -> list[Proposal]:
    payload: list[Any] = [b"a", b"m", before, mode, delete_retention_ms]
    return [Proposal(commands.COMPACT_TO, payload)]


def test_a_policy_without_rules_removes_nothing() -> None:
    assert decide(Policy(), [HELD], NOW) == []


@pytest.mark.parametrize(
    ("retention_ms", "before"),
    [
        (600_000, 0),
        (500_000, 0),  # exactly as old: stays
        (499_999, 10),
        (400_000, 10),
        (399_999, 20),
        (200_000, 30),
        (99_999, 40),  # a range that rests holds nothing of what is old, in a segment or not
    ],
)
def test_retention_by_time_takes_whole_segments_all_of_whose_entries_are_older(
    retention_ms: int, before: int
) -> None:
    assert decide(Policy(retention_ms=retention_ms), [HELD], NOW) == (
        trim(before) if before else []
    )


@pytest.mark.parametrize(
    ("retention_bytes", "before"), [(301, 0), (300, 0), (201, 0), (200, 10), (101, 10), (1, 20)]
)
def test_retention_by_bytes_keeps_at_least_so_much(retention_bytes: int, before: int) -> None:
    policy = Policy(retention_bytes=retention_bytes)
    assert decide(policy, [HELD], NOW) == (trim(before) if before else [])


def test_the_stricter_of_both_holds() -> None:
    assert decide(Policy(retention_ms=399_999, retention_bytes=200), [HELD], NOW) == trim(20)
    assert decide(Policy(retention_ms=499_999, retention_bytes=100), [HELD], NOW) == trim(20)


def test_entries_being_removed_are_not_proposed_or_counted_again() -> None:
    """A trimmed segment may still be there: its file goes once meta knows."""
    trimmed = replace(HELD, trimmed=10)
    assert decide(Policy(retention_ms=499_999), [trimmed], NOW) == []
    assert decide(Policy(retention_bytes=200), [trimmed], NOW) == []
    assert decide(Policy(retention_bytes=199), [trimmed], NOW) == []
    assert decide(Policy(retention_bytes=100), [trimmed], NOW) == trim(20)


def test_compaction_goes_as_far_as_there_are_segments() -> None:
    policy = Policy(cleanup="compact", delete_retention_ms=7)
    assert decide(policy, [HELD], NOW) == compact(30, COMPACT, 7)
    assert decide(policy, [replace(HELD, segments=())], NOW) == []
    assert decide(policy, [replace(HELD, compacted=Compaction(20, NOW - 7))], NOW) == compact(
        30, COMPACT, 7
    )
    assert decide(policy, [replace(HELD, compacted=Compaction(30, NOW - 7))], NOW) == []


def test_a_compacted_log_with_a_retention_removes_what_is_old() -> None:
    policy = Policy(cleanup="compact,delete", delete_retention_ms=7, retention_ms=399_999)
    assert decide(policy, [HELD], NOW) == trim(20) + compact(30, COMPACT, 7)
    done = replace(HELD, trimmed=20, compacted=Compaction(30, NOW - 7))
    assert decide(policy, [done], NOW) == []
    by_bytes = Policy(cleanup="compact,delete", delete_retention_ms=7, retention_bytes=100)
    assert decide(by_bytes, [HELD], NOW) == trim(20) + compact(30, COMPACT, 7)


def test_old_entries_of_a_segment_go_from_a_compacted_log_with_a_retention() -> None:
    """Its segments are joined with newer ones, so they are seldom old as a whole."""
    policy = Policy(cleanup="compact,delete", delete_retention_ms=7, retention_ms=399_999)
    done = replace(HELD, trimmed=20, compacted=Compaction(30, NOW - 7))
    assert decide(policy, [replace(done, old=20)], NOW) == []
    assert decide(policy, [replace(done, old=26)], NOW) == trim(26)
    assert retention.cutoff_ms(policy, 0, NOW) == (NOW - 399_999) // 24_999 * 24_999
    assert retention.cutoff_ms(replace(policy, retention_ms=1), 0, 5_999) == 5_000
    assert retention.cutoff_ms(policy, 0, 7) == 0
    assert retention.cutoff_ms(replace(policy, cleanup="delete"), 0, NOW) is None
    assert retention.cutoff_ms(replace(policy, retention_ms=None), 0, NOW) is None


def test_the_ranges_of_a_log_take_their_steps_at_different_times() -> None:
    policy = Policy(cleanup="compact,delete", retention_ms=16_000_000)
    cutoffs = [retention.cutoff_ms(policy, number, 10**12) for number in range(100)]
    assert all(0 <= 10**12 - 16_000_000 - (each or 0) < 1_000_000 for each in cutoffs)
    assert len({each // 100_000 for each in cutoffs if each}) >= 10


def test_tombstones_of_a_log_that_rests_go_once_the_youngest_is_old_enough() -> None:
    """The last one may have been appended at 700,000."""
    policy = Policy(cleanup="compact", delete_retention_ms=100_000)
    done = replace(HELD, compacted=Compaction(30, 650_000))
    assert decide(policy, [done], 800_000) == []
    assert decide(policy, [done], 800_001) == compact(30, COMPACT, 100_000)
    assert decide(policy, [replace(done, compacted=Compaction(30, 700_001))], 900_000) == []


def test_histories_before_logical_snapshots_go_after_the_delay() -> None:
    policy = Policy(snapshot_delay_ms=399_999)
    assert decide(policy, [HELD], NOW) == compact(20, SNAPSHOT)
    assert decide(policy, [replace(HELD, snapshots=20)], NOW) == []
    assert decide(policy, [replace(HELD, snapshots=10)], NOW) == compact(20, SNAPSHOT)
    both = Policy(snapshot_delay_ms=200_000, retention_ms=399_999)
    assert decide(both, [HELD], NOW) == [*trim(20), *compact(30, SNAPSHOT)]
    gone = Policy(snapshot_delay_ms=399_999, retention_ms=399_999)
    assert decide(gone, [HELD], NOW) == trim(20), "retention takes the snapshots too"


# Lineage spans.


OLD = Holding(b"a", b"m", SEGMENTS, Piece(10_050, 0, 900_000), trimmed=5)
MANY = Holding(
    b"m", None, (Piece(4_000, 100, 550_000), Piece(10_000, 100, 650_000)),
    Piece(10_050, 0, 900_000),
)  # fmt: skip
"""As the left one, of a range that came of a merge: its seqs are larger, its entries younger."""


@pytest.mark.parametrize(
    ("policy", "trims"),
    [
        (Policy(retention_ms=499_999), [[b"a", b"m", 10]]),
        (Policy(retention_ms=449_999), [[b"a", b"m", 10], [b"m", None, 4_000]]),
        (Policy(retention_ms=99_999), [[b"a", None, 10_050]]),
        (Policy(retention_bytes=401), []),
        (Policy(retention_bytes=400), [[b"a", b"m", 10]]),
        (Policy(retention_bytes=300), [[b"a", b"m", 10], [b"m", None, 4_000]]),
        (Policy(retention_bytes=101), [[b"a", b"m", 20], [b"m", None, 4_000]]),
        (Policy(retention_bytes=1), [[b"a", b"m", 20], [b"m", None, 10_000]]),
        (Policy(retention_bytes=400, retention_ms=99_999), [[b"a", None, 10_050]]),
    ],
    ids=str,
)
def test_x12_each_lineage_span_is_trimmed_by_its_own_seqs_and_the_oldest_in_time_goes_first(
    policy: Policy, trims: list[list[Any]]
) -> None:
    expected = [Proposal(commands.TRIM_SPANS, trims)] if trims else []
    assert decide(policy, [OLD, MANY], NOW) == expected


def test_x12_a_trim_of_one_span_is_not_proposed_again_for_the_other_span() -> None:
    found = decide(Policy(retention_ms=449_999), [replace(OLD, trimmed=10), MANY], NOW)
    assert found == [Proposal(commands.TRIM_SPANS, [[b"m", None, 4_000]])]
    assert decide(Policy(retention_bytes=300), [replace(OLD, trimmed=30), MANY], NOW) == []


def test_x13_each_lineage_span_is_compacted_as_far_as_its_own_segments_go() -> None:
    policy = Policy(cleanup="compact", delete_retention_ms=7, snapshot_delay_ms=449_999)
    found = decide(policy, [OLD, MANY], NOW)
    assert [proposal.payload for proposal in found] == [
        [b"a", b"m", 30, COMPACT, 7], [b"m", None, 10_000, COMPACT, 7],
        [b"a", b"m", 10, SNAPSHOT, 0], [b"m", None, 4_000, SNAPSHOT, 0],
    ]  # fmt: skip
    assert len({proposal.place for proposal in found}) == 4
    both = Piece(20_000, 50, 800_000)
    flushed = [replace(each, segments=(*each.segments, both)) for each in (OLD, MANY)]
    policy = Policy(cleanup="compact", delete_retention_ms=7)
    assert [proposal.payload for proposal in decide(policy, flushed, NOW)] == [
        [b"a", None, 20_000, COMPACT, 7]
    ], "one command where both need the same"


def test_more_spans_than_a_command_takes_are_trimmed_by_several() -> None:
    spans = [b"%03d" % at for at in range(70)]
    many = [
        Holding(start, end, (Piece(10 + at, 1, 5),), Piece(99, 0, NOW))
        for at, (start, end) in enumerate(pairwise([*spans, None]))
        if start is not None
    ]
    gone = replace(many[1], trimmed=99)
    found = decide(Policy(retention_ms=1_000), [many[0], gone, replace(many[0], start=b"x")], NOW)
    assert [row[:2] for row in found[0].payload] == [[b"000", b"001"], [b"x", b"001"]]
    found = decide(Policy(retention_ms=1_000), many, NOW)
    assert [len(proposal.payload) for proposal in found] == [32, 32, 6]
    assert len({proposal.place for proposal in found}) == 3


class Walls:
    """A wall clock that can be set, and a monotonic one that stands."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.clocks = Clocks(wall_ms=lambda: NOW + self.ahead_ms, monotonic=lambda: 0.0)


def test_x11_a_clock_that_others_contradict_decides_nothing() -> None:
    walls = Walls()
    assert walls.clocks.is_agreed()  # alone
    walls.clocks.heard(2, NOW + 60_000)
    assert walls.clocks.is_agreed()
    walls.ahead_ms = 2 * 86_400_000
    assert not walls.clocks.is_agreed(), "one of the two is wrong, and nobody knows which"
    walls.clocks.heard(3, NOW)
    assert not walls.clocks.is_agreed()
    walls.ahead_ms = 0
    walls.clocks.heard(3, NOW - 86_400_000)
    assert walls.clocks.is_agreed(), "the median is this one"
