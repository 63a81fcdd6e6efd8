"""The descriptor cache never goes back, and the retry policy row by row.

The rules are those of docs/design/ranges.md#routing.
"""

import os
import random

import pytest

from lognode.client.cluster import Cluster
from lognode.client.protocol.errors import (
    Fenced,
    GenerationMismatch,
    LimitExceeded,
    LognodeError,
    NotLeader,
    OutOfOrder,
    Overloaded,
    RangeNotFound,
    Sealed,
    SequenceMismatch,
    Timeout,
    Unauthorized,
    Unavailable,
    from_wire,
    to_wire,
)
from lognode.client.retry import Attempts, Next
from lognode.client.routing import Range, RangeTable


def r(
    range_id: int, generation: int, start: bytes, end: bytes | None, leader: int | None = None
) -> Range:
    return Range(range_id, generation, 1, start, end, (1, 2, 3), leader)


def test_find_knows_spans_and_holes() -> None:
    table = RangeTable()
    table.insert_all([r(1, 1, b"", b"g"), r(2, 1, b"m", None)])
    assert table.find(b"") is table.ranges[0]
    assert table.find(b"f\xff") is table.ranges[0]
    assert table.find(b"g") is None
    assert table.find(b"m") is table.ranges[1]
    assert not table.covers()
    assert table.covers(b"", b"g")
    assert table.covers(b"z")
    assert not table.covers(b"a", b"h")


def test_x26_a_descriptor_enters_only_when_newer_than_all_that_it_overlaps() -> None:
    table = RangeTable()
    table.insert_all([r(1, 5, b"", b"m"), r(9, 7, b"m", None)])
    assert not table.insert(r(1, 6, b"", None))  # the child of a merge is at 1 + the larger
    assert table.insert(r(1, 8, b"", None))
    assert not table.insert(r(9, 7, b"m", None))  # and the parent does not come back
    assert [known.range_id for known in table] == [1]


def test_a_descriptor_of_the_same_age_does_not_enter() -> None:
    table = RangeTable()
    table.insert(r(1, 2, b"", None))
    assert not table.insert(r(7, 2, b"m", None))
    assert len(table) == 1


def test_the_same_generation_renews_the_leader_only() -> None:
    table = RangeTable()
    table.insert(r(1, 1, b"", None, leader=1))
    ranges = table.ranges
    assert not table.insert(r(1, 1, b"", None, leader=2))
    assert table.ranges is ranges  # lanes of the sender depend on it
    assert table.ranges[0].leader == 2
    table.insert(r(1, 1, b"", None, leader=None))
    assert table.ranges[0].leader == 2


def test_the_same_generation_enters_with_more_keys_of_the_client() -> None:
    """A client that may not use every key sees bounds that are cut to its keys."""
    table = RangeTable()
    table.insert_all([r(1, 1, b"c", b"d", leader=1), r(2, 1, b"m", b"n")])
    assert not table.insert(r(1, 1, b"c5", b"d")), "fewer keys bring nothing new"
    assert table.insert(r(1, 1, b"a", b"d", leader=2))
    assert [(known.start, known.end, known.leader) for known in table] == [
        (b"a", b"d", 2), (b"m", b"n", None),
    ]  # fmt: skip
    assert table.insert(r(2, 1, b"m", None))
    assert not table.insert(r(1, 1, b"", None)), "the other range has keys there"
    assert table.insert(r(1, 2, b"", b"d"))
    assert not table.insert(r(1, 1, b"a", b"d"))


