"""The simulator with readers that keep cursors: they get along, and the checks see what breaks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lognode.chaos.sim.cursors import CursorHistory
from lognode.chaos.sim.options import Options, swarm
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import run_seed
from lognode.client.protocol.errors import LognodeError
from lognode.statemachine import clip
from lognode.statemachine.cursors import Cursors, SpanPosition

CALM = replace(
    Options(), faults=("change",), cursors=True, groups=2, keys=3, churn_seconds=0.8,
    think_seconds=0.3,
)  # fmt: skip
KEY = b"0/k0"


def _history() -> CursorHistory:
    """Reader 1 has opened the cursor and committed 5; reader 2 has opened it since."""
    history = CursorHistory()
    for holder in (1, 2):
        tick = history.invoked()
        assert history.next_holder() == holder
        history.opened("c", [KEY], holder, tick)
        if holder == 1:
            history.tries("c", {KEY: 5})
            history.committed("c", {KEY: 5}, 1, history.invoked())
    return history


def _fenced_commit_is_accepted(history: CursorHistory) -> None:
    history.committed("c", {KEY: 6}, 1, history.invoked())


def _fenced_opening_is_accepted(history: CursorHistory) -> None:
    history.opened("c", [KEY], 1, history.invoked())


def _newest_is_fenced(history: CursorHistory) -> None:
    history.refused("c", [KEY], 2, {"status": "fenced"}, history.invoked())


def _cursor_is_gone(history: CursorHistory) -> None:
    history.refused("c", [KEY], 2, {"status": "missing"}, history.invoked())


def _opening_is_lost(history: CursorHistory) -> None:
    history.shown("c", {KEY: 5}, {KEY: (1, 5)}, history.invoked())


def _position_is_lost(history: CursorHistory) -> None:
    history.shown("c", {KEY: 5}, {KEY: (2, 4)}, history.invoked())


def _rows_are_lost(history: CursorHistory) -> None:
    history.shown("c", {KEY: 5}, {}, history.invoked())


def _position_was_never_committed(history: CursorHistory) -> None:
    history.shown("c", {KEY: 5}, {KEY: (2, 6)}, history.invoked())


def _position_is_lost_at_the_end(history: CursorHistory) -> None:
    history.final(1, lambda name, key: 4, lambda key: True)


@pytest.mark.parametrize(
    ("promise", "anomaly"),
    [
        ("G1", _fenced_commit_is_accepted),
        ("G1", _fenced_opening_is_accepted),
        ("G1", _newest_is_fenced),
        ("G1", _opening_is_lost),
        ("G3", _cursor_is_gone),
        ("G3", _position_is_lost),
        ("G3", _rows_are_lost),
        ("G3", _position_was_never_committed),
        ("G3", _position_is_lost_at_the_end),
    ],
)
def test_anomaly_is_found(promise: str, anomaly: Callable[[CursorHistory], None]) -> None:
    with pytest.raises(Violation) as found:
        anomaly(_history())
    assert found.value.promise == promise


def test_a_history_without_a_broken_promise_is_accepted() -> None:
    history = _history()
    late = CursorHistory()
    before = late.invoked()
    late.next_holder()
    late.next_holder()
    late.opened("c", [KEY], 2, late.invoked())
    late.committed("c", {KEY: 1}, 1, before)  # it began before the other reader opened
    history.refused("c", [KEY], 1, {"status": "fenced"}, history.invoked())
    history.shown("c", {KEY: 5}, {KEY: (2, 5)}, history.invoked())
    history.final(1, lambda name, key: 5, lambda key: True)
    history.final(2, lambda name, key: 0, lambda key: False)
    assert (history.commits, history.fenced, history.reads) == (1, 1, 1)


def test_G1_G3_readers_keep_cursors_through_splits_and_merges() -> None:
    outcome = run_seed(1, CALM)
    assert outcome.violation is None
    assert min(outcome.commits, outcome.fenced, outcome.splits + outcome.joins) > 0
    again = run_seed(1, CALM)
    assert again.trace == outcome.trace


def test_only_some_runs_have_readers_and_no_run_that_accepts_losses() -> None:
    drawn = [swarm(seed, Options(), pick_faults=True, pick_nodes=True) for seed in range(300)]
    readers = [options for options in drawn if options.cursors]
    assert 20 <= len(readers) <= 60
    assert not any(options.recovers or not options.changes for options in readers)
    assert " cursors" in str(readers[0])
    assert Options.from_json(readers[0].to_json()) == readers[0]


def test_G3_a_split_that_loses_cursors_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip.cursors, "clipped", lambda *_: {})
    violations = (run_seed(seed, CALM).violation for seed in range(8))
    assert any(found is not None and found.startswith("G3") for found in violations)


def test_G1_a_commit_of_an_older_reader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Cursors.commit

    def commit(
        self: Cursors, name: str, holder: int, spans: Sequence[SpanPosition],
        keys: Sequence[tuple[bytes, int]],
    ) -> LognodeError | None:  # fmt: skip
        found: Any = self.found.get(name)
        present = max((held.holder for held in found.spans.values), default=0) if found else 0
        return whole(self, name, max(present, holder), spans, keys)

    monkeypatch.setattr(Cursors, "commit", commit)
    violations = (run_seed(seed, CALM).violation for seed in range(8))
    assert any(found is not None and found.startswith("G1") for found in violations)
