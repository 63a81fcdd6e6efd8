"""Appends that wait to be proposed: none is lost, principals share, each keeps its order."""

import random
import statistics
import time
from pathlib import Path

from lognode.client.protocol import limits
from lognode.client.protocol.records import encode_batch
from lognode.node.replicas.gathered import Gathered, Waiting
from lognode.statemachine import commands
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore


def batch(name: str, number: int, size: int, records: int = 1) -> Waiting:
    return Waiting(bytes(size), records, (name, number))


def test_added_batches_are_taken_once_in_the_order_of_their_principal() -> None:
    rng = random.Random(3)
    gathered, counts = Gathered(), {"a": 0, "b": 0, "c": 0}
    taken: dict[str, list[int]] = {name: [] for name in counts}
    for _ in range(2_000):
        name = rng.choice("aaabc")
        gathered.add(name, batch(name, counts[name], rng.choice((10, 1_000, 200_000))))
        counts[name] += 1
        some = rng.sample("abc", 2) if rng.random() < 0.1 else ()
        for each in gathered.take_of(some, 10_000, 1_000):
            assert each.future[0] in some
            taken[each.future[0]].append(each.future[1])
        if rng.random() < 0.2:
            for each in gathered.take(rng.choice((1, 10_000, 1 << 20)), 1_000):
                taken[each.future[0]].append(each.future[1])
    while gathered:
        for each in gathered.take(1 << 20, 1_000):
            taken[each.future[0]].append(each.future[1])
    assert taken == {name: list(range(count)) for name, count in counts.items()}
    assert gathered.size == 0
    assert gathered.size_of("a") == 0


def test_one_batch_is_not_behind_the_many_of_another_principal() -> None:
    gathered = Gathered()
    for number in range(1_000):
        gathered.add("bulk", batch("bulk", number, 100_000))
    gathered.add("one", batch("one", 0, 100))
    assert ("one", 0) in [each.future for each in gathered.take(1 << 20, 10_000)]


def test_a_range_is_shared_until_one_principal_has_brought_many_consecutive_batches() -> None:
    gathered = Gathered()
    for number in range(10):
        gathered.add("a", batch("a", number, 1_000_000))
    assert not gathered.is_shared
    gathered.add("b", batch("b", 0, 10))
    assert gathered.is_shared
    for number in range(64):
        assert gathered.is_shared
        gathered.add("a", batch("a", number, 1 << 20))
        gathered.clear()
    assert not gathered.is_shared


def test_two_principals_have_as_many_bytes_each_although_their_batches_differ() -> None:
    gathered = Gathered()
    for number in range(10_000):
        gathered.add("small", batch("small", number, 1_000))
    for number in range(100):
        gathered.add("large", batch("large", number, 300_000))
    sizes = {"small": 0, "large": 0}
    for _ in range(8):
        for each in gathered.take(1 << 20, 10_000):
            sizes[each.future[0]] += len(each.data)
    assert 0.75 < sizes["small"] / sizes["large"] < 1.33


def test_an_entry_has_one_batch_at_least_and_no_more_than_fit() -> None:
    gathered = Gathered()
    gathered.add("a", batch("a", 0, 5_000))
    gathered.add("a", batch("a", 1, 10, records=60))
    gathered.add("b", batch("b", 0, 10, records=60))
    assert len(gathered.take(1_000, 100)) == 1
    assert len(gathered.take(1_000, 100)) == 1  # 120 records would be too many
    assert len(gathered.take(1_000, 100)) == 1
    assert not gathered.take(1_000, 100)


def test_an_entry_of_many_small_batches_is_applied_in_a_few_milliseconds(tmp_path: Path) -> None:
    """An entry is applied in one step, and a batch of one record costs as much as 30 records."""
    gathered = Gathered()
    for number in range(1, 10_001):
        one = encode_batch([b"k"], [b"x"], producer=1, epoch=1, low=number, numbers=number)
        gathered.add("a", Waiting(one, 1, None))
    state = RangeState(start=b"", end=None, store=SegmentStore(tmp_path))
    used = []
    while gathered:
        taken = [each.data for each in gathered.take(limits.MIB, limits.batch_records_max)]
        command = commands.proposal(commands.APPEND, 1, taken)
        began = time.thread_time()
        state.apply(state.applied_index + 1, 1, command)
        used.append(time.thread_time() - began)
    assert state.next_seq == 10_001
    # 5 ms on an idle machine, and 150 ms for all of them in one entry.
    assert statistics.median(used) < 0.03


def test_the_batches_of_some_principals_are_taken_alone_and_in_fair_order() -> None:
    gathered = Gathered()
    for number in range(1_000):
        gathered.add("bulk", batch("bulk", number, 100_000))
        gathered.add("often", batch("often", number, 10_000))
    gathered.add("one", batch("one", 0, 100))
    taken = gathered.take_of(["often", "one", "nobody"], 100_000, 10_000)
    assert ("one", 0) in [each.future for each in taken]
    assert [each.future for each in taken if each.future[0] == "often"] == [
        ("often", number) for number in range(len(taken) - 1)
    ]
    assert sum(len(each.data) for each in taken) <= 100_000
    assert gathered.principals() == ["bulk", "often"]
    assert gathered.take(1 << 20, 10_000)[0].future == ("bulk", 0)


def test_at_least_one_batch_of_the_chosen_principals_is_taken() -> None:
    gathered = Gathered()
    gathered.add("a", batch("a", 0, 5_000))
    assert not gathered.take_of(["b"], 1_000, 10)
    assert len(gathered.take_of(["a"], 1_000, 10)) == 1
    assert not gathered
    assert gathered.size == 0


def test_clear_returns_all() -> None:
    gathered = Gathered()
    for name in "ab":
        gathered.add(name, batch(name, 0, 10))
    assert len(gathered.clear()) == 2
    assert not gathered
    assert gathered.size == 0
