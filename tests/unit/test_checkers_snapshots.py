"""The checker of snapshots: a good history, and each anomaly."""

import pytest
from hand_history import Story
from judging import judged

from lognode.chaos.verdict import Result

K1, K2, K3, OTHER = ("k", 1, "p1-1"), ("k", 2, "p1-2"), ("k", 3, "p1-3"), ("other", 9, "p2-1")
LOST = "NOT_FOUND: the lease of this snapshot has ended"


def _judged(story: Story) -> Result:
    story.end()
    return judged("snapshot", story)


def _names(story: Story) -> set[str]:
    return {one.name for one in _judged(story).anomalies}


def _story(through: int = 2) -> Story:
    """Two entries and one of another range, a snapshot of them, and one entry more."""
    story = Story()
    story.append("p1-1", 1)
    story.append("p1-2", 2)
    story.append("p2-1", 9, "other")
    story.snapshot("s", through)
    story.append("p1-3", 3)
    return story


def test_a_snapshot_that_shows_what_was_there_is_valid() -> None:
    """Whatever it is asked for, and also when it could not be read."""
    story = _story()
    story.read_snapshot("s", [K1, K2, OTHER])
    story.read_snapshot("s", [OTHER], "o")
    story.read_snapshot("s", type="fail", error="UNAVAILABLE: gone")
    story.read_snapshot("s", [K1, K2, OTHER])
    result = _judged(story)
    assert result.verdict == "valid", result.anomalies
    assert (result.counts["snapshots"], result.counts["reads of snapshots"]) == (1, 3)


def test_a_snapshot_may_have_what_was_under_way_when_it_was_taken() -> None:
    story = _story()
    story.snapshot("later", 4)
    story.append("p1-4", 4)
    story.read_snapshot("later", [K1, K2, K3, ("k", 4, "p1-4"), OTHER])
    assert _names(story) == set()


def test_S7_a_snapshot_that_misses_what_was_known_is_invalid() -> None:
    story = _story(through=1)
    story.read_snapshot("s", [K1, OTHER])
    assert _names(story) == {"missing"}


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ([K1, OTHER], {"not-a-prefix"}),
        ([K2, OTHER], {"not-a-prefix"}),
        ([], {"not-a-prefix"}),
        ([K1, K2, K3, OTHER], {"beyond"}),
    ],
)
def test_S5_a_snapshot_must_be_a_prefix(shown: list[tuple[str, int, str]], names: set[str]) -> None:
    story = _story()
    story.read_snapshot("s", shown)
    found = _judged(story)
    assert {one.name for one in found.anomalies} >= names
    assert found.anomalies[0].operations


def test_S5_two_reads_of_one_snapshot_that_differ_are_invalid() -> None:
    story = _story()
    story.read_snapshot("s", [K1, K2, OTHER])
    story.read_snapshot("s", [K1, ("k", 2, "p1-9"), OTHER])
    assert "changed" in _names(story)


def test_a_lease_that_is_lost_is_invalid_unless_clocks_were_set() -> None:
    story = _story()
    story.read_snapshot("s", type="fail", error=LOST)
    assert _names(story) == {"lease-lost"}
    story = _story()
    story.fault("clock", [1], last_ms=10)
    story.read_snapshot("s", type="fail", error=LOST)
    assert _names(story) == set()
    story = _story()
    story.fault("kill", [1], last_ms=60_000)
    story.read_snapshot("s", type="fail", error=LOST)
    assert _names(story) == set(), "its time is over"
