"""The simulator with removals: what may be gone, what must be, and that the checkers see it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lognode.chaos.sim.history import History
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.removed import Removal
from lognode.chaos.sim.replica import RangeReplica
from lognode.chaos.sim.safety import SafetyChecker
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import run_seed
from lognode.node.rules import merging
from lognode.raft.types import LogEntry
from lognode.statemachine import removal_commands, visibility

ALL = [(1, b"a"), (2, b"b"), (3, b"c")]
CALM = replace(Options(), faults=(), removals=True, checkpoint_entries=15, think_seconds=0.3)


def _history() -> History:
    """Three acknowledged records of key k."""
    history = History()
    for seq, value in ALL:
        history.invoke(b"k", value, producer=1, number=seq)
        history.ack(value, seq)
    return history


def _asked(history: History, how: str, before: int, *, done: bool = False) -> None:
    removal = Removal(how, (b"k",), before, (b"", b"z"))
    history.removed.asked(removal)
    if done:
        history.removed.done(removal)


def test_entries_of_an_uncertain_removal_may_be_present_or_absent() -> None:
    for how, before, left in (("trim", 3, ALL[2:]), ("delete", 4, []), ("compact", 4, ALL[2:])):
        history = _history()
        _asked(history, how, before)
        last = left[-1][0] if left else 0
        history.complete_read(history.invoke_read(b"k"), 3, ALL)
        history.complete_read(history.invoke_read(b"k"), last, left)
        history.final(1, {b"k": ALL})
        history.final(2, {b"k": left})
        _asked(history, how, before, done=True)
        history.final(1, {b"k": left})
        assert history.expected(b"k") == last


def _trim_takes_too_much(history: History) -> None:
    _asked(history, "trim", 3, done=True)
    history.final(1, {b"k": []})


def _compaction_takes_the_last(history: History) -> None:
    _asked(history, "compact", 4, done=True)
    history.final(1, {b"k": []})


def _removed_is_read(history: History) -> None:
    _asked(history, "delete", 4, done=True)
    history.complete_read(history.invoke_read(b"k"), 3, ALL)


def _superseded_is_read(history: History) -> None:
    _asked(history, "compact", 4, done=True)
    history.complete_read(history.invoke_read(b"k"), 3, ALL[1:])


def _removed_is_held(history: History) -> None:
    _asked(history, "trim", 2, done=True)
    history.final(1, {b"k": ALL})


def _half_of_a_deleted_key_is_read(history: History) -> None:
    _asked(history, "delete", 4)
    history.complete_read(history.invoke_read(b"k"), 2, ALL[:2])


def _lease_does_not_hold(history: History) -> None:
    owed = history.owed(b"k", 2)
    assert owed == ALL[:2]
    history.complete_leased(b"k", 2, owed, ALL[1:2])


def _read_beyond_a_lease(history: History) -> None:
    history.complete_leased(b"k", 2, history.owed(b"k", 2), ALL)


@pytest.mark.parametrize(
    ("promise", "anomaly"),
    [
        ("S2", _trim_takes_too_much),
        ("S2", _compaction_takes_the_last),
        ("S7", _removed_is_read),
        ("S7", _superseded_is_read),
        ("S7", _removed_is_held),
        ("S7", _half_of_a_deleted_key_is_read),
        ("x14", _lease_does_not_hold),
        ("x14", _read_beyond_a_lease),
    ],
)
def test_anomaly_is_found(promise: str, anomaly: Callable[[History], None]) -> None:
    with pytest.raises(Violation) as found:
        anomaly(_history())
    assert found.value.promise == promise


def test_S5_x14_removals_leases_and_merges_happen_and_hold() -> None:
    outcome = run_seed(1, CALM)
    assert outcome.violation is None
    assert min(outcome.removals, outcome.leased, outcome.merges) > 0


def test_S7_a_removal_on_one_replica_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RangeReplica.apply

    def apply(self: RangeReplica, entry: LogEntry) -> Any:
        with monkeypatch.context() as patched:
            if self.host.node_id != 1:
                patched.setattr(removal_commands, "apply", lambda *_, **__: None)
            return whole(self, entry)

    monkeypatch.setattr(RangeReplica, "apply", apply)
    at_once = run_seed(0, CALM).violation
    assert at_once is not None
    assert "an entry did different things" in at_once
    monkeypatch.setattr(SafetyChecker, "did", lambda *_: None)  # and those who read find it too
    violations = [run_seed(seed, CALM).violation for seed in range(3)]
    assert all(found is not None and found.startswith(("S7", "x14")) for found in violations)
    assert any(found is not None and found.startswith("S7") for found in violations)


def test_x14_a_merge_that_forgets_leases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(visibility.Rules):
        @classmethod
        def of(cls, tables: Any, *span: Any) -> visibility.Rules:
            rules = visibility.Rules.of(tables, *span)
            return replace(rules, views=rules.views[:1])

    monkeypatch.setattr(merging, "Rules", Forgetful)
    violations = (run_seed(seed, CALM).violation for seed in range(40))
    assert any(found is not None and found.startswith("x14") for found in violations)


@pytest.mark.parametrize(("below", "is_owed"), [(4, True), (5, False)])
def test_x14_an_append_of_unknown_outcome_may_have_let_a_compaction_take_the_last_known_entry(
    below: int, is_owed: bool
) -> None:
    """As in seed 348: a client gave an append up, which was applied above the last known seq."""
    history = _history()
    history.invoke(b"k", b"lost", producer=1, number=9)
    history.give_up(b"lost")
    _asked(history, "compact", below, done=True)
    assert (ALL[-1] in history.owed(b"k", 3)) == is_owed
