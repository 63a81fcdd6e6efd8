"""The checker of appends that wait for views: good histories, and each anomaly."""

from collections.abc import Callable
from typing import Any

import pytest
from hand_history import Story

from lognode.chaos.checkers.account import Account
from lognode.chaos.checkers.views import views
from lognode.chaos.verdict import Anomaly, Result

PRODUCER, A, B, KEEPER = 1, 3, 4, 5
GROUP = {"group": True, "cursor": False}
CURSOR = {"group": False, "cursor": True}


class _Story(Story):
    """Appends of one record that wait for both views."""

    def begin(self, value: str, wait_ms: int = 100) -> None:
        asked = self.asked(value) | {
            "wait_for": ["group", "cursor"], "wait_ms": wait_ms, "timeout_ms": 5_000,
        }  # fmt: skip
        self.event(PRODUCER, "invoke", "append", asked)

    def told(self, seq: int, seen: dict[str, bool], after_ms: int = 1) -> None:
        answer = {"seqs": [seq], "seen": [seen]}
        self.event(PRODUCER, "ok", "append", answer, after_ms=after_ms)

    def commit(self, next_: int, *, type: Any = "ok") -> None:  # noqa: A002
        self.do(KEEPER, "commit", {"spans": [["", "m", next_], ["m", None, 1]]}, {}, type=type)

    def positions(self, next_: int, **keys: int) -> None:
        answer = {"spans": [["", "m", next_], ["m", None, 1]], "keys": [*map(list, keys.items())]}
        self.do(KEEPER, "positions", {}, answer)


def _judged(story: Story) -> Result:
    result = Result("view")
    views(Account(story.history), result)
    return result


def _seen_by_both() -> _Story:
    story = _Story()
    story.begin("p1-1")
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1)
    story.commit(2)
    story.told(1, {"group": True, "cursor": True})
    return story


def test_an_entry_that_both_views_had_acknowledged_is_valid() -> None:
    story = _seen_by_both()
    story.positions(2)
    result = _judged(story)
    assert result.verdict == "valid", result
    assert result.counts["entries seen by the group"] == 1
    assert result.counts["entries seen by the cursor"] == 1


def test_false_is_always_allowed_and_proves_nothing() -> None:
    story = _Story()
    story.begin("p1-1")
    story.told(1, {"group": False, "cursor": False})
    result = _judged(story)
    assert not result.anomalies
    assert len(result.unknown) == 2
    assert result.counts["entries not seen in time"] == 2


def test_attempts_without_an_answer_may_have_been_seen() -> None:
    story = _Story()
    story.begin("p1-1")
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1, type="info")
    story.commit(2, type="info")
    story.told(1, {"group": True, "cursor": True})
    assert not _judged(story).anomalies


def test_an_entry_that_an_operator_has_skipped_counts_as_seen() -> None:
    story = _Story()
    story.begin("p1-1")
    story.take(A, (1, [1]))
    story.settle(A, "reject", 1)
    story.decide("skip", through=1)
    story.told(1, GROUP)
    assert not _judged(story).anomalies


def test_a_position_of_the_key_alone_is_enough() -> None:
    story = _seen_by_both()
    story.positions(1, k=2)
    assert not _judged(story).anomalies


def _nobody_acknowledged(story: _Story) -> None:
    story.begin("p1-1")
    story.take(A, (1, [1]))
    story.told(1, GROUP)
    story.settle(A, "ack", 1, 1)


def _the_acknowledgement_was_refused(story: _Story) -> None:
    story.begin("p1-1")
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1, refused=True)
    story.told(1, GROUP)


def _nobody_committed(story: _Story) -> None:
    story.begin("p1-1")
    story.commit(1)
    story.told(1, CURSOR)
    story.commit(2)


def _delivered_after_seen(story: _Story) -> None:
    story.begin("p1-1")
    story.take(A, (1, [1]))
    story.settle(A, "ack", 1, 1, type="info")
    story.told(1, GROUP)
    story.take(B, (2, [1]))


def _the_cursor_is_back(story: _Story) -> None:
    story.begin("p1-1")
    story.commit(2)
    story.told(1, CURSOR)
    story.positions(1)


def _blocked_without_faults(story: _Story) -> None:
    story.begin("p1-1")
    story.told(1, {"group": False, "cursor": False}, after_ms=3_200)


def _blocked_during_a_fault(story: _Story) -> None:
    story.fault("kill", [1])
    story.begin("p1-1")
    story.told(1, {"group": False, "cursor": False}, after_ms=8_200)


@pytest.mark.parametrize(
    ("tell", "name"),
    [
        (_nobody_acknowledged, "seen-too-soon"),
        (_the_acknowledgement_was_refused, "seen-too-soon"),
        (_nobody_committed, "seen-too-soon"),
        (_delivered_after_seen, "seen-again"),
        (_the_cursor_is_back, "seen-lost"),
        (_blocked_without_faults, "waited-long"),
        (_blocked_during_a_fault, "waited-long"),
    ],
)
def test_G7_an_anomaly_is_found(tell: Callable[[_Story], None], name: str) -> None:
    story = _Story()
    tell(story)
    found: list[Anomaly] = _judged(story).anomalies
    assert [(one.name, one.promise) for one in found] == [(name, "G7")]


def test_a_fault_allows_the_timeout_of_the_append() -> None:
    story = _Story()
    story.fault("kill", [1])
    story.begin("p1-1")
    story.told(1, {"group": False, "cursor": False}, after_ms=7_000)
    assert not _judged(story).anomalies
