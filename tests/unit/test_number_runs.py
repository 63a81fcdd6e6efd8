"""Numbers in runs: the same answers as a dict, whenever a replica began with a base."""

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lognode.client.protocol.errors import LognodeError
from lognode.client.protocol.records import decode_batch, encode_batch
from lognode.statemachine.number_runs import NumberRuns, RunsMaker
from lognode.statemachine.producer_row import Row
from lognode.statemachine.producers import Producers

NUMBERS = st.dictionaries(st.integers(1, 60), st.integers(1, 90), max_size=40)


@given(NUMBERS, st.lists(st.integers(0, 70), max_size=4))
def test_runs_answer_as_a_dict_does(known: dict[int, int], lows: list[int]) -> None:
    numbers = sorted(known)
    runs = NumberRuns(numbers, [known[number] for number in numbers])
    for low in (0, *lows):
        assert runs.below(low) == sum(number < low for number in known)
        runs.settle(low)
        known = {number: seq for number, seq in known.items() if number >= low}
        assert runs.count == len(known)
        assert dict(runs.items()) == known
        again = NumberRuns.from_wire(runs.to_wire())
        assert dict(again.items()) == known
        assert again.to_wire() == runs.to_wire()
        assert [runs.get(number) for number in range(70)] == [known.get(n) for n in range(70)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5)), max_size=12))
def test_runs_are_made_of_runs_as_of_numbers(parts: list[tuple[int, int, int]]) -> None:
    numbers, seqs, maker = list[int](), list[int](), RunsMaker()
    number = seq = 0
    for gap, seq_gap, length in parts:
        number, seq = number + gap, seq + seq_gap
        maker.add_run(number, seq, length)
        numbers += range(number, number + length)
        seqs += range(seq, seq + length)
        number, seq = number + length - 1, seq + length - 1
    runs = NumberRuns(numbers, seqs)
    assert maker.to_wire() == runs.to_wire()
    assert sum(length for _, _, length in runs.runs()) == len(numbers)


def test_a_row_of_large_batches_is_stored_without_a_look_at_each_number() -> None:
    row = Row()
    for begin in range(1, 500_001, 100_000):
        row.add(range(begin, begin + 100_000), 3 * begin)
    assert sum(1 for _ in row.wire_steps()) == 1, "steps of 4,096 numbers would be 123"
    assert Row.from_wire(row.to_wire()).numbers() == row.numbers()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_S8_a_replica_that_begins_anew_decides_and_remembers_as_one_that_goes_on(seed: int) -> None:
    """At whatever moments; and what it would store is the same too."""
    rng = random.Random(seed)
    stays, anew = Producers(), Producers()
    low = next_ = seq = 1
    sent: list[list[int]] = []
    applied = [0]
    for _ in range(150):
        if sent and rng.random() < 0.3:
            numbers = rng.choice(sent)  # a retry
        else:
            count = rng.randint(1, 40)
            numbers = sorted(rng.sample(range(next_, next_ + 2 * count), count))
            next_ = numbers[-1] + 1
            sent = [*sent[-5:], numbers]
        if rng.random() < 0.2:
            low = max(low, rng.choice(sent)[0] - rng.randint(0, 30))
        prev = rng.choice(applied) if rng.random() < 0.9 else numbers[0] - 1
        batch = decode_batch(
            encode_batch([b"k"] * len(numbers), [b"v"] * len(numbers), producer=7, epoch=1,
                         low=low, numbers=numbers, prevs=[prev] * len(numbers))
        )  # fmt: skip
        fresh = [table.check(batch) for table in (stays, anew)]
        if isinstance(fresh[0], LognodeError):
            assert str(fresh[1]) == str(fresh[0])
            continue
        assert fresh[1] == fresh[0]
        assert anew.duplicate_seqs(batch) == stays.duplicate_seqs(batch)
        new = numbers if fresh[0] is None else [numbers[at] for at in fresh[0]]
        for table in (stays, anew):
            table.record(batch, new, seq, 5)
        seq += len(new)
        applied = [0, *applied[-40:], *new]
        assert anew.to_wire() == stays.to_wire()
        if rng.random() < 0.2:
            anew = Producers.from_wire(anew.to_wire())
    assert seq > 500


def test_consecutive_numbers_take_hardly_any_memory() -> None:
    """Each child of a split has the numbers of its parent."""
    numbers = list(range(1, 500_001))
    written = Row()
    written.add(numbers, 1)
    row = Row.from_wire(written.to_wire())
    runs = row.inherited
    columns = (runs._firsts, runs._seqs, runs._ranks)
    assert sum(map(sys.getsizeof, columns)) < 1_000
    assert not row.applied
    assert row.seq_of(250_000) == 250_000


@pytest.mark.parametrize("seed", range(20))
def test_S8_numbers_are_found_together_as_each_alone(seed: int) -> None:
    """A batch that came again was looked up number by number, for up to 60 ms."""
    rng, row, batches = random.Random(seed), Row(), list[list[int]]()
    for turn in range(40):
        first = row.highest + rng.choice((1, 1, 5))
        step, count = rng.choice((1, 2)), rng.choice((1, 3, 20, 80))
        batches.append(list(range(first, first + step * count, step)))
        row.add(batches[-1], 1_000 * turn)
        if turn % 10 == 4:
            row.settle(row.highest - rng.choice((10, 300)))
        if turn == 25:
            row = Row.from_wire(row.to_wire())
    for batch in batches:
        begin, end = sorted(rng.choices(range(len(batch) + 1), k=2))
        for some in (batch, batch[begin:end], [*batch, batch[-1] + 1], batch[::2]):
            assert not some or row.seqs_of(some) == list(map(row.seq_of, some))
    found = [row.seqs_of(batch) for batch in batches]
    assert any(None in seqs for seqs in found)
    assert any(None not in seqs for seqs in found)
