"""The simulator with ranges that lose most of their replicas: an operator goes on from the one that
is left. What only the others had may be lost, nothing else is, and a recovery that goes wrong is
found.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lognode.chaos.sim import duties
from lognode.chaos.sim.faults import Fault
from lognode.chaos.sim.history import History
from lognode.chaos.sim.options import Options, swarm
from lognode.chaos.sim.replica import RangeReplica
from lognode.chaos.sim.violation import Violation
from lognode.chaos.sim.world import World, judge, run_seed
from lognode.node.rules.first_base import first_base
from lognode.partitions.model import Span
from lognode.partitions.recovery import SEQS_LEFT_OUT
from lognode.raft.types import LogEntry
from lognode.statemachine import commands

FAULTS = ("change", "kill", "partition")
RECOVERS = replace(Options(), faults=FAULTS, recovers=True, think_seconds=0.1, window=4)
SEEDS = range(6)
WHOLE, HALF = Span(b"", None), Span(b"a", b"m")


@pytest.mark.slow
def test_S2_S6_L2_a_range_goes_on_from_the_replica_that_is_left() -> None:
    recoveries = acked = lost = 0
    for seed in SEEDS:
        world = World(seed, RECOVERS)
        outcome = judge(world)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        recoveries += outcome.recoveries
        acked += outcome.acked
        lost += outcome.lost
        if outcome.recoveries:  # what was given after it left all out that may be lost
            assert max(world.history.floors.values()) > SEQS_LEFT_OUT
    assert recoveries >= len(SEEDS)
    assert 0 < lost < acked / 2


@pytest.mark.slow
def test_a_run_that_recovers_replays_exactly() -> None:
    first = run_seed(1, RECOVERS)
    assert first == run_seed(1, RECOVERS)
    schedule = [Fault.from_json(fault) for fault in first.schedule]
    assert "wreck" in [fault.how for fault in schedule]
    assert run_seed(1, RECOVERS, None, schedule).trace == first.trace


def test_swarm_recovers_only_from_replicas_that_do_not_rot() -> None:
    drawn = [swarm(seed, Options(), pick_faults=True, pick_nodes=True) for seed in range(1000)]
    recovers = [options for options in drawn if options.recovers]
    assert len(recovers) >= 20
    for options in recovers:
        assert options.changes
        assert "rot" not in options.faults
        assert not any((options.loses, options.grows, options.removals))


# What goes wrong is found.


def _broken(seeds: range = SEEDS) -> set[str]:
    found = (run_seed(seed, RECOVERS).violation for seed in seeds)
    return {violation.partition(":")[0] for violation in found if violation is not None}


def test_a_survivor_that_leaves_out_what_it_had_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RangeReplica.apply

    def apply(self: RangeReplica, entry: LogEntry) -> Any:
        command = commands.decode(entry.command)
        alone = self.descriptor.state == "SEALING"
        if alone and command is not None and command.kind == commands.APPEND:
            entry = replace(entry, command=commands.NO_OP)
        return whole(self, entry)

    monkeypatch.setattr(RangeReplica, "apply", apply)
    assert _broken(SEEDS[:2]) == {"state-machine-safety"}


@pytest.mark.slow
def test_S2_a_recovered_range_without_its_newest_file_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shortened(range_: Any, ends: Any, *, lost: bool) -> Any:
        base = first_base(range_, ends, lost=lost)
        return replace(base, manifest=base.manifest[:-1]) if lost else base

    monkeypatch.setattr(duties, "first_base", shortened)
    found = _broken()
    assert found
    assert found <= {"S2", "S5", "S7"}


def test_x6_seqs_that_are_given_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(range_: Any, ends: Any, *, lost: bool) -> Any:
        return first_base(range_, ends)

    monkeypatch.setattr(duties, "first_base", forgetful)
    assert _broken(SEEDS[:2]) == {"x6"}


# The history.


def _history() -> History:
    """Of key k: a at 1, b at 2 and c at 3 acknowledged, of key z: o at 1; d is asked for."""
    history = History()
    for number, value in enumerate((b"a", b"b", b"c"), 1):
        history.invoke(b"k", value, producer=1, number=number)
        history.ack(value, number)
    history.invoke(b"z", b"o", producer=2, number=1)
    history.ack(b"o", 1)
    history.invoke(b"k", b"d", producer=2, number=2)
    return history


def _lost(kept: list[tuple[int, bytes]], since: int = 3, span: Span = WHOLE) -> History:
    """A range of these keys goes on with what is kept of k."""
    history = _history()
    history.lose(span, since, 100, {b"k": kept, b"z": [(1, b"o")]})
    return history


A_B = [(1, b"a"), (2, b"b")]


def test_a_recovery_may_lose_only_entries_that_the_survivor_lacks() -> None:
    history = _lost(A_B)
    assert history.lost == 1
    assert history.expected(b"k") == 2
    history.complete_read(history.invoke_read(b"k"), 2, A_B)
    history.complete_read(history.invoke_read(b"k", 3), 2, A_B)  # its session has seen c
    history.ack(b"d", 101)
    history.final(1, {b"k": [*A_B, (101, b"d")], b"z": [(1, b"o")]})
    assert _lost([*A_B, (3, b"c")]).lost == 0


def test_S3_a_lone_survivor_may_have_another_entry_at_a_lost_seq() -> None:
    """A leader that was cut off took d for the third entry, the others agreed on c."""
    history = _lost([*A_B, (3, b"d")])
    history.complete_read(history.invoke_read(b"k"), 3, [*A_B, (3, b"d")])
    history.ack(b"d", 3)
    history.final(1, {b"k": [*A_B, (3, b"d")], b"z": [(1, b"o")]})


def test_a_request_during_a_loss_may_show_the_state_before_or_after_the_loss() -> None:
    history = _history()
    early, late = history.invoke_read(b"k"), history.invoke_read(b"k")
    history.invoke(b"k", b"e", producer=2, number=3)
    history.lose(WHOLE, 3, 100, {b"k": A_B, b"z": [(1, b"o")]})
    history.complete_read(early, 3, [*A_B, (3, b"c")])
    history.complete_read(late, 2, A_B)
    history.ack(b"e", 4)  # by those who are lost
    history.refuse(b"d")  # by them as well; a request of it that is late is taken all the same
    assert history.lost == 2
    history.final(1, {b"k": [*A_B, (101, b"d")], b"z": [(1, b"o")]})


def _reads(last: int, told: list[tuple[int, bytes]], history: History) -> None:
    history.complete_read(history.invoke_read(b"k"), last, told)


def _ends(kept: list[tuple[int, bytes]], history: History) -> None:
    history.final(1, {b"k": kept, b"z": [(1, b"o")]})


def _other_range(history: History) -> None:
    history.final(1, {b"k": A_B, b"z": []})


@pytest.mark.parametrize(
    ("promise", "history", "anomaly"),
    [
        ("S2", _lost(A_B[:1]), partial(_ends, A_B[:1])),
        ("S2", _lost(A_B, span=HALF), _other_range),
        ("S2", _lost([*A_B, (3, b"c")]), partial(_ends, A_B)),
        ("S7", _lost(A_B), partial(_reads, 1, A_B[:1])),
        ("S5", _lost(A_B), partial(_reads, 3, [*A_B, (3, b"c")])),
    ],
)
def test_anomaly_is_found(
    promise: str, history: History, anomaly: Callable[[History], None]
) -> None:
    with pytest.raises(Violation) as found:
        anomaly(history)
    assert found.value.promise == promise
