"""The numbers of an idempotent producer's batches, and which of them it may send again."""

import random

import pytest

from lognode.node.kafka.recent_batches import (
    BATCHES,
    PLACES_MAX,
    RECORDS,
    SEQUENCES,
    TURNS,
    RecentBatches,
    Turns,
    start_of,
)

PLACE = ("topic", 0, 1)


def test_the_last_batches_may_come_again() -> None:
    recent = RecentBatches()
    firsts = [RECORDS + 100 * n for n in range(9)]
    for at, first in enumerate(firsts):
        wanted = first - RECORDS if at < BATCHES else firsts[at - BATCHES]
        assert recent.note(PLACE, 0, first - 1) == (first, max(1, wanted))
    assert recent.note(PLACE, 0, firsts[4] - 1).oldest == firsts[3], "a batch comes again"
    assert recent.note(PLACE, 0, firsts[1] - 1).oldest == firsts[1], "one of long ago"
    assert recent.note(("topic", 1, 1), 0, 70_000).oldest == 70_001 - RECORDS
    assert recent.note(("topic", 3, 1), 2, 70_000).oldest == start_of(2) + 70_000 - RECORDS
    for producer in range(PLACES_MAX):
        recent.note(("topic", 2, producer), 0, 0)
    later = firsts[-1] + 100
    assert recent.note(PLACE, 0, later - 1).oldest == later - RECORDS, "forgotten"


@pytest.mark.parametrize("epoch", [0, 3])
def test_S8_numbers_go_on_where_sequences_begin_again(epoch: int) -> None:
    rng = random.Random(epoch)
    recent, start = RecentBatches(), start_of(epoch)
    number = 0
    while number < 4 * SEQUENCES:
        # Batches come again, and in any order within five.
        for back in rng.sample(range(5), 5):
            again = max(0, number - 10_000 * back)
            assert recent.note(PLACE, epoch, again % SEQUENCES).first == start + again
            recent.stored(PLACE, start + again, 10_000)
        number += rng.randrange(SEQUENCES // 2 - 50_000)


def test_batches_that_no_range_took_and_new_epochs_change_no_turn() -> None:
    recent = RecentBatches()
    for sequence in (0, SEQUENCES // 3, SEQUENCES * 2 // 3, 5):
        assert recent.note(PLACE, 0, sequence).first == 1 + sequence
    recent.stored(PLACE, SEQUENCES + 6, 1)
    assert recent.note(PLACE, 0, 7).first == SEQUENCES + 8
    assert recent.note(PLACE, 1, 7).first == start_of(1) + 7


def test_a_new_epoch_has_numbers_above_all_numbers_before() -> None:
    assert start_of(1) == start_of(0) + TURNS * SEQUENCES
    assert start_of((1 << 15) - 1) + TURNS * SEQUENCES < 1 << 63


@pytest.mark.parametrize("right", [0, 1, 2, 3, 7, 8, 100, 40_000, TURNS - 1])
def test_the_turn_of_a_batch_is_found_in_few_steps(right: int) -> None:
    turns, steps = Turns(), 0
    while turns.turn != right:
        steps += 1
        assert turns.forgotten() if turns.turn < right else turns.too_high()
    assert steps <= 2 * right.bit_length() + 1


@pytest.mark.parametrize("last", [-1, 0, 1, 2, 9, 100, 65_000])
def test_the_search_for_a_turn_ends(last: int) -> None:
    """The range has forgotten the turns up to `last`, and lacks the predecessor in the others."""
    turns = Turns()
    for _ in range(40):
        if not (turns.forgotten() if turns.turn <= last else turns.too_high()):
            return
    raise AssertionError("the search goes on")
