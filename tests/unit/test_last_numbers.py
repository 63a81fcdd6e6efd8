"""What a record of a producer follows is known for as long as it may be unsettled (S4)."""

import random

from lognode.client.last_numbers import LastNumbers

_MANY = 5_000


def test_S4_a_number_that_is_not_settled_is_never_forgotten() -> None:
    rng = random.Random(7)
    last, exact = LastNumbers(), dict[bytes, int]()
    number = low = 1
    for _ in range(400):
        keys = list({b"%d" % rng.randrange(3_000) for _ in range(rng.randrange(1, 300))})
        numbers = range(number, number + len(keys))
        found = last.before(keys, low)
        for key, prev in zip(keys, found or [0] * len(keys), strict=True):
            known = exact.get(key, 0)
            assert prev == known or (prev == 0 and known < low)
        given = dict(zip(keys, numbers, strict=True))
        if rng.random() < 0.5:
            last.note_all(keys, numbers)
        else:
            last.note(given.items(), numbers[-1])
        exact.update(given)
        number += len(keys)
        low = max(low, number - rng.randrange(1, 20_000))
        last.settle(low)


def test_a_number_stays_while_one_that_is_as_old_is_unsettled() -> None:
    last = LastNumbers()
    last.note([(b"first", 1)], 1)
    for begin in range(2, 10 * _MANY, _MANY):
        last.note(((b"%d" % n, n) for n in range(begin, begin + _MANY)), begin + _MANY - 1)
        last.settle(1)
        assert last.before([b"first"], 1) == [1]


def test_settled_numbers_are_forgotten() -> None:
    last = LastNumbers()
    for begin in range(1, 40 * _MANY, _MANY):
        last.note(((b"%d" % n, n) for n in range(begin, begin + _MANY)), begin + _MANY - 1)
        last.settle(begin)
    assert len(last) <= 3 * _MANY
    assert last.before([b"1"], 1) is None
