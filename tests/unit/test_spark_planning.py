"""Plans of batches: every key and seq of the vector is in one task, and tasks are about even."""

import pickle
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from lognode.client.span_positions import overlay
from lognode.client.spark.planning import Task, hull, overlaps, plan_batch
from lognode.client.vector import Part, Vector

ALL = ((b"", None),)
EARLIEST = [(b"", None, 1)]


def vector(*ends: tuple[bytes, int]) -> Vector:
    """Parts that begin at those keys and go through those seqs."""
    starts = [start for start, _ in ends]
    parts = [
        Part(start, end, seq) for (start, seq), end in zip(ends, [*starts[1:], None], strict=True)
    ]
    return Vector("c1", "flights", 1, "lease", 9, tuple(parts))


def spans(tasks: Iterable[Task]) -> list[list[tuple[bytes, bytes | None, int, int]]]:
    return [[piece.span[:4] for piece in task.pieces] for task in tasks]


def test_a_range_without_weights_is_one_task() -> None:
    tasks = plan_batch(vector((b"", 70), (b"m", 0), (b"t", 9)), ALL, begins=EARLIEST, lease="l")
    assert spans(tasks) == [[(b"", b"m", 1, 71)], [(b"t", None, 1, 10)]]
    assert {piece.span.lease for task in tasks for piece in task.pieces} == {"l"}
    assert [task.pieces[0].range_start for task in tasks] == [b"", b"t"]
    assert pickle.loads(pickle.dumps(tasks)) == tasks
    assert tasks[0].of == Vector("c1", "flights", 1, "", 0, ())


def test_starts_and_ends_cut_spans_and_seqs() -> None:
    tasks = plan_batch(
        vector((b"", 70), (b"m", 90)), ((b"c", b"p"),), lease=None,
        begins=[(b"", b"f", 5), (b"f", None, 80)], ends=[(b"", b"n", 60), (b"n", None, 99)],
    )  # fmt: skip
    assert spans(tasks) == [[(b"c", b"f", 5, 60)], [(b"n", b"p", 80, 91)]]


def test_keys_of_a_range_share_a_task_until_more_are_asked_for() -> None:
    keys = [b"k%02d" % at for at in range(12)]
    wanted = [(key, key + b"\0") for key in keys]
    log = vector((b"", 70), (b"k09", 70))
    two = plan_batch(log, wanted, begins=EARLIEST, lease=None)
    assert [len(task.pieces) for task in two] == [9, 3]
    four = plan_batch(log, wanted, begins=EARLIEST, lease=None, partitions_min=4)
    assert [len(task.pieces) for task in four] == [3, 3, 3, 3]


@pytest.mark.parametrize("wanted", [1, 3, 8, 20])
def test_tasks_are_of_about_even_weight(wanted: int) -> None:
    rng = random.Random(7)
    weights = sorted((b"%04d" % at, rng.randrange(100, 1_000)) for at in range(600))
    log = vector((b"", 70), (b"0100", 80), (b"0400", 90))
    tasks = plan_batch(
        log, ALL, begins=EARLIEST, weights=weights, partitions_min=wanted, lease=None
    )
    assert wanted <= len(tasks) <= wanted + 3
    whole = sum(size for _, size in weights)
    for task in tasks:
        (piece,) = task.pieces
        start, end = piece.span[:2]
        own = sum(size for key, size in weights if key >= start and (end is None or key < end))
        assert own <= 1.3 * whole / wanted + 1_000
    edges = [piece.span[:2] for task in tasks for piece in task.pieces]
    assert [edges[0][0], edges[-1][1]] == [b"", None]
    assert all(one[1] == other[0] for one, other in pairwise(edges))


def test_a_large_range_is_cut_though_nobody_asks_for_it() -> None:
    weights = [(b"", 100), *((b"%04d" % at, 100) for at in range(99))]
    of = vector((b"", 9))
    found = plan_batch(of, ALL, begins=EARLIEST, weights=weights, task_bytes=1_000, lease=None)
    assert len(found) == 10


def test_a_key_heavier_than_a_task_is_not_cut() -> None:
    weights = [(b"a", 10), (b"b", 9_000), (b"c", 10), (b"d", 10)]
    tasks = plan_batch(
        vector((b"", 9)), ALL, begins=EARLIEST, weights=weights, partitions_min=3, lease=None
    )
    assert sum(len(task.pieces) for task in tasks) == len(tasks) <= 3
    assert [span for (span,) in spans(tasks) if span[0] <= b"b" and (span[1] or b"z") > b"b"]


def test_random_plans_have_each_key_and_seq_once() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        keys = [bytes([at]) for at in range(1, 30)]
        starts = [b"", *sorted(rng.sample(keys, rng.randrange(4)))]
        log = vector(*((start, rng.randrange(8)) for start in starts))
        edges = sorted(rng.sample(keys, 4))
        wanted = rng.choice([ALL, ((edges[0], edges[1]), (edges[2], edges[3]))])
        middle = rng.choice(keys)
        begins = [(b"", middle, rng.randrange(4)), (middle, None, rng.randrange(4))]
        ends = rng.choice([None, [(b"", edges[2], rng.randrange(9)), (edges[2], None, 5)]])
        weights = [(key, rng.randrange(9)) for key in sorted(rng.sample(keys, 9))]
        tasks = plan_batch(
            log, wanted, begins=begins, ends=ends, weights=weights,
            partitions_min=rng.randrange(1, 6), lease=None,
        )  # fmt: skip
        found = [
            (key, seq)
            for task in tasks for piece in task.pieces for key in keys
            if key >= piece.span.start and (piece.span.end is None or key < piece.span.end)
            for seq in range(piece.span.from_seq, piece.span.to_seq)
        ]  # fmt: skip
        expected = [
            (key, seq)
            for key in keys for seq in range(1, 10)
            if overlaps((key, key + b"\0"), wanted)
            and any(p.start <= key and (p.end is None or key < p.end) and seq <= p.through_seq
                    for p in log.parts)
            and seq >= begins[key >= middle][2]
            and (ends is None or seq < ends[key >= edges[2]][2])
        ]  # fmt: skip
        assert sorted(found) == sorted(expected), f"seed={seed}"
        for task in tasks:
            assert len({piece.range_start for piece in task.pieces}) == 1


def test_overlays_and_hulls() -> None:
    left = [(b"a", b"c", 1), (b"c", b"f", 2), (b"k", None, 3)]
    right = [(b"", b"b", "x"), (b"d", b"l", "y"), (b"l", None, "z")]
    assert list(overlay(left, right)) == [
        (b"a", b"b", 1, "x"), (b"d", b"f", 2, "y"), (b"k", b"l", 3, "y"), (b"l", None, 3, "z"),
    ]  # fmt: skip
    assert list(overlay(left, [])) == []
    assert hull([(b"a", b"b"), (b"x", None)]) == [(b"a", None)]
    assert not overlaps((b"c", b"d"), [(b"a", b"c"), (b"d", None)])
