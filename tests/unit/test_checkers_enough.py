"""A test in which little happened is unknown, and says why."""

from collections.abc import Mapping
from typing import Any

import pytest
from hand_history import Story

from lognode.chaos.checkers import judge
from lognode.chaos.checkers.enough import enough
from lognode.chaos.verdict import merged

TEST: Mapping[str, Any] = {
    "workload": "append", "nemesis": ["kill", "range"], "nodes": 3, "rate": 10.0,
    "time_limit_s": 60,
}  # fmt: skip


def _story(
    *, appends: int = 30, hit: int = 1, last_ms: int = 5_000, package: str = "kill",
    followed: bool = True, nodes: int = 3,
) -> Story:  # fmt: skip
    """A leader is killed, another follows it, and everything is read."""
    story = Story()
    story.leaders({"r1": 1, "r2": 1})
    for number in range(1, appends + 1):
        story.append(f"p1-{number}", number)
    story.fault(package, [hit], last_ms)
    if followed:
        story.leaders({"r1": 2, "r3": 1})
    story.end(nodes)
    return story


def test_enough() -> None:
    result = enough(_story().history, TEST)
    assert (result.verdict, result.unknown) == ("valid", [])
    assert result.counts == {"faults": 1, "elections": 1}


def test_all_checkers_together() -> None:
    results = judge(_story().history, TEST)
    assert [one.checker for one in results] == ["log", "enough"]
    assert merged(results) == "valid"
    assert merged(judge(_story(appends=3).history, TEST)) == "unknown"


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (_story(appends=29), "29 operations succeeded; a verdict needs at least 30"),
        (_story(hit=3, followed=False), "no fault hit a leader, although these were chosen"),
        (_story(package="range"), "no fault hit a leader, although these were chosen: kill"),
        (_story(followed=False), "no election took place, although 1 faults stopped leaders"),
        (_story(nodes=2), "no read of everything at the end from node 3"),
        (_story(nodes=0), "no read of everything at the end from node 1, 2, 3"),
    ],
)
def test_missing_evidence_is_named(story: Story, why: str) -> None:
    result = enough(story.history, TEST)
    assert result.verdict == "unknown"
    assert len(result.unknown) == 1
    assert why in result.unknown[0]


def test_a_fault_that_began_before_its_node_led_has_hit_a_leader() -> None:
    story = Story()
    story.leaders({"r1": 1})
    story.event(None, "info", "partition", {"id": 1, "what": "a fault", "nodes": [2]})
    story.leaders({"r1": 2})
    story.event(None, "info", "partition", {"id": 1})
    assert not any("no fault hit a leader" in why for why in enough(story.history, TEST).unknown)


def test_a_leader_before_or_after_a_fault_was_not_hit() -> None:
    story = Story()
    story.leaders({"r1": 1})
    story.leaders({"r1": 2})
    story.fault("kill", [1, 3])
    story.leaders({"r1": 3})
    assert any("no fault hit a leader" in why for why in enough(story.history, TEST).unknown)


def test_a_partition_may_leave_the_leader_its_majority() -> None:
    story = _story(package="partition", followed=False)
    assert enough(story.history, {**TEST, "nemesis": ["partition"]}).unknown == []


@pytest.mark.parametrize("last_ms", [2_000, 5_000])
def test_an_election_is_due_after_three_seconds(last_ms: int) -> None:
    story = _story(followed=False, last_ms=last_ms)
    assert len(enough(story.history, TEST).unknown) == (last_ms == 5_000)


def test_a_majority_that_is_gone_elects_nobody() -> None:
    story = Story()
    story.leaders({"r1": 1})
    story.fault("kill", [1, 2])
    assert not any("election" in why for why in enough(story.history, TEST).unknown)


def test_no_fault_at_all_and_no_read_that_succeeded() -> None:
    story = Story()
    story.do(1, "read", {"key": "k", "consistency": "prefix"}, type="fail", error="TIMEOUT: no")
    why = enough(story.history, TEST).unknown
    assert "no fault took place, although these were chosen: kill, range" in why
    assert "no read succeeded, of 1" in why
    assert "there is no linearizable read of everything at the end" in why


@pytest.mark.parametrize("tries", [1, 4, 5])
def test_decisions_that_are_few_need_not_succeed(tries: int) -> None:
    story = Story()
    for _ in range(tries):
        story.do(1, "decide", {"key": "k"}, type="fail", error="TIMEOUT: no")
    why = enough(story.history, TEST).unknown
    assert (f"no decide succeeded, of {tries}" in why) == (tries >= 5)


def test_without_nemesis_no_fault_is_due() -> None:
    story = _story(package="kill")
    calm = Story()
    calm.events = [event for event in story.events if event.process is not None]
    assert enough(calm.history, {**TEST, "nemesis": ["none"]}).unknown == []
