"""Offsets of a stream: what a micro-batch has follows from two of them, and nothing is skipped."""

import json
import random

import pytest

from lognode.client.protocol.errors import InvalidArgument
from lognode.client.span_positions import Position
from lognode.client.spark import offsets
from lognode.client.spark.offsets import (
    Area,
    Offset,
    admitted,
    advanced,
    areas,
    lost,
    shares,
    tasks,
)
from lognode.client.spark.planning import positions as read_up_to
from lognode.client.vector import Vector

LOG = Vector("c1", "flights", 1, "", 0, ())
ALL = ((b"", None),)


def at(*rows: tuple[bytes, int]) -> Vector:
    """The offset of those starts of spans and next seqs."""
    return offsets.vector(offsets.offset(LOG, positions(*rows)))


def positions(*rows: tuple[bytes, int]) -> list[Position]:
    ends = [*(start for start, _ in rows[1:]), None]
    return [(start, end, seq) for (start, seq), end in zip(rows, ends, strict=True)]


def moved(found: list[Area], most: int | None) -> list[Position] | None:
    return advanced(found, shares(found, most))


def test_an_offset_is_a_vector_and_survives_json() -> None:
    made = offsets.offset(LOG, positions((b"", 1), (b"\xff", 71)))
    assert made["v"] == 1
    assert made["parts"] == [
        {"start": "", "end": {"b64": "/w=="}, "through_seq": 0},
        {"start": {"b64": "/w=="}, "end": None, "through_seq": 70},
    ]
    again = offsets.vector(json.loads(json.dumps(made)))
    assert read_up_to(again) == positions((b"", 1), (b"\xff", 71))
    assert offsets.offset(again, read_up_to(again)) == made
    with pytest.raises(InvalidArgument, match="version"):
        offsets.vector({**made, "v": 2})


@pytest.mark.parametrize(
    ("available", "most", "expected"),
    [
        ([5, 5], 100, [5, 5]),
        ([2, 100, 30], 32, [2, 15, 15]),
        ([0, 100], 7, [0, 7]),
        ([3, 3, 3], 1, [0, 0, 1]),
        ([9], 0, [1]),
        ([], 5, []),
        ([0, 0], 5, [0, 0]),
    ],
)
def test_ranges_share_the_admitted_entries_evenly(
    available: list[int], most: int, expected: list[int]
) -> None:
    assert admitted(available, most) == expected


def test_an_admitted_batch_has_at_least_one_entry_and_respects_the_limit() -> None:
    for seed in range(500):
        rng = random.Random(seed)
        available = [rng.randrange(0, 50) for _ in range(rng.randrange(1, 6))]
        most = rng.randrange(1, 120)
        shares = admitted(available, most)
        assert all(0 <= one <= other for one, other in zip(shares, available, strict=True))
        assert sum(shares) == min(most, sum(available)), f"seed={seed}"


def test_a_micro_batch_goes_on_through_a_split_and_a_merge() -> None:
    begin = at((b"", 5), (b"m", 50))
    split = areas(begin, positions((b"", 9), (b"c", 7), (b"m", 50)), ALL)
    assert moved(split, None) == positions((b"", 9), (b"c", 7), (b"m", 50))
    merged = areas(begin, positions((b"", 60)), ALL)
    assert moved(merged, 7) == positions((b"", 9), (b"m", 53))
    assert moved(merged, None) == positions((b"", 60)), "both are at the end of their range"
    equal = areas(at((b"", 5), (b"m", 7)), positions((b"", 9), (b"m", 9)), ALL)
    assert moved(equal, None) == positions((b"", 9), (b"m", 9)), "two ranges, by chance"


def test_nothing_new_and_nothing_that_goes_back() -> None:
    begin = at((b"", 5), (b"m", 50))
    assert moved(areas(begin, positions((b"", 5), (b"m", 50)), ALL), None) is None
    behind = areas(begin, positions((b"", 2), (b"m", 51)), ALL)
    assert moved(behind, None) == positions((b"", 5), (b"m", 51))


def test_keys_that_nobody_wants_are_passed() -> None:
    found = areas(at((b"", 1)), positions((b"", 100), (b"m", 20)), ((b"a", b"b"),))
    assert found[1] == Area(b"m", None, 1, 20, False, b"m")
    assert moved(found, 10) == positions((b"", 11), (b"m", 20))


def test_tasks_follow_from_the_offsets_alone() -> None:
    found = tasks(at((b"", 5), (b"m", 50)), at((b"", 9), (b"c", 7), (b"m", 50)), ALL)
    assert [[piece.span[:4] for piece in task.pieces] for task in found] == [
        [(b"", b"c", 5, 9)], [(b"c", b"m", 5, 7)],
    ]  # fmt: skip
    assert {piece.span.lease for task in found for piece in task.pieces} == {None}
    keys = tasks(at((b"", 5)), at((b"", 9)), ((b"a", b"a\0"), (b"k", b"k\0")))
    assert [[piece.span[:2] for piece in task.pieces] for task in keys] == [
        [(b"a", b"a\0"), (b"k", b"k\0")]
    ]
    assert tasks(at((b"", 5)), at((b"", 5)), ALL) == []


