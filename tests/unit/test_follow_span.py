"""What a reader of a follow has, cut and joined: nothing is skipped, and nothing comes twice."""

import random

import pytest

from lognode.client.follow_span import FollowSpan, Push, joined, may_join
from lognode.client.protocol import limits
from lognode.client.protocol.types import Entry


def entry(key: bytes, seq: int) -> Entry:
    return Entry(key=key, seq=seq, value=b"", timestamp_ms=1, headers=None)


def span(start: bytes, end: bytes | None, position: int) -> FollowSpan:
    return FollowSpan(start, end, position, caught_up=True, reached=position, on=(1, 2))


def test_x2_20_joined_spans_go_on_from_the_lower_position_and_leave_out_what_one_had() -> None:
    both = joined(span(b"m", None, 9), span(b"", b"m", 5))
    assert (both.start, both.end, both.next) == (b"", None, 5)
    came = [entry(b"a", 5), entry(b"x", 6), entry(b"x", 8), entry(b"x", 9), entry(b"a", 10)]
    assert [(e.key, e.seq) for e in both.fresh(came)] == [(b"a", 5), (b"x", 9), (b"a", 10)]
    assert both.pieces == [(b"", b"m", 5), (b"m", None, 9)], "a cursor saved now repeats nothing"
    both.taken(Push(both, 0, [], 7, False))
    assert both.pieces == [(b"", b"m", 7), (b"m", None, 9)]
    both.taken(Push(both, 0, [], 9, True))
    assert both.pieces == [(b"", None, 9)]


def test_a_joined_span_is_cut_with_all_that_its_parts_had() -> None:
    both = joined(joined(span(b"", b"g", 5), span(b"g", b"m", 9)), span(b"m", None, 7))
    assert both.pieces == [(b"", b"g", 5), (b"g", b"m", 9), (b"m", None, 7)]
    rest = both.cut_at(b"h")
    assert both.pieces == [(b"", b"g", 5), (b"g", b"h", 9)]
    assert rest.pieces == [(b"h", b"m", 9), (b"m", None, 7)]


def test_spans_are_joined_only_when_the_caller_has_had_all_of_both() -> None:
    left, right = span(b"", b"m", 5), span(b"m", None, 9)
    assert may_join(left, right)
    assert may_join(right, left)
    right.next = 10
    assert not may_join(left, right)
    for other in (span(b"n", None, 5), FollowSpan(b"m", None, 5, reached=5, on=(1, 2))):
        assert not may_join(left, other)
    elsewhere = span(b"m", None, 5)
    elsewhere.on = (2, 2)
    assert not may_join(left, elsewhere)


def test_keys_of_one_range_are_followed_as_one_again() -> None:
    many = {b"%d" % at: 5 for at in range(limits.follow_keys_max)}
    wide = FollowSpan(b"0", None, keys=many, reached_keys=many, caught_up=True)
    one = FollowSpan(b"a", None, keys={b"a": 5}, reached_keys={b"a": 5}, caught_up=True)
    assert not may_join(one, wide), "together they have more keys than a request may have"
    other = FollowSpan(b"x", None, keys={b"x": 9}, reached_keys={b"x": 9}, caught_up=True)
    assert may_join(one, other)
    both = joined(other, one)
    assert both.keys == both.reached_keys == {b"a": 5, b"x": 9}
    one.keys = {b"a": 6}
    assert not may_join(one, other), "an entry is on its way to the caller"


def test_keys_of_one_range_stay_apart_beyond_what_one_request_may_name() -> None:
    half = limits.follow_keys_max // 2

    def span(first: int, count: int) -> FollowSpan:
        keys = {b"%08d" % n: 1 for n in range(first, first + count)}
        return FollowSpan(
            min(keys), None, keys=keys, reached_keys=dict(keys), caught_up=True, on=(1, 1)
        )

    assert may_join(span(0, half), span(half, half))
    assert not may_join(span(0, half), span(half, half + 1))


@pytest.mark.parametrize("seed", range(200))
def test_every_entry_comes_once_however_spans_are_cut_and_joined(seed: int) -> None:
    rng = random.Random(seed)
    keys = [bytes([letter]) for letter in b"abcdefgh"]
    entries = [entry(rng.choice(keys), seq) for seq in range(1, 80)]
    spans = [span(b"", None, 1)]
    taken: list[Entry] = []
    end = 1
    for _ in range(60):
        end = min(80, end + rng.randrange(4))
        which = rng.choice(spans)
        how = rng.randrange(4)
        if how == 0:
            boundary = rng.choice(keys)
            if which.start < boundary and (which.end is None or boundary < which.end):
                spans.append(which.cut_at(boundary))
        elif how == 1:
            others = [other for other in spans if other is not which and may_join(which, other)]
            if others:
                spans = [each for each in spans if each not in (which, others[0])]
                spans.append(joined(which, others[0]))
                spans[-1].on = (1, 2)
        else:
            page = [
                e for e in entries[which.next - 1 : end - 1]
                if which.start <= e.key and (which.end is None or e.key < which.end)
            ]  # fmt: skip
            page = page[: rng.randrange(1, 5)]
            following = page[-1].seq + 1 if page and rng.random() < 0.5 else None
            if following is None:
                page = [
                    e for e in entries[which.next - 1 : end - 1]
                    if which.start <= e.key and (which.end is None or e.key < which.end)
                ]  # fmt: skip
                following = max(end, which.next)
            fresh = which.fresh(page)
            push = Push(which, len(which.rests), fresh, following, True)
            which.next = following
            which.taken(push, push.cuts)
            taken += fresh
        if rng.random() < 0.1:  # the process ends, and goes on from its cursor
            pieces = [piece for each in spans for piece in each.pieces]
            spans = [span(*piece) for piece in pieces]
    for each in spans:
        page = [
            e for e in entries[each.next - 1 :]
            if each.start <= e.key and (each.end is None or e.key < each.end)
        ]  # fmt: skip
        taken += each.fresh(page)
    assert sorted((e.seq, e.key) for e in taken) == [(e.seq, e.key) for e in entries]
    for key in keys:
        seqs = [e.seq for e in taken if e.key == key]
        assert seqs == sorted(seqs)
