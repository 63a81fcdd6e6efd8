"""What record numbers count of a range's memory: a batch of consecutive numbers counts little."""

import random
from dataclasses import replace

import pytest

from lognode.client.protocol.errors import Overloaded
from lognode.client.protocol.records import Batch, decode_batch, encode_batch
from lognode.statemachine import rules
from lognode.statemachine.producer_row import Row
from lognode.statemachine.producers import Producers, Table, united_rows

MEMORY = 10_000
KEPT = 5
LIGHT = rules.of_level(5)._replace(remembered_numbers_max=MEMORY)
HEAVY = rules.of_level(4)._replace(remembered_numbers_max=MEMORY)


def table_by(chosen: rules.Rules) -> Producers:
    table = Producers()
    table.rules = chosen
    return table


def batch_of(producer: int, numbers: list[int], low: int) -> Batch:
    count = len(numbers)
    return decode_batch(
        encode_batch([b"k"] * count, [b"v"] * count, producer=producer, epoch=1, low=low,
                     numbers=numbers)
    )  # fmt: skip


def appended(table: Producers, batch: Batch, seq: int) -> bool:
    """Whether the table takes the batch, all of whose records are new."""
    if isinstance(table.check(batch), Overloaded):
        return False
    table.record(batch, batch.numbers, seq, 1)
    return True


def weights(table: Producers) -> int:
    return sum(row.weight for row in table.rows.values())


@pytest.mark.parametrize(("level", "all_go_on"), [(LIGHT, True), (HEAVY, False)])
def test_S8_L1_producers_that_keep_their_last_five_batches_go_on(
    level: rules.Rules, *, all_go_on: bool
) -> None:
    """A topic of a hundred partitions stood still after a million records of a producer."""
    table, seq, taken = table_by(level), 1, 0
    for turn in range(12):
        for producer in range(1, 101):
            first = 1 + turn * 500
            low = max(1, first - KEPT * 500)
            taken += appended(table, batch_of(producer, list(range(first, first + 500)), low), seq)
            seq += 500
    assert (taken == 1_200) == all_go_on
    assert table.remembered == weights(table)
    if all_go_on:
        assert table.remembered <= 100 * 2 * (KEPT + 1) * 8


def test_S8_a_producer_that_has_settled_its_records_goes_on_however_full_the_memory_is() -> None:
    table, seq = table_by(LIGHT), 1
    for turn in range(40):
        scattered = list(range(1 + turn * 1_000, 1 + (turn + 1) * 1_000, 2))
        appended(table, batch_of(1 + turn % 10, scattered, 1), seq)
        seq += 500
    assert table.remembered > MEMORY
    row = table.rows[1]
    last = row.highest
    assert isinstance(table.check(batch_of(1, [last + 2], 1)), Overloaded)
    assert table.check(batch_of(1, [last + 2], last + 1)) is None
    heavy = Producers.from_wire(table.to_wire())
    heavy.rules = HEAVY
    assert isinstance(heavy.check(batch_of(1, [last + 2], last + 1)), Overloaded), "as before"


def test_X1_scattered_and_late_numbers_count_each() -> None:
    table = table_by(LIGHT)
    table.record(batch_of(1, list(range(2, 402, 2)), 1), range(2, 402, 2), 1, 1)
    assert table.remembered == 200
    table.record(batch_of(1, list(range(1_000, 2_000)), 1), range(1_000, 2_000), 201, 1)
    assert table.remembered == 208
    late = list(range(401, 501))
    table.record(batch_of(1, late, 1), late, 1_201, 1)
    assert table.remembered == 308


def test_x9_a_row_of_an_earlier_level_counts_each_of_its_numbers_until_they_are_forgotten() -> None:
    table = table_by(HEAVY)
    table.record(batch_of(1, list(range(1, 1_001)), 1), range(1, 1_001), 1, 1)
    table.rules = LIGHT
    table.record(batch_of(1, list(range(1_001, 2_001)), 1), range(1_001, 2_001), 1_001, 1)
    assert table.remembered == weights(table) == 1_008
    low = 2_001
    table.record(batch_of(1, [low], low), [low], 2_001, 1)
    assert table.remembered == weights(table) == 1


