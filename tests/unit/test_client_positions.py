"""The cursor of every batch of a follow of many keys, without a copy for every batch."""

import copy
import gc
import pickle
import random
import threading
import weakref

import pytest

from lognode import Cursor
from lognode.client.positions import Positions, View, copied_keys_max

KEYS = [b"%05d" % n for n in range(copied_keys_max + 40)]


def begun(keys: list[bytes] = KEYS) -> tuple[Positions, dict[bytes, int]]:
    at = dict.fromkeys(keys, 1)
    return Positions(at), dict(at)


@pytest.mark.parametrize("count", [3, len(KEYS)], ids=["few keys", "many keys"])
@pytest.mark.parametrize("seed", range(20))
def test_a_view_says_the_positions_of_its_moment(count: int, seed: int) -> None:
    """Against copies: views are read at once, later, twice, or never, and kept or dropped."""
    rng = random.Random(seed)
    positions, model = begun(KEYS[:count])
    views: list[tuple[Cursor, dict[bytes, int]]] = []
    for _ in range(400):
        changes = [(rng.choice(KEYS[:count]), rng.randrange(1, 1_000_000))
                   for _ in range(rng.randrange(0, 4))]  # fmt: skip
        positions.advance(changes)
        model.update(changes)
        views.append((Cursor(keys=positions.view()), dict(model)))
        if rng.random() < 0.2:
            cursor, expected = rng.choice(views)
            assert cursor == Cursor(keys=expected)
            assert cursor.keys is not None
            assert len(cursor.keys) == count
            assert cursor.keys[KEYS[0]] == expected[KEYS[0]]
        if rng.random() < 0.1:
            del views[: rng.randrange(len(views) + 1)]
    for cursor, expected in reversed(views):
        assert cursor == Cursor(keys=expected)


def test_keys_that_the_follow_did_not_begin_with_are_left_out() -> None:
    positions, model = begun()
    positions.advance([(b"foreign", 7)])
    assert dict(positions.view()) == model


def test_a_batch_copies_nothing_and_a_dropped_batch_keeps_nothing() -> None:
    positions, _ = begun()
    first = positions.view()
    assert isinstance(first, View)
    seen = weakref.ref(first._moment)
    for n in range(2, 20):
        positions.advance([(KEYS[0], n)])
        assert positions._newest.table is None
    assert first._moment.table is None
    del first
    gc.collect()
    assert seen() is None


def test_a_view_that_is_kept_unread_does_not_keep_all_later_changes() -> None:
    positions, model = begun()
    kept = positions.view()
    assert isinstance(kept, View)
    longest = 0
    for n in range(2, 20 * len(KEYS)):
        positions.advance([(KEYS[n % len(KEYS)], n)])
        length, at = 0, kept._moment
        while at.next is not None:
            length, at = length + 1, at.next
        longest = max(longest, length)
    assert longest <= len(KEYS) + 1
    assert dict(kept) == model


def test_a_view_can_be_copied_and_pickled() -> None:
    positions, model = begun()
    view = positions.view()
    positions.advance([(KEYS[0], 9)])
    assert pickle.loads(pickle.dumps(view)) == model
    assert copy.deepcopy(Cursor(keys=view)) == Cursor(keys=model)


def test_another_thread_reads_views_while_positions_advance() -> None:
    positions, model = begun()
    wrong: list[tuple[int, int]] = []
    over = threading.Event()
    newest = [(1, positions.view())]

    def read() -> None:
        while not over.is_set():
            n, view = newest[0]
            found = {view[key] for key in KEYS}
            if found != {n}:
                wrong.append((n, max(found)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n in range(2, 2_000):
            positions.advance([(key, n) for key in KEYS])
            newest[0] = n, positions.view()
    finally:
        over.set()
        reader.join()
    assert not wrong
    assert dict(newest[0][1]) == dict.fromkeys(model, 1_999)
