"""The simulator with waits for views: leaders tell, and the check sees a false `seen`."""

from dataclasses import replace
from typing import Any

import pytest

from lognode.chaos.sim import views
from lognode.chaos.sim.cursors import CursorHistory
from lognode.chaos.sim.deliveries import Deliveries
from lognode.chaos.sim.history import History
from lognode.chaos.sim.letters import LetterHistory
from lognode.chaos.sim.options import Options, swarm
from lognode.chaos.sim.views import ViewHistory
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import run_seed

GROUPED = replace(
    Options(), faults=("kill", "partition", "change"), consumers=3, cursors=True, views=True,
    keys=3, think_seconds=0.3,
)  # fmt: skip
KEY = b"0/k0"
LETTERS = LetterHistory(History())


def test_G7_a_group_has_seen_what_is_acknowledged() -> None:
    history = ViewHistory(Deliveries(LETTERS, acked={(KEY, 3)}), CursorHistory())
    history.told("", KEY, 3)
    with pytest.raises(Violation, match="no majority has") as found:
        history.told("", KEY, 4)
    assert found.value.promise == "G7"


def test_G7_what_a_cursor_has_seen_was_committed_and_stays() -> None:
    cursors = CursorHistory()
    history = ViewHistory(Deliveries(LETTERS), cursors)
    cursors.tries("c", {KEY: 4})
    history.told("c", KEY, 3)
    assert cursors.floors["c", KEY] == 4
    with pytest.raises(Violation, match="a node lacks"):
        cursors.final(1, lambda name, key: 3, lambda key: True)
    with pytest.raises(Violation, match="nobody committed") as found:
        history.told("c", KEY, 4)
    assert found.value.promise == "G7"


def test_G7_waits_are_answered_in_runs_with_faults() -> None:
    outcome = run_seed(3, GROUPED)
    assert outcome.violation is None
    assert min(outcome.seen, outcome.unseen, outcome.seals) > 0
    assert run_seed(3, GROUPED).trace == outcome.trace


@pytest.mark.parametrize("name", ["seen_by_group", "seen_by_cursor"])
def test_G7_a_leader_that_says_seen_of_everything_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def seen(*_: Any) -> bool:
        return True

    monkeypatch.setattr(views, name, seen)
    violation = run_seed(1, replace(GROUPED, consumers=3 * ("group" in name)))
    assert str(violation.violation).startswith("G7")


def test_only_runs_with_views_wait() -> None:
    drawn = [swarm(seed, Options(), pick_faults=True, pick_nodes=True) for seed in range(300)]
    waiting = [options for options in drawn if options.views]
    assert 30 <= len(waiting) <= 90
    assert all(options.consumers or options.cursors for options in waiting)
    assert " views" in str(waiting[0])
    assert Options.from_json(waiting[0].to_json()) == waiting[0]
