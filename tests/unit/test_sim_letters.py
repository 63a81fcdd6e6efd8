"""The simulator's dead letters: what the check finds, and that a run has some."""

import pytest

from lognode.chaos.sim.history import History
from lognode.chaos.sim.letters import DEAD, LetterHistory, value_of
from lognode.chaos.sim.options import Options, swarm
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import run_seed

FENCE, GROUP, P = 3, 1, 99


def letters() -> LetterHistory:
    """One dead letter of key k, with an acknowledged copy."""
    found = LetterHistory(History())
    found.numbered([GROUP, FENCE, P, [[b"k", 1, 5, 7], [b"j", 1, 6, 8]]], [1])
    found.history.invoke(DEAD + b"k", value_of(P, 7), producer=P, number=7)
    return found


def test_G2_a_key_passes_no_entry_without_a_copy() -> None:
    found = letters()
    copied = [GROUP, FENCE, [[b"k", 5]], 5]
    assert found.copied(copied, [0]) == []
    with pytest.raises(Violation, match="without a copy"):
        found.copied(copied, [])
    found.history.ack(value_of(P, 7), 12)
    assert found.copied(copied, []) == [(b"k", 5)]
    with pytest.raises(Violation, match="without a copy"):
        found.copied([GROUP, FENCE, [[b"j", 6]], 5], [])


def test_S8_an_entry_has_one_letter_and_a_letter_one_entry() -> None:
    found = letters()
    found.numbered([GROUP, FENCE, P, [[b"k", 5, 5, 7]]], [])
    with pytest.raises(Violation, match="twice"):
        found.numbered([GROUP, FENCE, P, [[b"k", 5, 5, 9]]], [])
    with pytest.raises(Violation, match="one name"):
        found.numbered([GROUP, FENCE, P, [[b"k", 6, 6, 7]]], [])


@pytest.mark.slow
def test_a_run_has_dead_letters() -> None:
    options = swarm(263, Options(), pick_faults=True, pick_nodes=True)
    assert options.letters
    outcome = run_seed(263, options)
    assert (outcome.violation, outcome.letters > 9) == (None, True)
