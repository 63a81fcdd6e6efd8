"""The simulator's client checker: a good history passes, and each anomaly is found."""

from collections.abc import Callable

import pytest

from lognode.chaos.sim.history import History
from lognode.chaos.sim.violation import Violation


def _history() -> History:
    """Two acknowledged records of key k: a at 1, b at 2."""
    history = History()
    for number, value in enumerate((b"a", b"b"), 1):
        history.invoke(b"k", value, producer=1, number=number)
        history.ack(value, number)
    return history


def test_a_good_history_passes() -> None:
    history = _history()
    read = history.invoke_read(b"k")
    history.invoke(b"k", b"c", producer=1, number=3, expect=2)
    history.complete_read(read, 2, [(1, b"a"), (2, b"b")])
    history.ack(b"c", 5)
    history.ack(b"c", None)
    history.invoke(b"k", b"d", producer=2, number=1)
    history.give_up(b"d")
    history.invoke(b"k", b"e", producer=2, number=2, expect=1)
    history.refuse(b"e")
    history.final(1, {b"k": [(1, b"a"), (2, b"b"), (5, b"c")]})
    history.final(2, {b"k": [(1, b"a"), (2, b"b"), (5, b"c"), (9, b"d")]})
    assert (history.acked, history.reads) == (3, 1)


def _stale_read(history: History) -> None:
    history.complete_read(history.invoke_read(b"k"), 1, [(1, b"a")])


def _prefix_read_that_goes_back(history: History) -> None:
    history.complete_read(history.invoke_read(b"k", 0), 1, [(1, b"a")])  # it may lag
    history.complete_read(history.invoke_read(b"k", 2), 1, [(1, b"a")])


def _stale_after_another_read(history: History) -> None:
    history.invoke(b"k", b"c", producer=1, number=3)
    history.complete_read(history.invoke_read(b"k"), 3, [(1, b"a"), (2, b"b"), (3, b"c")])
    history.complete_read(history.invoke_read(b"k"), 2, [(1, b"a"), (2, b"b")])


def _phantom_read(history: History) -> None:
    history.complete_read(history.invoke_read(b"k"), 3, [(1, b"a"), (2, b"b"), (3, b"x")])


def _value_of_another_key(history: History) -> None:
    history.invoke(b"other", b"o", producer=1, number=3)
    history.complete_read(history.invoke_read(b"k"), 3, [(1, b"a"), (2, b"b"), (3, b"o")])


def _read_gone_at_the_end(history: History) -> None:
    history.invoke(b"k", b"c", producer=1, number=3)
    history.complete_read(history.invoke_read(b"k"), 3, [(1, b"a"), (2, b"b"), (3, b"c")])
    history.final(1, {b"k": [(1, b"a"), (2, b"b")]})


def _two_values_at_one_seq(history: History) -> None:
    history.invoke(b"k", b"c", producer=1, number=3)
    history.complete_read(history.invoke_read(b"k"), 2, [(1, b"a"), (2, b"c")])


def _acknowledged_into_the_past(history: History) -> None:
    history.floors[b"k"] = 7
    history.invoke(b"k", b"c", producer=1, number=3)
    history.ack(b"c", 6)


def _two_seqs(history: History) -> None:
    history.ack(b"b", 3)


def _lost(history: History) -> None:
    history.final(1, {b"k": [(1, b"a")]})


def _lost_without_a_known_seq(history: History) -> None:
    history.invoke(b"k", b"c", producer=1, number=3)
    history.ack(b"c", None)
    history.final(1, {b"k": [(1, b"a"), (2, b"b")]})


def _twice(history: History) -> None:
    history.final(1, {b"k": [(1, b"a"), (2, b"b"), (3, b"b")]})


def _reordered(history: History) -> None:
    history.invoke(b"q", b"x", producer=1, number=3)
    history.invoke(b"q", b"y", producer=1, number=4)
    history.final(1, {b"k": [(1, b"a"), (2, b"b")], b"q": [(3, b"y"), (4, b"x")]})


def _refused_yet_applied(history: History) -> None:
    history.invoke(b"k", b"c", producer=1, number=3, expect=1)
    history.refuse(b"c")
    history.final(1, {b"k": [(1, b"a"), (2, b"b"), (3, b"c")]})


def _condition_did_not_hold(history: History) -> None:
    history.invoke(b"k", b"c", producer=1, number=3, expect=1)
    history.ack(b"c", 3)
    history.final(1, {b"k": [(1, b"a"), (2, b"b"), (3, b"c")]})


def _refused_after_ack(history: History) -> None:
    history.refuse(b"a")


def _seqs_fall(history: History) -> None:
    history.final(1, {b"k": [(2, b"b"), (1, b"a")]})


@pytest.mark.parametrize(
    ("promise", "anomaly"),
    [
        ("S7", _stale_read),
        ("S7", _prefix_read_that_goes_back),
        ("S7", _stale_after_another_read),
        ("S5", _phantom_read),
        ("S5", _value_of_another_key),
        ("S5", _read_gone_at_the_end),
        ("S3", _two_values_at_one_seq),
        ("S4", _acknowledged_into_the_past),
        ("S6", _two_seqs),
        ("S2", _lost),
        ("S2", _lost_without_a_known_seq),
        ("S8", _twice),
        ("S4", _reordered),
        ("S11", _refused_yet_applied),
        ("S9", _condition_did_not_hold),
        ("S11", _refused_after_ack),
        ("S4", _seqs_fall),
    ],
)
def test_each_anomaly_is_found(promise: str, anomaly: Callable[[History], None]) -> None:
    with pytest.raises(Violation) as found:
        anomaly(_history())
    assert found.value.promise == promise
