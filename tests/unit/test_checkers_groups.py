"""The checker of consumer groups: good histories, and each anomaly."""

from collections.abc import Callable

import pytest
from hand_history import Story
from judging import judged

from lognode.chaos.verdict import Anomaly, Result

A, B = 3, 4
"""The processes of two consumers."""
Tell = Callable[[Story], None]


def _judged(story: Story) -> Result:
    story.end()
    return judged("group", story)


def _story(entries: int = 3, key: str = "k") -> Story:
    story = Story()
    for number in range(1, entries + 1):
        story.append(f"p1-{number}", number, key)
    return story


def _ended(story: Story, left: int = 0, **parked: int) -> Story:
    """Let a consumer wait in vain, and an operator look at the group."""
    story.take(B)
    story.group(left, **parked)
    return story


def _anomalies(story: Story) -> dict[str, Anomaly]:
    return {one.name: one for one in reversed(_judged(story).anomalies)}


def _good(story: Story) -> None:
    result = _judged(story)
    assert result.verdict == "valid", (result.anomalies, result.unknown)


def test_a_group_that_does_each_entry_once_in_order_is_valid() -> None:
    story = _story()
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 1)
    story.settle(A, "ack", 1, 2)
    story.take(B, (2, [3]))
    story.settle(B, "ack", 2, 3)
    result = _judged(_ended(story))
    assert result.verdict == "valid", result
    assert result.counts["acknowledged entries"] == 3
    assert result.counts["batches"] == 2


def test_entries_that_were_not_acknowledged_may_come_again() -> None:
    """After a release, a failure, a lease that ended, and a refused acknowledgement."""
    story = _story()
    story.take(A, (1, [1, 2, 3]))
    story.settle(A, "release", 1)
    story.take(B, (2, [1, 2]))
    story.settle(B, "fail", 2)
    story.take(A, (3, [1]), deliveries=2)
    story.take(B, (4, [1, 2, 3]))
    story.settle(A, "ack", 3, 1, refused=True)
    story.settle(A, "extend", 3, type="fail")
    story.settle(B, "ack", 4, 3)
    result = _judged(_ended(story))
    assert result.verdict == "valid", result
    assert result.counts["refused settles"] == 2
    assert result.counts["deliveries after a failure"] == 1


def test_an_acknowledgement_without_an_answer_may_have_happened_or_not() -> None:
    story = _story(2)
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 2, type="info")
    _good(_ended(story))
    story = _story(2)
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 2, type="info")
    story.take(B, (2, [1, 2]))
    story.settle(B, "ack", 2, 2)
    _good(_ended(story))


def test_an_old_batch_may_arrive_late() -> None:
    """Another consumer has acknowledged the entries meanwhile, under a newer token."""
    story = _story(2)
    story.event(A, "invoke", "take", {})
    story.take(B, (2, [1, 2]))
    story.settle(B, "ack", 2, 2)
    story.event(A, "ok", "take", {"batches": [["k", 1, 1, [[1, "p1-1"], [2, "p1-2"]]]]})
    story.settle(A, "ack", 1, 2, refused=True)
    _good(_ended(story))


def test_a_parked_key_waits_and_goes_on() -> None:
    """Another key goes on meanwhile; entries that an operator skips are done."""
    story = _story()
    story.append("p1-4", 4, "other")
    story.take(A, (1, [1, 2, 3]))
    story.take(A, (1, [4]), key="other")
    story.settle(A, "reject", 1)
    story.settle(A, "ack", 1, 4, "other")
    story.decide("retry")
    story.take(B, (2, [1]))
    story.settle(B, "reject", 2)
    story.decide("skip", through=1)
    story.take(B, (3, [2]))
    story.settle(B, "ack", 3, 2)
    story.take(B, (4, [3]))
    story.settle(B, "reject", 4)
    _good(_ended(story, 1, k=3))


def _twice(story: Story) -> None:
    """Both have a token, and both acknowledgements are accepted."""
    story.take(A, (1, [1, 2]))
    story.event(A, "invoke", "settle", {"items": [["ack", "k", 1, 1]]})
    story.take(B, (2, [1, 2]))
    story.settle(B, "ack", 2, 2)
    story.event(A, "ok", "settle", {"refused": []})


def _stale(story: Story) -> None:
    """A was paused for longer than its lease, and B has the key."""
    story.take(A, (1, [1, 2]))
    story.take(B, (2, [1, 2]))
    story.settle(A, "ack", 1, 2)


def _stale_release(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.take(B, (2, [1, 2]))
    story.settle(A, "release", 1)
    story.settle(B, "ack", 2, 2)


def _one_token(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.take(B, (1, [1, 2]))
    story.settle(B, "ack", 1, 2)


def _out_of_order(story: Story) -> None:
    """Two consumers have the key at a time, and the later entry is done first."""
    story.take(A, (1, [1]))
    story.take(B, (2, [2]))
    story.settle(B, "ack", 2, 2)
    story.settle(A, "ack", 1, 1)


def _skipped(story: Story) -> None:
    """The first entry never comes."""
    story.take(A, (1, [2]))
    story.settle(A, "ack", 1, 2)


def _skipped_after_a_refusal(story: Story) -> None:
    """The group has moved on by an acknowledgement that it had refused."""
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1, refused=True)
    story.take(B, (2, [2]))
    story.settle(B, "ack", 2, 2)


def _skipped_after_a_failure(story: Story) -> None:
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1, type="fail")
    story.take(B, (2, [2]))
    story.settle(B, "ack", 2, 2)


def _again(story: Story) -> None:
    """The leader after a change does not know the acknowledgement."""
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 2)
    story.take(B, (2, [2]))


