"""The simulator's dead letters: what the check finds, and that a run has some."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.chaos.sim.history import History
from lognode.chaos.sim.letters import DEAD, Copies, LetterHistory, value_of
from lognode.chaos.sim.options import Options, swarm
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import World, run_seed
from lognode.raft.types import GroupId
from lognode.statemachine.groups.row import Row

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


def test_a_leader_that_has_died_does_nothing_with_a_late_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 19039 of commit 02fc2fc5: a leader that had lost power went on after a restart."""
    world = World(1, replace(Options(), faults=(), phases=False), None, ())
    for each in world.hosts.values():
        world.network.add(each)
        each.start()
    host, answers, proposed = world.hosts[1], [], []
    monkeypatch.setattr(world, "request", lambda _node, _body, take, _rng: answers.append(take))
    replica: Any = SimpleNamespace(gid=GroupId(1, 1), host=host)
    copies = Copies(
        replica, GROUP, FENCE, lambda *what: proposed.append(what), lambda: False, lambda: None
    )
    for number, key in enumerate((b"k", b"j"), 7):
        copies._send(key, Row(5, parked=True, producer=P, number=number))
    answers[0]({"status": "ok", "seqs": [12]})
    assert len(proposed) == 1
    host.power_loss()
    host.start()
    answers[1]({"status": "ok", "seqs": [13]})
    assert len(proposed) == 1
    assert world.history.appends[value_of(P, 8)].state == "acked", "the copy is there all the same"


@pytest.mark.slow
def test_a_run_has_dead_letters() -> None:
    options = swarm(263, Options(), pick_faults=True, pick_nodes=True)
    assert options.letters
    outcome = run_seed(263, options)
    assert (outcome.violation, outcome.letters > 9) == (None, True)