def test_cuts_make_more_tasks_of_the_same_entries() -> None:
    weights = [(b"%c" % letter, 10) for letter in b"abcdefgh"]
    start, end = at((b"", 5), (b"m", 50)), offsets.offset(LOG, positions((b"", 9), (b"m", 50)))
    made = offsets.with_cuts(end, start, ALL, weights, 4)
    assert made == {**end, "cuts": ["c", "e", "g"]}
    between = offsets.cuts(json.loads(json.dumps(made)))
    found = tasks(start, offsets.vector(made), ALL, None, between)
    assert [[piece.span[:4] for piece in task.pieces] for task in found] == [
        [(b"", b"c", 5, 9)], [(b"c", b"e", 5, 9)], [(b"e", b"g", 5, 9)], [(b"g", b"m", 5, 9)],
    ]  # fmt: skip
    assert offsets.with_cuts(end, start, ALL, [], 4) == end, "nobody knows where to cut"
    assert offsets.with_cuts(end, start, ((b"a", b"a\0"),), weights, 4) == end, "one key"
    assert offsets.cuts(end) == list(ALL)


@pytest.mark.parametrize("given", ["a", 5, ["b", "a"], ["a", "a"], [""], [1], [{"b64": "?"}]])
def test_damaged_cuts_are_refused(given: object) -> None:
    with pytest.raises(InvalidArgument, match=r"the cuts .* not ascending keys: the checkpoint"):
        offsets.cuts({**offsets.offset(LOG, positions((b"", 5))), "cuts": given})


def test_a_micro_batch_that_goes_back_is_refused_in_one_line() -> None:
    with pytest.raises(InvalidArgument, match="from seq 50 back to 49, for keys from b'm' on"):
        tasks(at((b"", 5), (b"m", 50)), at((b"", 9), (b"m", 49)), ALL)
    other = offsets.vector({**at((b"", 9)).to_document(), "log_id": 2})
    with pytest.raises(InvalidArgument, match="checkpoint is of another log"):
        tasks(at((b"", 5)), other, ALL)


def test_entries_removed_by_retention_are_detected() -> None:
    found = tasks(at((b"", 5), (b"m", 50)), at((b"", 9), (b"m", 60)), ((b"a", b"b"), (b"x", None)))
    assert lost(found, positions((b"", 5), (b"m", 50))) is None
    assert lost(found, positions((b"", 6), (b"m", 50))) == (b"a", 5, 6)
    assert lost(found, positions((b"", 5), (b"p", 51))) == (b"x", 50, 51)
    assert lost(found, positions((b"", 5), (b"c", 99), (b"m", 50))) is None, "other keys"


class Log:
    """A made-up log: ranges that grow, are split and merged."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.keys = [bytes([97 + each]) for each in range(12)]
        self.ranges: dict[bytes, int] = {b"": 1}
        """By start: the next seq."""
        self.written: list[tuple[bytes, int]] = []

    def change(self, what: str) -> None:
        key = self.rng.choice(self.keys)
        own = max(start for start in self.ranges if start <= key)
        if what == "write":
            self.written.append((key, self.ranges[own]))
            self.ranges[own] += 1
        elif what == "split":
            self.ranges.setdefault(key, self.ranges[own])
        elif what == "merge" and own:
            gone = self.ranges.pop(own)
            left = max(start for start in self.ranges if start < own)
            self.ranges[left] = max(self.ranges[left], gone)

    def latest(self) -> list[Position]:
        return positions(*sorted(self.ranges.items()))

    def between(self, begin: Vector, end: Offset) -> list[tuple[bytes, int]]:
        found = tasks(begin, offsets.vector(end), ALL, None, offsets.cuts(end))
        return [
            (key, seq)
            for task in found for piece in task.pieces
            for key, seq in self.written
            if key >= piece.span.start and (piece.span.end is None or key < piece.span.end)
            and piece.span.from_seq <= seq < piece.span.to_seq
        ]  # fmt: skip


def test_random_streams_read_each_key_and_seq_once() -> None:
    """Micro-batches end where they may, and have no more entries than they may."""
    for seed in range(200):
        rng = random.Random(seed)
        log, begin, read = Log(rng), at((b"", 1)), []
        edges = positions(*((key, 0) for key in [b"", *log.keys]))
        for step in range(60):
            what = rng.choice(["write", "write", "split", "merge", "read", "read"])
            log.change(what)
            if what != "read" and step != 59:
                continue
            most = None if step == 59 else rng.choice([None, 1, 3])
            end = moved(areas(begin, log.latest(), ALL, edges), most)
            if end is not None:
                cut = offsets.with_cuts(
                    offsets.offset(LOG, end), begin, ALL, [(key, 1) for key in log.keys],
                    rng.choice([1, 2, 9]),
                )  # fmt: skip
                some = log.between(begin, cut)
                assert most is None or len(some) <= most, f"seed={seed}"
                read += some
                begin = offsets.vector(cut)
        assert sorted(read) == sorted(log.written), f"seed={seed}"