def _again_in_part(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 1)
    story.settle(A, "release", 1)
    story.take(B, (2, [1, 2]))
    story.settle(B, "release", 2)
    story.take(B, (3, [2]))
    story.settle(B, "ack", 3, 2)


def _parked_delivered(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1)
    story.take(B, (2, [1, 2]))
    story.settle(B, "ack", 2, 2)


def _reordered(story: Story) -> None:
    story.take(A, (1, [2, 1]))
    story.settle(A, "ack", 1, 2)


def _delivered_too_often(story: Story) -> None:
    story.take(A, (1, [1, 2]), deliveries=4)
    story.settle(A, "ack", 1, 2)


def _never_acknowledged(story: Story) -> None:
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 1)


@pytest.mark.parametrize(
    ("tell", "names", "promise"),
    [
        (_twice, {"acked-twice", "again"}, "G1"),
        (_stale, {"stale-token", "again"}, "G1"),
        (_stale_release, {"stale-token"}, "G1"),
        (_one_token, {"token-twice"}, "G1"),
        (_out_of_order, {"out-of-order", "passed", "stale-token"}, "G2"),
        (_skipped, {"out-of-order", "passed", "undelivered"}, "G2"),
        (_skipped_after_a_refusal, {"out-of-order", "passed", "undelivered"}, "G2"),
        (_skipped_after_a_failure, {"out-of-order", "passed", "undelivered"}, "G2"),
        (_again, {"again"}, "G3"),
        (_again_in_part, {"again"}, "G3"),
        (_parked_delivered, {"parked-delivered"}, "G2"),
        (_reordered, {"reorder"}, "G2"),
        (_delivered_too_often, {"too-many-deliveries"}, None),
        (_never_acknowledged, {"undelivered"}, "G4"),
        (lambda _: None, {"undelivered"}, "G4"),
    ],
)
def test_G1_to_G4_a_group_that_breaks_a_promise_is_invalid(
    tell: Tell, names: set[str], promise: str | None
) -> None:
    story = _story(2)
    tell(story)
    found = _anomalies(_ended(story))
    assert set(found) == names
    first = found[min(names, key=lambda name: found[name].promise != promise)]
    assert first.promise == promise
    assert first.key == "k"
    assert first.operations


def test_G2_a_batch_with_a_gap_is_invalid() -> None:
    story = _story(3)
    story.take(A, (1, [1, 3]))
    story.settle(A, "ack", 1, 3)
    assert set(_anomalies(_ended(story))) == {"gap", "out-of-order", "undelivered"}


def test_G5_a_key_that_stands_while_another_is_parked_is_invalid() -> None:
    story = _story(2)
    story.append("p1-3", 3, "other")
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1)
    found = _anomalies(_ended(story, 2, k=1))
    assert set(found) == {"held-up"}
    assert found["held-up"].key == "other"
    assert found["held-up"].promise == "G5"


@pytest.mark.parametrize("told", [(1, {"k": 1}), (2, {}), (0, {"k": 2}), (2, {"k": 1, "x": 9})])
def test_G6_a_group_that_counts_other_entries_is_invalid(told: tuple[int, dict[str, int]]) -> None:
    story = _story(2)
    story.take(A, (1, [1, 2]))
    story.settle(A, "reject", 1)
    story.take(B)
    entries, parked = told
    story.group(entries, **parked)
    found = _anomalies(story)
    assert found
    assert set(found) <= {"wrong-lag", "undelivered"}


def test_an_entry_that_no_client_sent_is_a_phantom() -> None:
    story = _story(1)
    story.take(A, (1, [1, 2]))
    story.settle(A, "ack", 1, 2)
    assert "phantom" in _anomalies(_ended(story))


def test_a_group_that_nobody_looked_at_in_the_end_is_unknown() -> None:
    story = _story(1)
    story.take(B)
    result = _judged(story)
    assert not result.anomalies
    assert "at the end are unknown" in result.unknown[0]


def test_a_group_whose_consumers_did_not_wait_is_unknown() -> None:
    story = _story(1)
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1, type="info")
    story.take(B, ends=False)
    story.group()
    result = _judged(story)
    assert not result.anomalies
    assert "no consumer waited" in result.unknown[0]


def test_a_consumer_that_waited_before_the_last_append_proves_nothing() -> None:
    story = Story()
    story.take(B)
    story.append("p1-1", 1)
    story.group()
    assert _judged(story).verdict == "unknown"


def _slow(story: Story, *, waiting: int, in_vain: bool) -> None:
    """A consumer holds key `other` for 20 s, and another one asks."""
    story.append("p1-9", 9, "other")
    story.take(A, (7, [9]), key="other")
    lag = {"waiting": 1, "in_flight": 1}
    story.do(A, "hold", {"keys": ["other"]}, lag)
    if in_vain:
        story.event(B, "invoke", "take", {}, after_ms=16_000)
        story.event(B, "ok", "take", {"batches": []})
    story.do(A, "hold", {"keys": ["other"]}, lag | {"waiting": waiting})


def test_G5_a_key_that_waits_while_a_slow_consumer_holds_another_is_found() -> None:
    story = _story(1)
    _slow(story, waiting=1, in_vain=True)
    (anomaly,) = _judged(story).anomalies
    assert (anomaly.name, anomaly.promise) == ("held-up", "G5")
    assert anomaly.message.endswith("while a slow consumer held other")


@pytest.mark.parametrize(("waiting", "in_vain"), [(0, True), (1, False)])
def test_a_slow_consumer_may_hold_a_key_while_the_others_finish(
    waiting: int, in_vain: bool
) -> None:
    """Without another consumer that asks, keys that wait prove nothing."""
    story = _story(1)
    _slow(story, waiting=waiting, in_vain=in_vain)
    result = _judged(story)
    assert not result.anomalies
    assert result.counts["slow consumers that held only their own keys up"] == (waiting == 0)
