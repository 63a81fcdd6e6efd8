"""`scripts/bench follow`: each delivery is checked; what is skipped or repeated is counted."""

import time

import pytest
from benchmarks.follow.delivered import Delivered
from benchmarks.follow.plan import Plan, Records
from benchmarks.stamps import Stamps

from lognode import CorruptData
from lognode.client.bench.shape import Shape

STAMPS = Stamps(100, 1_024)
KEY = STAMPS.key(7)


def value(nth: int, due: float = 0.0) -> bytes:
    return STAMPS.value(KEY, nth, due)


def plan(**more: int) -> Plan:
    return Plan(
        "lognode", "each", [], more.get("keys", 100), 128, more.get("followers", 10), 1, 100.0, 10,
        1.0, 0.0, 4, more.get("appenders", 1), 1.0,
    )  # fmt: skip


def test_P4_skipped_and_repeated_entries_are_counted() -> None:
    delivered = Delivered(STAMPS, [KEY], 0.0)
    for nth in (0, 1, 2, 1, 2, 3, 6, 7, 5, 8):
        delivered.take(KEY, value(nth, time.perf_counter()))
    report = delivered.report(expected=9)
    assert (delivered.count, report["timed"]) == (7, 7)
    assert (report["skipped"], report["out of order"], report["repeated"]) == (2, 2, 3)


def test_P4_a_record_that_never_comes_is_skipped() -> None:
    delivered = Delivered(STAMPS, [KEY], 0.0)
    delivered.take(KEY, value(0))
    assert delivered.report(expected=3)["skipped"] == 2


def test_latency_counts_from_due_and_leaves_the_warm_up_out() -> None:
    delivered = Delivered(STAMPS, [KEY], 1.0)
    begun = time.perf_counter() - 10.0
    delivered.take(KEY, value(0, begun))
    delivered.take(KEY, value(1, begun + 0.9))
    delivered.take(KEY, value(2, begun + 2.0))
    report = delivered.report(expected=3)
    assert (report["deliveries"], report["timed"]) == (3, 1)
    assert report["latency_ms"]["p50"] >= 8_000


@pytest.mark.parametrize(
    "wrong",
    [None, b"", value(0)[:-1], STAMPS.value(STAMPS.key(8), 0, 0.0), b"x" * 1_024,
     value(0)[:500] + b"z" + value(0)[501:]],
)  # fmt: skip
def test_a_value_that_nobody_appended_fails_the_run(wrong: bytes | None) -> None:
    delivered = Delivered(STAMPS, [KEY], 0.0)
    with pytest.raises(CorruptData):
        delivered.take(KEY, wrong)


def test_a_place_is_found_where_fills_come_round_again() -> None:
    round_again = Shape(100, value_bytes=1_000).fills
    for nth, near in (
        (0, 0),
        (0, 3),
        (5, 0),
        (round_again, round_again - 1),
        (round_again - 1, round_again),
        (3 * round_again + 2, 3 * round_again),
    ):
        assert STAMPS.nth(KEY, value(nth), near) == nth


def test_appenders_share_the_keys_and_know_which_are_followed() -> None:
    """Three appenders together append to every key, each to its own; the places of a key's records
    are consecutive."""
    shared = plan(keys=100, followers=10, appenders=3)
    followed = {shared.stamps.key(number) for number in shared.followed()}
    assert len(followed) == 10
    seen: dict[bytes, int] = {}
    keys_of = []
    for appender in range(3):
        records = Records(shared, appender)
        drawn = records.draw(2_000, 1.5)
        assert records.to_followed == sum(key in followed for key, _ in drawn)
        for key, each in drawn:
            nth = seen.get(key, 0)
            assert shared.stamps.due(key, nth, each) == 1.5
            seen[key] = nth + 1
        keys_of.append({key for key, _ in drawn})
    assert sum(map(len, keys_of)) == len(set.union(*keys_of)) == 100
    assert Plan.from_text(shared.to_text()) == shared
