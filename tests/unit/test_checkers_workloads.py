"""The checkers of follow, register, set and exactly-once: a good history, and each anomaly."""

from collections.abc import Callable

import pytest
from hand_history import STEP_NS, Story
from judging import judged

from lognode.chaos.checkers.account import Account
from lognode.chaos.checkers.register import linearizable
from lognode.chaos.verdict import Result

Tell = Callable[[Story], None]


def _names(result: Result) -> set[str]:
    return {one.name for one in result.anomalies}


def _three() -> Story:
    story = Story()
    for number in (1, 2, 3):
        story.append(f"p1-{number}", number)
    story.append("p2-1", 9, "other")
    return story


def _entry(seq: int) -> tuple[str, int, str]:
    return "k", seq, f"p1-{seq}"


def test_a_follower_that_gets_everything_once_is_valid() -> None:
    """Through a failure and a new client, and of other keys nothing."""
    story = _three()
    story.follow([_entry(1)])
    story.follow([])
    story.follow([], type="fail", error="UNAVAILABLE: gone")
    story.follow([_entry(2), _entry(3)])
    story.end()
    result = judged("follow", story)
    assert result.verdict == "valid", result.anomalies
    assert result.counts["followers"] == 1


@pytest.mark.parametrize(
    ("name", "deliveries"),
    [
        ("repeat", [[1], [1, 2, 3]]),
        ("repeat", [[1, 2, 3], [3]]),
        ("reorder", [[1, 3], [2]]),
        ("skip", [[1], [3]]),
        ("skip", [[2, 3]]),
        ("stall", [[1], [2]]),
        ("stall", [[]]),
    ],
)
def test_S4_a_follower_that_does_not_is_invalid(name: str, deliveries: list[list[int]]) -> None:
    story = _three()
    for seqs in deliveries:
        story.follow([_entry(seq) for seq in seqs])
    story.end()
    result = judged("follow", story)
    assert _names(result) == {name}
    assert result.anomalies[0].key == "k"
    assert result.anomalies[0].operations


@pytest.mark.parametrize(("what", "target"), [("log", ""), ("prefix", "ot"), ("key", "other")])
def test_a_follower_owes_what_it_follows(what: str, target: str) -> None:
    story = _three()
    story.follow([("other", 9, "p2-1")], what, target)
    story.end()
    assert _names(judged("follow", story)) == ({"stall"} if what == "log" else set())


def test_an_entry_of_another_key_is_misrouted() -> None:
    story = _three()
    story.follow([_entry(1), _entry(2), _entry(3), ("other", 9, "p2-1")])
    story.end()
    assert _names(judged("follow", story)) == {"misrouted"}


def test_a_follower_that_ended_with_an_error_is_unknown() -> None:
    story = _three()
    story.follow([_entry(1)])
    story.follow([], type="fail", error="UNAVAILABLE: gone")
    story.end()
    result = judged("follow", story)
    assert result.verdict == "unknown"
    assert "UNAVAILABLE: gone" in result.unknown[0]


def _register() -> Story:
    """p1-1 at 1, p1-2 after it at 4."""
    story = Story()
    story.append("p1-1", 1, expect=0)
    story.append("p2-1", None, expect=0, type="fail", last=1)
    story.append("p1-2", 4, expect=1)
    return story


R = [(1, "p1-1"), (4, "p1-2")]


def test_S9_a_register_is_valid() -> None:
    """With an append of unknown outcome that happened late, one that did not, and refusals."""
    story = _register()
    story.append("p3-1", None, expect=4, type="info")
    story.append("p4-1", None, expect=1, type="info")
    story.append("p5-1", None, expect=1, type="fail")  # overloaded: it says nothing of the key
    story.read(6, R)
    story.append("p5-2", None, expect=4, type="fail", last=7)
    story.read(6, [*R, (7, "p3-1")])
    story.contents["k"].append([7, "p3-1"])
    story.end()
    result = judged("register", story)
    assert result.verdict == "valid", result.anomalies
    assert result.counts["keys"] == 1
    assert result.counts["operations of a key, at most"] == 9


def _condition_that_was_over(story: Story) -> None:
    story.append("p2-2", 6, expect=1)


def _condition_for_an_entry_that_never_was(story: Story) -> None:
    story.append("p2-2", 6, expect=5)


def _refused_for_what_it_expected(story: Story) -> None:
    story.append("p2-2", None, expect=4, type="fail", last=4)


def _refused_for_an_old_entry(story: Story) -> None:
    story.append("p2-2", None, expect=0, type="fail", last=1)


@pytest.mark.parametrize(
    ("name", "tell"),
    [
        ("broken-condition", _condition_that_was_over),
        ("broken-condition", _condition_for_an_entry_that_never_was),
        ("wrong-refusal", _refused_for_what_it_expected),
        ("wrong-refusal", _refused_for_an_old_entry),
    ],
)
def test_S9_a_broken_condition_is_found_by_seqs_and_by_search(name: str, tell: Tell) -> None:
    story = _register()
    tell(story)
    story.end()
    result = judged("register", story)
    assert _names(result) == {name, "nonlinearizable"}
    [found] = [one for one in result.anomalies if one.name == name]
    assert found.promise == "S9"
    [searched] = [one for one in result.anomalies if one.name == "nonlinearizable"]
    assert searched.operations == found.operations[-1:]
    assert "process 2" in searched.message


