"""Where the load of a range halves, or which key has most of it: told from samples of many loads.

Random loads print their seed where they fail.
"""

import random
from collections.abc import Callable, Iterator, Sequence

import msgpack
import pytest

from lognode.client.protocol.key_column import KeyColumn
from lognode.partitions.load_sample import (
    CANDIDATES,
    ENOUGH,
    HOT,
    IN_THE_WAY,
    PICKS_MAX,
    Halves,
    HotKey,
    Sample,
)

Keys = Callable[[random.Random], Iterator[bytes]]
"""A load: the keys of records, one after the other."""
RECORDS, EVERY = 10_000, 5


def key(number: int) -> bytes:
    return b"key-%06d" % number


def uniform(count: int) -> Keys:
    def keys(rng: random.Random) -> Iterator[bytes]:
        while True:
            yield key(rng.randrange(count))

    return keys


def weighted(weights: dict[bytes, int]) -> Keys:
    def keys(rng: random.Random) -> Iterator[bytes]:
        while True:
            yield from rng.choices(list(weights), list(weights.values()), k=100)

    return keys


def zipf(count: int, exponent: float) -> Keys:
    """The most wanted keys stand anywhere among the others."""

    def keys(rng: random.Random) -> Iterator[bytes]:
        places = [key(number) for number in range(count)]
        rng.shuffle(places)
        weights = [1 / (rank + 1) ** exponent for rank in range(count)]
        while True:
            yield from rng.choices(places, weights, k=1_000)

    return keys


def ascending(_: random.Random) -> Iterator[bytes]:
    yield from map(key, range(RECORDS))


def by_turns(_: random.Random) -> Iterator[bytes]:
    while True:
        yield from map(key, range(EVERY * 4))


def around(*hot: int, others: int = 1_000) -> dict[bytes, int]:
    """A thousand keys in order, of equal weight, the hot ones of as much as is said instead."""
    wanted = dict.fromkeys(map(key, range(others)), 100)
    step = others // (len(hot) + 1)
    return wanted | {key(step * (at + 1)): weight * others for at, weight in enumerate(hot)}


def sampled(keys: Keys, rng: random.Random, batch: int) -> tuple[Sample, list[bytes]]:
    """A sample of records in requests of so many, and the records."""
    sample, source = Sample(rng, EVERY), keys(rng)
    records = [next(source) for _ in range(RECORDS)]
    for at in range(0, RECORDS, batch):
        sample.appended(KeyColumn.of(records[at : at + batch]), together=False)
    return sample, records


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 7, 100], ids="a request of {}".format)
@pytest.mark.parametrize(
    "keys",
    [
        uniform(5_000), uniform(40), uniform(4), by_turns, zipf(5_000, 0.8), zipf(5_000, 1.1),
        weighted(around(30)), weighted({b"a": 40, b"b": 10, b"y": 10, b"z": 40}),
        weighted({b"a": 48, b"b": 48, b"c": 4}),
    ],
    ids=["uniform", "40 keys", "4 keys", "by turns", "zipf 0.8", "zipf 1.1", "a warm key",
         "two hot keys aside", "two hot keys"],
)  # fmt: skip
def test_many_keys_are_halved_within_a_fair_share(keys: Keys, batch: int) -> None:
    unlucky = 0
    for seed in range(5):
        sample, records = sampled(keys, random.Random(seed), batch)
        found = sample.found()
        if found is None:  # none of 20 keys in the middle quarter: once in 0.75 ** -20 windows
            unlucky += 1
            continue
        assert isinstance(found, Halves), f"seed {seed}: {found}"
        left = sum(record < found.at for record in records) / RECORDS
        assert 0.3 < left < 0.7, f"seed {seed}: {left:.2f} of the load on the left"
        assert min(records) < found.at <= max(records)
    assert unlucky <= 1


def test_a_hot_range_of_many_keys_is_split_near_its_median_of_load() -> None:
    for seed in range(10):
        sample, records = sampled(uniform(5_000), random.Random(seed), 10)
        found = sample.found()
        assert isinstance(found, Halves)
        left = sum(record < found.at for record in records) / RECORDS
        assert abs(left - 0.5) < 0.1, f"seed {seed}: {left:.2f}"


@pytest.mark.parametrize(
    ("weights", "hot", "share"),
    [
        ({b"only": 1}, b"only", 1.0),
        (around(900), key(500), 0.9),
        (around(233), key(500), 0.7),
        ({b"a": 700, **dict.fromkeys(map(key, range(100)), 3)}, b"a", 0.7),
        ({b"z": 700, **dict.fromkeys(map(key, range(100)), 3)}, b"z", 0.7),
        (around(67), key(500), 0.4),
        (around(10, 200), key(666), 0.64),
    ],
    ids=["alone", "in the middle", "of 70 %", "first", "last", "in the way", "beside another"],
)
def test_a_key_that_has_most_of_the_load_is_named_and_nothing_is_split_around_it(
    weights: dict[bytes, int], hot: bytes, share: float
) -> None:
    for seed in range(10):
        found = sampled(weighted(weights), random.Random(seed), 10)[0].found()
        assert isinstance(found, HotKey), f"seed {seed}: {found}"
        assert found.key == hot
        assert abs(found.share - share) < 0.08, f"seed {seed}: {found.share:.2f}"


def test_keys_that_only_ascend_are_not_split_and_no_key_is_to_blame() -> None:
    for seed in range(10):
        assert sampled(ascending, random.Random(seed), 10)[0].found() is None


