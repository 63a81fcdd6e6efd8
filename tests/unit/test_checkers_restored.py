"""Restores from a tier: a hand-made bad history for each anomaly."""

from collections.abc import Mapping
from typing import Any

import pytest
from hand_history import Story

from lognode.chaos.checkers import judge
from lognode.chaos.checkers.account import Account
from lognode.chaos.checkers.restored import restored
from lognode.chaos.verdict import Result

TEST: Mapping[str, Any] = {
    "workload": "append", "nemesis": [], "nodes": 1, "rate": 1.0, "time_limit_s": 1,
    "tier": True, "settled": "",
}  # fmt: skip
END = {"k": [[1, "p1-1"], [2, "p1-2"], [5, "p1-3"]], "l": [[1, "p1-4"]]}


def story(*restores: Any) -> Story:
    """Restores, each with the entries by key, or None for one that failed; and a final read."""
    made = Story()
    for value, seq in (("p1-1", 1), ("p1-2", 2), ("p1-3", 5)):
        made.append(value, seq)
    made.append("p1-4", 1, key="l")
    for at, keys in enumerate(restores):
        outcome: Any = ("fail", None, "UNAVAILABLE: no") if keys is None else ("ok", keys, None)
        type_, answer, error = outcome
        answer = None if answer is None else {"keys": answer}
        made.do(90 + at, "restored", {}, answer, type=type_, error=error)
    made.do(99, "final", {}, {"keys": END})
    return made


def judged(*restores: Any, **more: Any) -> Result:
    return restored(Account(story(*restores).history), {**TEST, **more})


def test_restores_that_give_the_oldest_entries_are_valid() -> None:
    result = judged({}, {"k": END["k"][:1]}, None, {"k": END["k"][:2], "l": END["l"]})
    assert result.verdict == "valid"
    assert result.counts == {
        "restores": 3, "restores without an answer": 1, "entries of the last restore": 3,
        "spoiled requests": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"k": [[2, "p1-2"]]}, r"entry 0 of key k is \[2, 'p1-2'\] in a restore, and \[1"),
        ({"k": [[1, "p1-1"], [5, "p1-3"]]}, r"entry 1 of key k is \[5, "),
        ({"k": [[1, "p1-1"], [1, "p1-1"]]}, r"entry 1 of key k is \[1, 'p1-1'\]"),
        ({"k": [[1, "p9-9"]]}, "entry 0 of key k is"),
        ({"k": [*END["k"], [6, "p1-9"]]}, r"\[6, 'p1-9'\] in a restore, and not there in the"),
        ({"x": [[1, "p1-1"]]}, "entry 0 of key x"),
    ],
    ids=["gap-before", "gap", "twice", "another", "beyond", "strange-key"],
)  # fmt: skip
def test_a_restore_that_gives_anything_else_is_found(keys: Any, told: str) -> None:
    (found,) = judged(keys).anomalies
    assert found.name == "wrong-restore"
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(found.message)


def test_a_restore_that_gives_less_than_the_one_before_is_found() -> None:
    (found,) = judged({"k": END["k"][:2]}, {"k": END["k"][:1]}).anomalies
    assert (found.name, found.key) == ("restore-went-back", "k")
    (found,) = judged({"k": END["k"][:2]}, {}).anomalies
    assert found.name == "restore-went-back"


def test_the_end_of_a_test_is_judged() -> None:
    assert [one.name for one in judged({"k": END["k"]}, None).anomalies] == ["no-restore"]
    assert [one.name for one in judged({"k": END["k"]}, settled="3 files wait").anomalies] == [
        "not-settled"
    ]
    assert judged({}).unknown == ["no restore gave an entry"]
    assert judged({"k": END["k"]}, settled=None).verdict == "unknown"


def test_restores_are_judged_where_the_cluster_has_a_tier() -> None:
    history = story({"k": END["k"]}).history
    assert [one.checker for one in judge(history, TEST)] == ["log", "tier", "enough"]
    without = {**TEST, "tier": False}
    assert [one.checker for one in judge(history, without)] == ["log", "enough"]


def test_a_test_of_files_that_leave_the_disks_is_unknown_if_none_has_left() -> None:
    rule = {"local_retention_bytes": 9_000}
    assert judged(END, **rule).verdict == "unknown"
    result = judged(END, **rule, only_files=3)
    assert result.verdict == "valid"
    assert result.counts["files in the tier only"] == 3
