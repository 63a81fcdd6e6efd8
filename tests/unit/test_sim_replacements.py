"""The simulator with a machine lost for good: others take its place, nothing is lost, and a cluster
in which that goes wrong is found.
"""

from dataclasses import replace
from typing import Any

import pytest

from lognode.chaos.sim.duties import Duties
from lognode.chaos.sim.faults import Fault
from lognode.chaos.sim.options import REPLICAS, Options, swarm
from lognode.chaos.sim.world import Outcome, World, judge, run_seed
from lognode.node.rules.base_fetches import Own
from lognode.partitions import planner
from lognode.partitions.leaving import NEVER

FAULTS = ("change", "kill", "partition")
LOSES = replace(Options(), nodes=5, faults=FAULTS, loses=True, think_seconds=0.3)
SEEDS = range(4)


def _run(seed: int, options: Options) -> tuple[World, Outcome]:
    world = World(seed, options)
    return world, judge(world)


@pytest.mark.slow
@pytest.mark.parametrize("repair_after_s", [NEVER, 0.5])
def test_S2_L2_others_take_the_place_of_a_machine_that_is_lost(repair_after_s: float) -> None:
    replacements = 0
    for seed in SEEDS:
        world, outcome = _run(seed, replace(LOSES, repair_after_seconds=repair_after_s))
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        replacements += outcome.replacements
        (gone,) = world.nemesis.gone
        metadata = world.hosts_left()[0].view.metadata
        assert metadata.nodes[gone].state == ("REMOVED" if repair_after_s == NEVER else "DEAD")
        for group in (metadata.controller, *metadata.ranges.values()):
            assert gone not in group.members
            assert len(group.members) == REPLICAS
    assert replacements >= len(SEEDS) // 2


@pytest.mark.slow
def test_a_run_that_loses_a_machine_replays_exactly() -> None:
    options = replace(LOSES, repair_after_seconds=0.5)
    first = run_seed(1, options)
    assert first == run_seed(1, options)
    schedule = [Fault.from_json(fault) for fault in first.schedule]
    assert [fault.kind for fault in schedule].count("lose") == 1
    assert run_seed(1, options, None, schedule).trace == first.trace


def test_swarm_loses_machines_only_where_others_can_take_their_place() -> None:
    drawn = [swarm(seed, Options(), pick_faults=True, pick_nodes=True) for seed in range(1000)]
    loses = [options for options in drawn if options.loses]
    assert len(loses) >= 20
    for options in loses:
        assert options.changes
        assert options.nodes > REPLICAS
        assert not options.grows
    assert {options.repair_after_seconds > NEVER for options in loses} == {False, True}


def _broken(options: Options) -> set[str]:
    found = (run_seed(seed, options).violation for seed in SEEDS)
    return {violation.partition(":")[0] for violation in found if violation is not None}


@pytest.mark.slow
def test_L2_a_cluster_that_replaces_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "replacement", lambda *_: None)
    assert "L2" in _broken(LOSES)


@pytest.mark.slow
def test_S2_a_replacement_that_begins_without_what_was_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Duties._end_of

    def end_of(self: Duties, duty: Any, parent: Any) -> Any:
        end = whole(self, duty, parent)
        return end if end is None or isinstance(parent, Own) else replace(end, manifest=[])

    monkeypatch.setattr(Duties, "_end_of", end_of)
    found = _broken(replace(LOSES, repair_after_seconds=0.5))
    assert found & {"S2", "S5", "S7", "state-machine-safety"}
