"""The checker of consumer groups without an order: each entry stands for itself."""

from collections.abc import Callable

import pytest
from hand_history import Story
from judging import judged

from lognode.chaos.verdict import Anomaly, Result

A, B = 3, 4
"""The processes of two consumers."""


def _story(ordering: str = "none") -> Story:
    """Three entries of one key; consumers have the first two at the same time."""
    story = Story()
    story.ordering = ordering
    for number in (1, 2, 3):
        story.append(f"p1-{number}", number)
    story.take(A, (1, [1]))
    story.take(B, (2, [2]))
    return story


def _judged(story: Story, left: int = 0, **parked: int) -> Result:
    """Let a consumer wait in vain, and an operator look at the group; then judge."""
    story.take(B)
    story.group(left, **parked)
    story.end()
    return judged("group", story)


def _done(story: Story, *seqs: int) -> None:
    """Hand entries out to A under tokens of their own, and acknowledge them."""
    for seq in seqs:
        story.take(A, (10 + seq, [seq]))
        story.settle(A, "ack", 10 + seq, seq)


def _in_any_order(story: Story) -> None:
    story.settle(B, "ack", 2, 2)
    _done(story, 3)
    story.settle(A, "ack", 1, 1)


def test_entries_of_a_key_may_be_done_in_any_order_only_without_an_order() -> None:
    story = _story()
    _in_any_order(story)
    result = _judged(story)
    assert result.verdict == "valid", result
    assert result.counts["acknowledged entries"] == 3
    story = _story("key")
    _in_any_order(story)
    found = {each.name for each in _judged(story).anomalies}
    assert {"passed", "out-of-order"} <= found


def test_outputs_of_a_key_may_come_in_any_order_only_without_an_order() -> None:
    def names(ordering: str) -> set[str]:
        story = _story(ordering)
        story.transform(B, 2, {2: ("p4-1", 10)})
        story.transform(A, 1, {1: ("p3-1", 11)})
        _done(story, 3, 10, 11)
        return {each.name for each in _judged(story).anomalies}

    assert "made-out-of-order" not in names("none")
    assert "made-out-of-order" in names("key")


def test_a_rejected_entry_stays_alone_until_an_operator_lets_it_go_on() -> None:
    story = _story()
    story.settle(A, "reject", 1)
    story.settle(B, "reject", 2)
    _done(story, 3)
    story.decide("skip", through=2)
    story.decide("retry")
    _done(story, 1)
    result = _judged(story)
    assert result.verdict == "valid", result
    story = _story()
    story.settle(A, "reject", 1)
    story.settle(B, "ack", 2, 2)
    _done(story, 3)
    assert _judged(story, 1, k=1).verdict == "valid"


def _again(story: Story) -> None:
    story.settle(A, "ack", 1, 1)
    story.settle(B, "ack", 2, 2)
    _done(story, 3, 2)


def _with_an_old_token(story: Story) -> None:
    story.settle(B, "ack", 2, 2)
    story.take(B, (3, [1]))
    story.settle(A, "ack", 1, 1)
    _done(story, 3)


def _rejected_and_delivered(story: Story) -> None:
    story.settle(A, "reject", 1)
    story.settle(B, "ack", 2, 2)
    story.decide("skip", through=2)  # of another entry
    _done(story, 3, 1)


def _left(story: Story) -> None:
    story.settle(B, "ack", 2, 2)
    _done(story, 3)


@pytest.mark.parametrize(
    ("break_", "name", "promise"),
    [
        (_again, "again", "G3"),
        (_with_an_old_token, "stale-token", "G1"),
        (_rejected_and_delivered, "parked-delivered", "G2"),
        (_left, "undelivered", "G4"),
    ],
    ids=["again", "old-token", "rejected", "left"],
)
def test_G1_to_G4_an_entry_that_breaks_a_promise_is_found(
    break_: Callable[[Story], None], name: str, promise: str
) -> None:
    story = _story()
    break_(story)
    anomalies: dict[str, Anomaly] = {each.name: each for each in _judged(story).anomalies}
    assert name in anomalies
    assert anomalies[name].promise == promise
    assert "seq" in str(anomalies[name].key)


@pytest.mark.parametrize("told", [(1, {}), (2, {"k": 1})], ids=str)
def test_G6_a_group_that_counts_other_entries_is_invalid(told: tuple[int, dict[str, int]]) -> None:
    story = _story()
    story.settle(A, "reject", 1)
    story.settle(B, "ack", 2, 2)
    _done(story, 3)
    left, parked = told
    assert "wrong-lag" in {each.name for each in _judged(story, left, **parked).anomalies}
