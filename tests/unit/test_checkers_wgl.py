"""The search for a linear order: against all orders, on hand-made and on random small histories."""

import itertools
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lognode.chaos.checkers.models import REGISTER, TEXT
from lognode.chaos.checkers.wgl import IMPOSSIBLE, Act, Call, Model, Search, judge


def _call(began: int, ended: int | None, *act: object) -> Call:
    return Call(began, ended, act, f"{act} at {began}", began)


def _by_permutation(model: Model, calls: Sequence[Call]) -> bool:
    """Whether any order of any choice of the unsure calls keeps to time and to the model."""
    sure = [call for call in calls if call.ended is not None]
    unsure = [call for call in calls if call.ended is None]
    for count in range(len(unsure) + 1):
        for chosen in itertools.combinations(unsure, count):
            if any(_fits(model, order) for order in itertools.permutations([*sure, *chosen])):
                return True
    return False


def _fits(model: Model, order: Sequence[Call]) -> bool:
    state = model.initial
    for at, call in enumerate(order):
        if any(late.ended is not None and late.ended < call.began for late in order[at + 1 :]):
            return False
        state = model.step(state, call.act)
        if state is IMPOSSIBLE:
            return False
    return True


_value = st.integers(0, 2)
_register_acts = st.one_of(
    st.tuples(st.just("read"), st.none() | _value),
    st.tuples(st.just("write"), _value),
    st.tuples(st.just("cas"), _value, _value),
)
_texts = st.text("ab", max_size=2)
_text_acts = st.tuples(st.sampled_from(("get", "put", "append")), _texts)


@st.composite
def _calls(draw: st.DrawFn, acts: st.SearchStrategy[Act]) -> list[Call]:
    found = []
    for _ in range(draw(st.integers(1, 5))):
        began = draw(st.integers(0, 10))
        ended = draw(st.none() | st.integers(began, began + 8))
        found.append(_call(began, ended, *draw(acts)))
    return found


@pytest.mark.slow
@settings(max_examples=600, deadline=None, derandomize=True)
@given(_calls(_register_acts))
def test_S7_a_register_is_judged_as_by_trying_all_orders(calls: list[Call]) -> None:
    assert judge(REGISTER, {"k": calls}, 60.0).linearizable is _by_permutation(REGISTER, calls)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_calls(_text_acts))
def test_S7_a_text_is_judged_as_by_trying_all_orders(calls: list[Call]) -> None:
    assert judge(TEXT, {"k": calls}, 60.0).linearizable is _by_permutation(TEXT, calls)


def test_concurrent_operations_may_take_any_order() -> None:
    calls = [_call(1, 9, "write", 1), _call(2, 8, "write", 2), _call(10, 11, "read", 1)]
    assert judge(REGISTER, {"k": calls}, 60.0).linearizable is True


def test_the_operation_without_a_place_is_named() -> None:
    """The first completion that no order gets past, not the last read that the search tried."""
    calls = [
        _call(1, 2, "write", 1),
        _call(3, 4, "write", 2),
        _call(5, 6, "read", 1),
        _call(7, 8, "read", 2),
    ]
    judged = judge(REGISTER, {"k": calls}, 60.0)
    assert judged.linearizable is False
    assert judged.stuck == calls[2]
    assert judged.states == ["2"]
    assert judged.why() == (
        "key k: ('read', 1) at 5 has no place; "
        "after all operations that ended before it, the state may be: 2"
    )


def test_the_operation_that_the_best_order_does_not_get_past_is_named() -> None:
    """The order that is tried first gets furthest; another is stuck earlier."""
    writes = [_call(1, 8, "write", 2), _call(2, 9, "write", 1)]
    reads = [_call(10, 11, "read", 1), _call(12, 13, "read", 5)]
    judged = judge(REGISTER, {"k": [*writes, *reads]}, 60.0)
    assert judged.stuck == reads[1]
    assert judged.states == ["1"]


def test_an_operation_without_an_end_may_happen_late_or_never() -> None:
    write = _call(1, None, "write", 1)
    nil, one = _call(5, 6, "read", None), _call(7, 8, "read", 1)
    assert judge(REGISTER, {"k": [write, nil, one]}, 60.0).linearizable is True
    assert judge(REGISTER, {"k": [write, nil]}, 60.0).linearizable is True
    again = _call(9, 10, "read", None)
    assert judge(REGISTER, {"k": [write, nil, one, again]}, 60.0).stuck == again


def test_the_same_write_may_happen_as_often_as_it_was_asked() -> None:
    """Twins are placed in their order, and both can be."""
    twins = [_call(1, None, "write", 1), _call(2, None, "write", 1)]
    reads = [_call(10, 11, "read", 1), _call(12, 13, "write", 2), _call(14, 15, "read", 1)]
    assert judge(REGISTER, {"k": [*twins, *reads]}, 60.0).linearizable is True
    third = [_call(16, 17, "write", 2), _call(18, 19, "read", 1)]
    assert judge(REGISTER, {"k": [*twins, *reads, *third]}, 60.0).linearizable is False


def test_equal_writes_are_counted_and_not_told_apart() -> None:
    """Forty of them in all subsets would be too many."""
    writes = [_call(at, None, "write", at % 2) for at in range(40)]
    search = Search(REGISTER, [*writes, _call(100, 101, "read", 2)])
    assert search.run(1_000, time.monotonic() + 60) is False


def _hard(count: int) -> list[Call]:
    """All appended at once, and a read that none of the orders gives: 2^count sets and more."""
    appends = [_call(at, 1_000, "append", str(at)) for at in range(count)]
    return [*appends, _call(2_000, 2_001, "get", "no")]


def test_a_search_that_takes_too_long_is_unknown() -> None:
    judged = judge(TEXT, {"k": _hard(30)}, 0.05)
    assert judged.linearizable is None
    assert judged.why() == "the time limit ended before the answer for keys k"


def test_a_round_ends_at_the_deadline() -> None:
    assert Search(TEXT, _hard(6)).run(1_000_000, time.monotonic() - 1) is None


def test_a_bad_key_is_found_behind_one_that_takes_long() -> None:
    """Keys are searched in rounds."""
    bad = [_call(1, 2, "append", "a"), _call(3, 4, "get", "")]
    judged = judge(TEXT, {"hard": _hard(30), "bad": bad}, 60.0)
    assert (judged.linearizable, judged.key) == (False, "bad")


@pytest.mark.parametrize("first", [True, False])
def test_a_bad_key_weighs_more_than_an_undecided_one(first: bool) -> None:
    bad = [_call(1, 2, "append", "a"), _call(3, 4, "get", "")]
    keys = {"bad": bad, "hard": _hard(30)} if first else {"hard": _hard(30), "bad": bad}
    assert judge(TEXT, keys, 5.0).linearizable is False