def test_two_hot_keys_get_a_range_each_and_are_named_there() -> None:
    weights = around(400, 400)
    sample, records = sampled(weighted(weights), random.Random(1), 10)
    found = sample.found()
    assert isinstance(found, Halves)
    assert key(333) < found.at <= key(666)
    for hot, part in ((333, [r for r in records if r < found.at]),
                      (666, [r for r in records if r >= found.at])):  # fmt: skip
        child = Sample(random.Random(2), 5)
        child.appended(KeyColumn.of(part[:0]), together=False)
        for record in part:
            child.appended(KeyColumn.of([record]), together=False)
        named = child.found()
        assert isinstance(named, HotKey)
        assert named.key == key(hot)


def test_records_that_belong_together_hold_a_split_up_where_it_would_divide_them() -> None:
    wide = random.Random(3), Sample(random.Random(3), 1)
    near = random.Random(3), Sample(random.Random(3), 1)
    for _ in range(1_000):
        rng, sample = wide
        both = [key(rng.randrange(50)), key(rng.randrange(50, 100))]
        sample.appended(KeyColumn.of(both), together=True)
        rng, sample = near
        at = rng.randrange(100)
        sample.appended(KeyColumn.of([key(at), key(at)]), together=True)
    assert wide[1].found() is None
    assert isinstance(near[1].found(), Halves)


def test_a_read_of_all_keys_speaks_for_no_split_and_one_of_a_key_counts_like_a_record() -> None:
    rng = random.Random(4)
    whole, single, hot = (Sample(rng, 1) for _ in range(3))
    for _ in range(1_000):
        whole.read(b"", None)
        one = key(rng.randrange(100))
        single.read(one, one + b"\0")
        hot.read(b"k", b"k\0")
    assert whole.found() is None
    assert isinstance(single.found(), Halves)
    assert hot.found() == HotKey(b"k", 1.0)
    # Some of them leave a split that halves the rest.
    for _ in range(500):
        one = key(rng.randrange(100))
        single.read(one, one + b"\0")
        single.read(b"", None)
    assert isinstance(single.found(), Halves)
    for _ in range(3_000):
        single.read(b"", None)
    assert single.found() is None


def test_places_to_split_at_are_drawn_from_all_that_was_seen() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        sample = Sample(rng, 1)
        for _ in range(2 * CANDIDATES):
            sample.appended(KeyColumn.of([key(0)]), together=False)
        for _ in range(2_000):
            sample.appended(KeyColumn.of([key(rng.randrange(1_000))]), together=False)
        assert isinstance(sample.found(), Halves), f"seed {seed}"


def test_one_record_in_so_many_is_looked_at_whatever_requests_hold() -> None:
    for batch in (1, 3, 50, 100):
        sample, _ = sampled(uniform(100), random.Random(batch), batch)
        assert abs(sample._seen - RECORDS / EVERY) < 0.1 * RECORDS / EVERY, batch
    giant = Sample(random.Random(1), 1)
    giant.appended(KeyColumn.of([b"k"] * 10_000), together=False)
    assert giant._seen == PICKS_MAX
    assert len(giant._candidates) == CANDIDATES


def test_too_little_says_nothing() -> None:
    sample = Sample(random.Random(0), 1)
    assert sample.found() is None
    for count in range(1, ENOUGH):
        sample.appended(KeyColumn.of([b"k"]), together=False)
        assert not sample.is_enough or count == ENOUGH
    assert HOT > IN_THE_WAY


def test_wherever_it_is_split_both_sides_have_a_share_of_what_was_asked_for() -> None:
    """Random loads of few and many keys: never at the first key, never for nothing on a side."""
    splits = 0
    for seed in range(100):
        rng = random.Random(seed)
        weights = {key(n): rng.choice((1, 1, 1, 5, 50, 400)) for n in range(rng.randrange(1, 60))}
        sample, records = sampled(weighted(weights), rng, rng.choice((1, 5, 50)))
        found = sample.found()
        if isinstance(found, Halves):
            splits += 1
            left = sum(record < found.at for record in records) / RECORDS
            assert 0.25 < left < 0.75, f"seed {seed}: {left:.2f}"
            assert found.at != min(weights)
        elif isinstance(found, HotKey):
            share = records.count(found.key) / RECORDS
            assert share > IN_THE_WAY - 0.1, f"seed {seed}: {share:.2f}"
    assert splits > 40


@pytest.mark.parametrize("batches", [[[b"a"]], [[b"a", b"b"], [b"c"]]])
def test_skipping_continues_over_requests(batches: Sequence[Sequence[bytes]]) -> None:
    sample = Sample(random.Random(5), 1_000)
    before = sample._skip
    for batch in batches:
        sample.appended(KeyColumn.of(batch), together=False)
    assert sample._skip == before - sum(map(len, batches))


@pytest.mark.parametrize("together", [False, True])
def test_a_sample_makes_no_objects_of_the_other_keys(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: KeyColumn) -> list[bytes]:
        raise AssertionError("the sample asked for all keys of a batch")

    keys = [key(at) for at in range(1_000)]
    sample, by_objects = (Sample(random.Random(1), every=10) for _ in range(2))
    for _ in range(40):
        by_objects.appended(KeyColumn.of(keys), together=together)
    monkeypatch.setattr(KeyColumn, "strings", refuse)
    packed = msgpack.packb(keys)
    for _ in range(40):
        sample.appended(KeyColumn.unpack(packed, len(keys)), together=together)
    assert sample.is_enough
    assert sample.found() == by_objects.found()
