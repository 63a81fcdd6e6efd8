"""What an operator is told before unsafe recovery of a range."""

from typing import Any

import pytest

from lognode.client.cli.verbs_recover import warnings
from lognode.client.protocol.errors import RemoteProtocolError
from lognode.node.lifecycle.recoveries import held_of, longest


def member(node: int, last_term: int | None = None, **has: Any) -> dict[str, Any]:
    answers = last_term is not None
    return {"node": node, "state": "ACTIVE" if answers else "DEAD", "answers": answers,
            "damaged": None, "last_term": last_term, "last_index": 40 if answers else None,
            "applied": 38, "last_seq": 100, "last_timestamp_ms": 5_000, **has}  # fmt: skip


def test_the_longest_log_is_that_of_the_latest_term_and_then_of_the_last_index() -> None:
    assert longest([member(1, 2), member(2, 3), member(3)]) == 2
    assert longest([member(1, 3), member(2, 3, last_index=41), member(3, 2, last_index=90)]) == 2
    assert longest([member(2, 3), member(1, 3)]) == 1
    assert longest([member(1, 3, damaged="lost"), member(2, 2)]) == 2
    assert longest([member(1), member(2)]) is None


def told(*members: dict[str, Any], refused: str | None = None) -> dict[str, Any]:
    return {"range": 7, "log": "orders", "generation": 3, "members": list(members),
            "proposed": longest(members), "refused": refused}  # fmt: skip


def test_warnings_say_what_may_be_lost_and_which_promises_go() -> None:
    lines = list(warnings(told(member(1, 4), member(2), member(3)), 1, 65_000))
    assert lines[:3] == [
        "range 7 of log orders, generation 3: 1 of its 3 members answer",
        "node 1 has the longest log of the members that answer: recover from node 1",
        "possible loss: every entry acknowledged after entry 40 of term 4 of node 1, where only "
        "nodes 2, 3 had the entry; the last known record has seq 100 and is 1m old",
    ]
    assert [line[:20] for line in lines[3:-1]] == ["this promise ends: S", "this promise ends: S",
                                                   "this promise ends: S"]  # fmt: skip
    assert lines[-1] == "nodes 2, 3 delete their data of the range when they return"


def test_warnings_of_a_member_that_says_nothing_or_of_what_is_refused() -> None:
    whole = told(member(1, 4), member(2), member(3))
    assert list(warnings(whole, 2, 0))[-1] == "node 2 does not report the end of its log"
    assert list(warnings(whole, 9, 0))[-1] == "node 9 does not report the end of its log"
    refused = told(member(1, 4), member(2, 4), member(3), refused="it goes on by itself")
    assert len(list(warnings(refused, 1, 0))) == 2
    nobody = told(member(1), member(2), member(3), refused="no member with a sound replica answers")
    assert list(warnings(nobody, None, 0)) == [
        "range 7 of log orders, generation 3: 0 of its 3 members answer"
    ]
    empty = told(member(1, 4, last_seq=0), member(2), member(3))
    assert "the log has no record" in list(warnings(empty, 1, 0))[2]


def test_the_reported_end_of_a_log_is_numbers_or_nothing() -> None:
    has = {"last_term": 4, "last_index": 40, "applied": 38, "last_seq": 9, "last_timestamp_ms": 5}
    assert held_of({**has, "more": 1}) == has
    assert held_of(None) is None
    wrong: Any
    for wrong in ([], {}, {**has, "applied": None}, {**has, "applied": "38"}):
        with pytest.raises(RemoteProtocolError):
            held_of(wrong)
