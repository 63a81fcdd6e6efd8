"""Who got in and who did not, of a test with TLS and tokens."""

from collections.abc import Mapping
from typing import Any

import pytest
from hand_history import Story

from lognode.chaos.checkers import judge
from lognode.chaos.checkers.access import access

TEST: Mapping[str, Any] = {
    "workload": "append", "nemesis": [], "nodes": 3, "rate": 1.0, "time_limit_s": 1,
    "secure": True, "strangers": {"refused": {"a": 3, "b": 1}, "let_in": {"a": 0, "b": 0}},
}  # fmt: skip


def _story(error: str | None = None) -> Story:
    story = Story()
    story.append("p1-1", 1)
    if error is not None:
        story.do(1, "read", {"key": "k"}, type="fail", error=error)
    return story


def test_strangers_that_were_refused_are_counted() -> None:
    result = access(_story("TIMEOUT: no answer").history, TEST)
    assert (result.verdict, result.counts) == ("valid", {"a": 3, "b": 1})


def test_X5_a_stranger_that_was_let_in_is_an_anomaly() -> None:
    told = {"refused": {"a": 3, "b": 1}, "let_in": {"a": 0, "b": 2}}
    (found,) = access(_story().history, {**TEST, "strangers": told}).anomalies
    assert (found.name, found.promise) == ("let-in", "X5")
    assert found.message == "nodes accepted b, 2 times"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (None, "the test did not record the answers to strangers"),
        ({"refused": {"a": 0}, "let_in": {"a": 0}}, "no node refused a"),
    ],
)
def test_strangers_that_nobody_refused_say_nothing(told: Any, why: str) -> None:
    result = access(_story().history, {**TEST, "strangers": told})
    assert (result.verdict, result.unknown) == ("unknown", [why])


def test_a_workload_that_is_refused_is_an_anomaly_unless_clocks_jump() -> None:
    history = _story("UNAUTHORIZED: the token is unknown or revoked").history
    (found,) = access(history, TEST).anomalies
    assert found.name == "shut-out"
    assert "the token is unknown or revoked" in found.message
    assert access(history, {**TEST, "nemesis": ["clock"]}).verdict == "valid"


def test_access_is_judged_where_the_cluster_has_tokens() -> None:
    history = _story().history
    assert [one.checker for one in judge(history, TEST)] == ["log", "access", "enough"]
    open_to_all = {**TEST, "secure": False}
    assert [one.checker for one in judge(history, open_to_all)] == ["log", "enough"]