def test_random_orders_of_arrival_end_in_the_newest_cover() -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        live, history, next_id = [r(1, 1, b"", None)], [r(1, 1, b"", None)], 2
        for _ in range(rng.randrange(1, 12)):
            if len(live) > 1 and rng.random() < 0.4:
                at = rng.randrange(len(live) - 1)
                left, right = live[at], live[at + 1]
                generation = 1 + max(left.generation, right.generation)
                live[at : at + 2] = [r(left.range_id, generation, left.start, right.end)]
                history.append(live[at])
            else:
                at = rng.randrange(len(live))
                parent = live[at]
                key = parent.start + bytes((rng.randrange(1, 255),))
                if not parent.contains(key):
                    continue
                children = [
                    r(parent.range_id, parent.generation + 1, parent.start, key),
                    r(next_id, parent.generation + 1, key, parent.end),
                ]
                next_id += 1
                live[at : at + 1] = children
                history += children
        arrivals = history + rng.sample(history, len(history) // 2)
        rng.shuffle(arrivals)
        table = RangeTable()
        table.insert_all(arrivals)
        table.insert_all(live)
        assert table.ranges == live


def answered(error: LognodeError) -> LognodeError:
    """The error as a node sends it."""
    return from_wire(to_wire(error))


def attempts(seconds: float = 10.0) -> Attempts:
    return Attempts("append", seconds, writes=True, rng=random.Random(1))


def test_a_hint_is_followed_at_once_but_not_for_ever() -> None:
    calls = attempts()
    assert calls.failed(NotLeader("", hint=2), 0.0) == Next()
    assert calls.failed(NotLeader("", hint=1), 0.0) == Next()
    third = calls.failed(NotLeader("", hint=2), 0.0)
    assert third.delay_s > 0
    assert third.refresh


def test_without_a_hint_the_next_member_and_a_doubling_pause() -> None:
    calls = attempts()
    steps = [calls.failed(NotLeader("", hint=None), 0.0) for _ in range(8)]
    assert all(step.elsewhere for step in steps)
    assert [step.refresh for step in steps[:6]] == [False, False, True, False, False, True]
    assert 0.03 <= steps[0].delay_s <= 0.07
    assert steps[7].delay_s > 4 * steps[0].delay_s
    assert max(step.delay_s for step in steps) <= 1.25


def test_newer_descriptors_are_followed_at_once_older_servers_left() -> None:
    assert attempts().failed(GenerationMismatch(""), 0.0, news=True) == Next()
    assert attempts().failed(Sealed(""), 0.0, news=True) == Next()
    step = attempts().failed(GenerationMismatch(""), 0.0)
    assert step.elsewhere
    assert step.delay_s > 0


def test_sealed_waits_little_and_refreshes() -> None:
    calls = attempts()
    steps = [calls.failed(Sealed(""), 0.0) for _ in range(8)]
    assert steps[0] == Next(0.01, refresh=True)
    assert steps[-1].delay_s == 0.2


def test_range_not_found_drops_the_entry() -> None:
    assert attempts().failed(RangeNotFound(""), 0.0) == Next(0.0, refresh=True, drop=True)


def test_overloaded_waits_as_told() -> None:
    assert attempts().failed(Overloaded("", retry_after=0.7), 0.0) == Next(0.7)


@pytest.mark.parametrize("cls", [Fenced, LimitExceeded, Unauthorized, SequenceMismatch])
def test_fatal_errors_end_the_call(cls: type[LognodeError]) -> None:
    with pytest.raises(cls) as caught:
        attempts().failed(cls("no"), 0.0)
    assert caught.value.outcome == "not_applied"


@pytest.mark.parametrize("first", [Timeout("t"), Unavailable("lost", outcome="unknown")])
def test_S11_x18_once_unknown_a_refusal_does_not_settle_it(first: LognodeError) -> None:
    calls = attempts()
    assert calls.failed(first, 0.0).elsewhere
    with pytest.raises(SequenceMismatch) as caught:
        calls.failed(SequenceMismatch("no"), 0.0)
    assert caught.value.outcome == "unknown"


def test_S11_the_deadline_reports_the_worst_outcome() -> None:
    calls = attempts(1.0)
    calls.failed(NotLeader("", hint=2), 0.0)
    with pytest.raises(Timeout) as caught:
        calls.failed(NotLeader("", hint=None), 0.99)
    assert caught.value.outcome == "not_applied"
    calls = attempts(1.0)
    calls.failed(Timeout("t"), 0.0)
    with pytest.raises(Timeout) as caught:
        calls.failed(NotLeader("", hint=None), 0.99)
    assert caught.value.outcome == "unknown"


def test_a_read_is_never_applied() -> None:
    calls = Attempts("scan", 1.0, writes=False)
    with pytest.raises(LognodeError) as caught:
        calls.failed(Timeout("t"), 1.0)
    assert caught.value.outcome == "not_applied"


def test_nobody_reachable_says_so_instead_of_timing_out() -> None:
    with pytest.raises(Unavailable, match="refused"):
        attempts(1.0).failed(Unavailable("h:1: Connection refused"), 1.0)


def test_S11_no_attempt_begins_that_the_deadline_would_cut_off() -> None:
    """The outcome of the last attempt was unknown, after answers that nothing was changed."""
    call = attempts(10.0)
    call.failed(answered(Unavailable("no leader")), 8.0, took_s=1.5)
    with pytest.raises(Unavailable, match="no leader") as caught:
        call.failed(answered(Unavailable("no leader")), 8.6, took_s=1.5)
    assert caught.value.outcome == "not_applied"


@pytest.mark.parametrize(
    "error", [Unavailable("no leader"), answered(NotLeader("", hint=None))], ids=["silence", "hint"]
)
def test_a_last_attempt_begins_where_its_length_says_nothing(error: LognodeError) -> None:
    call = attempts(10.0)
    call.failed(error, 9.0, took_s=1.5)
    unsure = attempts(10.0)
    unsure.failed(Timeout("t"), 0.5)
    unsure.failed(answered(Unavailable("no leader")), 9.0, took_s=1.5)  # it stays unknown anyhow
    read = Attempts("status", 10.0, writes=False)
    read.failed(answered(Unavailable("no leader")), 9.0, took_s=1.5)
    slow = attempts(10.0)
    slow.failed(answered(Unavailable("no leader")), 7.0, took_s=6.0)  # another may be quicker


def test_an_answer_says_more_than_the_silence_of_other_members() -> None:
    silence = Unavailable("h:1: Connection refused")
    call = attempts(1.0)
    call.failed(answered(NotLeader("node 3 knows no live leader", hint=None)), 0.1)
    with pytest.raises(Timeout, match="after 2 attempts; the last error: node 3 knows no live"):
        call.failed(silence, 1.0)
    led = attempts(1.0)
    led.failed(answered(NotLeader("node 3 knows no live leader", hint=None)), 0.1)
    led.failed(answered(NotLeader("node 2 does not lead", hint=1)), 0.2)
    with pytest.raises(Unavailable, match="refused"):
        led.failed(silence, 1.0)


def test_out_of_order_tries_again_at_once_then_waits() -> None:
    calls = attempts()
    assert calls.failed(OutOfOrder("", number=3), 0.0) == Next()
    assert calls.failed(OutOfOrder("", number=3), 0.0).delay_s > 0


def test_attempts_wait_longer_each_time_never_past_the_deadline() -> None:
    calls = attempts(5.0)
    assert calls.attempt_deadline(0.0) == 2.0
    calls.failed(Timeout("t"), 2.0)
    assert calls.attempt_deadline(2.0) == 5.0


def test_calls_that_fail_together_do_not_wait_for_each_other() -> None:
    """One of them has learnt the successors: the next, refused in the same way, goes there too,
    and takes no member for one that did not answer."""
    cluster = Cluster([])
    log = cluster.log("a")
    log.log_id = 1
    parent, *children = (
        Range(number, generation, 1, start, end, (1, 2, 3))
        for number, generation, start, end in (
            (1, 1, b"", None), (1, 2, b"", b"m"), (2, 2, b"m", None),
        )
    )  # fmt: skip
    wire = [
        {"id": each.range_id, "generation": 2, "log": 1, "start": each.start, "end": each.end,
         "members": each.members}
        for each in children
    ]  # fmt: skip
    log.table.insert(parent)
    assert not cluster.heed(log, parent, 1, Sealed("")), "nobody knows a successor yet"
    assert not cluster.heed(log, parent, 1, GenerationMismatch("", ranges=[])), "an older server"
    for _ in range(2):
        assert cluster.heed(log, parent, 1, GenerationMismatch("", ranges=wire))
    assert cluster.heed(log, parent, 1, Sealed(""))
    assert list(log.table) == children
    assert not cluster.heed(log, children[0], 1, GenerationMismatch("", ranges=wire))