@pytest.mark.parametrize("seed", range(20))
def test_S2_members_that_began_with_a_base_count_alike(seed: int) -> None:
    """One member keeps its table, the other begins again and again with the base of it."""
    rng, level = random.Random(seed), rng_level(seed)
    kept, again = table_by(level), table_by(level)
    highest, seq = [0] * 4, 1
    for turn in range(400):
        if turn == 200:
            kept.rules = again.rules = LIGHT
        at, count = rng.randrange(4), rng.choice((1, 5, 13, 70, 300))
        step = rng.choice((1, 1, 1, 2))
        first = highest[at] + rng.choice((1, 1, 7))
        numbers = list(range(first, first + count * step, step))
        low = max(1, first - rng.choice((0, 40, 300, 5_000)))
        if rng.random() < 0.1:
            numbers, low = list(range(first - 9, first)), 1
        row = kept.rows.get(at + 1, Row())
        numbers = [n for n in numbers if n >= max(low, row.low) and not row.knows(n, b"k")]
        if not numbers:
            continue
        batch = batch_of(at + 1, numbers, low)
        assert appended(kept, batch, seq) == appended(again, batch, seq)
        highest[at] = max(highest[at], numbers[-1])
        seq += len(numbers)
        assert kept.remembered == again.remembered == weights(kept)
        if rng.random() < 0.2:
            again = Producers.from_wire(again.to_wire())
            again.rules = kept.rules
            assert again.remembered == kept.remembered
    assert again.to_wire() == kept.to_wire()


def rng_level(seed: int) -> rules.Rules:
    return (LIGHT, HEAVY)[seed % 2]


def test_S8_a_refused_batch_changes_nothing_of_what_a_range_remembers() -> None:
    """Its `low` is not the bound of numbers that came late."""
    table = table_by(LIGHT._replace(remembered_numbers_max=1_000))
    high, late = list(range(5_000, 6_000, 2)), list(range(1, 2_000, 2))
    for numbers, seq in ((high, 1), (late, 501)):
        table.record(batch_of(1, numbers, 1), numbers, seq, 1)
    before = table.rows[1].to_wire()
    assert isinstance(table.check(batch_of(1, [6_001], 2_100)), Overloaded)
    assert table.rows[1].to_wire() == before
    table.record(batch_of(1, [6_001], 1_101), [6_001], 1_501, 1)
    assert [table.rows[1].seq_of(number) for number in late[550:]] == list(range(1_051, 1_501))
    assert table.rows[1].count == 1_501, "no half of the numbers is settled"


def test_x9_merged_rows_of_one_epoch_count_together() -> None:
    def wire(numbers: range, seq: int, level: rules.Rules) -> dict[int, list[object]]:
        table = table_by(level)
        table.record(batch_of(7, list(numbers), 1), numbers, seq, 1)
        return table.to_wire()

    left, right = (b"", b"m"), (b"m", None)
    light = wire(range(1, 501), 1, LIGHT)
    other = wire(range(501, 1_001), 900, LIGHT)
    heavy = wire(range(501, 1_001), 900, HEAVY)
    for second, weight in ((other, 16), (heavy, 508)):
        row = Row.from_wire(united_rows(Table(left, light), Table(right, second)).rows[7])
        assert (row.weight, row.count) == (weight, 1_000)
    newer = {7: [2, *other[7][1:]]}
    row = Row.from_wire(united_rows(Table(left, light), Table(right, newer)).rows[7])
    assert (row.epoch, row.weight, len(row.elders)) == (2, 8, 1)
    assert replace(row).to_wire() == row.to_wire()
    assert Row.from_wire(row.to_wire()).weight == 8
