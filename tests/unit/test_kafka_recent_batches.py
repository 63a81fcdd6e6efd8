"""The numbers of an idempotent producer's batches, and which of them it may send again."""

import random

import pytest

from lognode.node.kafka.recent_batches import (
    BATCHES,
    PAUSE_S,
    PLACES_MAX,
    RECORDS,
    SEQUENCES,
    RecentBatches,
    start_of,
)

PLACE = (7, 0, 1)


def test_the_last_batches_may_come_again() -> None:
    recent = RecentBatches()
    firsts = [RECORDS + 100 * n for n in range(9)]
    for at, first in enumerate(firsts):
        found = recent.note(PLACE, 0, first - 1, 0.0)
        wanted = first - RECORDS if at < BATCHES else firsts[at - BATCHES]
        assert found[:2] == (first, max(1, wanted))
    assert recent.note(PLACE, 0, firsts[4] - 1, 0.0).oldest == firsts[3], "a batch comes again"
    assert recent.note(PLACE, 0, firsts[1] - 1, 0.0).oldest == firsts[1], "one of long ago"
    assert recent.note((7, 1, 1), 0, 70_000, 0.0).oldest == 70_001 - RECORDS
    assert recent.note((7, 3, 1), 2, 70_000, 0.0).oldest == start_of(2) + 70_000 - RECORDS
    for producer in range(PLACES_MAX):
        recent.note((7, 2, producer), 0, 0, 0.0)
    later = firsts[-1] + 100
    assert recent.note(PLACE, 0, later - 1, 0.0).oldest == later - RECORDS, "forgotten"


@pytest.mark.parametrize("epoch", [0, 3])
def test_S8_numbers_go_on_where_sequences_begin_again(epoch: int) -> None:
    rng = random.Random(epoch)
    recent, start = RecentBatches(), start_of(epoch)
    number = 0
    while number < 4 * SEQUENCES:
        # Batches come again, and in any order within five.
        for back in rng.sample(range(5), 5):
            again = max(0, number - 10_000 * back)
            assert recent.note(PLACE, epoch, again % SEQUENCES, 0.0).first == start + again
        number += rng.randrange(SEQUENCES // 2 - 50_000)


def test_an_epoch_begins_in_its_first_turn() -> None:
    recent = RecentBatches()
    for sequence in (0, SEQUENCES // 3, SEQUENCES * 2 // 3, 5):
        last = recent.note(PLACE, 0, sequence, 0.0)
    assert last.first == start_of(0) + SEQUENCES + 5
    assert recent.note(PLACE, 1, 7, 0.0).first == start_of(1) + 7


def test_a_new_epoch_has_numbers_above_all_numbers_before() -> None:
    turns = (start_of(1) - start_of(0)) // SEQUENCES
    assert turns == 1 << 16
    assert start_of((1 << 15) - 1) + turns * SEQUENCES < 1 << 63


def test_a_node_learns_a_turn_from_the_range() -> None:
    recent = RecentBatches()
    assert recent.note(PLACE, 0, 6, 0.0).first == 7
    recent.turned(PLACE, 2 * SEQUENCES + 7)
    assert recent.note(PLACE, 0, 8, 0.0).first == 2 * SEQUENCES + 9


def test_S8_only_the_first_batch_after_a_pause_may_have_no_predecessor() -> None:
    """An earlier batch of the producer may still come: were a later one taken without it, the range
    would take the earlier one for a repetition."""
    recent = RecentBatches()
    begins = [recent.note(PLACE, 0, sequence, 0.0).begins for sequence in (10, 20, 10, 30)]
    assert begins == [True, False, True, False]
    assert not recent.note(PLACE, 0, 40, PAUSE_S).begins
    assert recent.note(PLACE, 0, 50, 3 * PAUSE_S).begins
    assert not recent.note(PLACE, 0, 60, 3 * PAUSE_S).begins
    assert recent.note(PLACE, 1, 8, 3 * PAUSE_S).begins, "no batch of this epoch came before"