def test_S7_a_stale_read_is_found_by_search() -> None:
    story = _register()
    story.read(6, R[:1])
    story.read(7, [])
    story.end()
    result = judged("register", story)
    assert _names(result) == {"stale-read", "nonlinearizable"}
    [searched] = [one for one in result.anomalies if one.name == "nonlinearizable"]
    assert "read of seq 1 with p1-1 of process 6" in searched.message


def test_S4_seqs_that_fall_have_no_order() -> None:
    story = _register()
    story.append("p2-2", 9)
    story.append("p3-1", 8)
    assert _names(judged("register", story)) == {"realtime-order", "nonlinearizable"}


def test_a_refusal_may_know_what_nobody_read() -> None:
    """An append of unknown outcome was applied, and another was refused for it."""
    story = _register()
    story.append("p3-1", None, expect=4, type="info")
    story.append("p2-2", None, expect=4, type="fail", last=6)
    assert judged("register", story).verdict == "valid"
    nobody = _register()
    nobody.append("p2-2", None, expect=4, type="fail", last=6)
    assert _names(judged("register", nobody)) == {"nonlinearizable"}


def test_a_search_of_a_register_that_takes_too_long_is_unknown() -> None:
    story = _register()
    result = Result("linearizable")
    linearizable(Account(story.history), result, time_limit_s=-1.0)
    assert (result.verdict, result.unknown) == (
        "unknown",
        ["the time limit ended before the answer for keys k"],
    )


def _set() -> Story:
    story = Story()
    story.append("p1-1", 1)
    story.append("p1-2", 2)
    return story


S = [(1, "p1-1"), (2, "p1-2")]


def test_a_set_is_valid_and_its_latency_is_that_of_the_last_miss() -> None:
    """p1-2 was known at 4 ms; prefix reads that began at 7 and 9 ms missed it. p1-3 is younger
    than all reads."""
    story = _set()
    story.read(2, S)
    story.read(3, S[:1], consistency="prefix")
    story.read(4, [], consistency="prefix")
    story.read(3, S)
    story.append("p1-3", 3)
    story.end()
    result = judged("set", story)
    assert result.verdict == "valid", result.anomalies
    assert result.counts["elements"] == 3
    assert result.counts["stable latency ms, 0.5"] == 5.0
    assert result.counts["stable latency ms, 1"] == 7.0
    assert story.events[3].time == 4 * STEP_NS


def test_an_element_is_known_by_a_read_before_it_is_acknowledged() -> None:
    story = Story()
    story.event(1, "invoke", "append", story.asked("p1-1"))
    story.read(2, [(1, "p1-1")])
    story.read(3, [], consistency="prefix")
    story.event(1, "ok", "append", {"seqs": [1]})
    assert judged("set", story).counts["stable latency ms, 1"] == 1.0


def test_S7_a_stale_read_of_a_set() -> None:
    story = _set()
    story.read(2, S[:1])
    story.read(2, S)
    assert _names(judged("set", story)) == {"stale-read"}


def test_S2_an_element_that_the_last_read_lacks_is_lost() -> None:
    story = _set()
    story.read(2, S)
    story.read(2, S[:1])
    result = judged("set", story)
    assert _names(result) == {"stale-read", "lost"}
    assert "p1-2" in next(one.message for one in result.anomalies if one.name == "lost")


def test_S8_records_stand_in_the_order_of_their_numbers() -> None:
    """The second was acknowledged to the holder of the name after the next; nobody saw both."""
    story = Story()
    story.append("p1-1", None, number=1, type="info")
    story.append("p1-2", 5, number=2, process=2)
    story.append("p1-1", None, number=1, process=3)
    story.contents["k"].append([7, "p1-1"])
    story.contents["k"].append([8, "p1-9"])
    story.append("p1-9", None, number=9, type="info", process=4)
    story.end()
    result = judged("exactly-once", story)
    assert _names(result) == {"out-of-order", "nonmonotonic-send"}
    found = [one for one in result.anomalies if one.name == "out-of-order"]
    assert len(found) == 4
    good = Story()
    good.append("p1-1", None, number=1, type="info")
    good.append("p1-1", 3, number=1, process=2)
    good.append("p1-2", 5, number=2, process=2)
    good.append("p5-1", 6)
    good.append("p5-2", 7)
    good.end()
    assert judged("exactly-once", good).verdict == "valid"


def test_S8_a_record_twice_and_one_that_is_missing() -> None:
    story = Story()
    story.append("p1-1", 1, number=1)
    story.append("p1-2", 2, number=2)
    story.contents["k"].append([4, "p1-1"])
    story.end(without={"p1-2"})
    names = _names(judged("exactly-once", story))
    assert {"duplicate", "lost-write"} <= names
