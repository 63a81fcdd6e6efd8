"""Segments rot in the simulator, and are repaired there by the rule of the node."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from lognode.chaos.sim.faults import Fault
from lognode.chaos.sim.host import Host
from lognode.chaos.sim.options import Options
from lognode.chaos.sim.replica import RangeReplica
from lognode.chaos.sim.world import Outcome, World, judge
from lognode.client.protocol.errors import CorruptData
from lognode.node.directory import meta_keys
from lognode.node.rules import repairing
from lognode.node.rules.durable_steps import Resume, Steps

OPTIONS: Final = Options(
    faults=("rot", "checkpoint"), seconds=8.0, fault_seconds=5.0, drain_seconds=6.0,
    checkpoint_entries=15, think_seconds=0.3, phases=False,
)  # fmt: skip
VICTIM: Final = 2
SEED: Final = 3
FLIPPED: Final = 0.99
"""Picks the last file of the victim, and changes its bytes."""
GONE: Final = 0.01
"""Picks the first file of the victim, and removes it."""


def world_of(*faults: Fault, lines: list[str], options: Options = OPTIONS) -> World:
    return World(SEED, options, lines.append, faults)


def rots(at: float, value: float, *, seconds: float = 0.0) -> Fault:
    return Fault(at, "rot", (VICTIM,), (), seconds, "segment", value)


def words(lines: list[str]) -> list[str]:
    """What happened to the victim's files and to its replica."""
    told = ("rot", "doubt", "aside", "repaired", "unrepaired", "continue", "damaged")
    found = [line.split(" ")[1:3] for line in lines]
    return [what for where, what in found if where == f"n{VICTIM}" and what in told]


def whole(outcome: Outcome) -> None:
    assert outcome.violation is None, outcome.violation
    assert outcome.acked > 20


@pytest.mark.parametrize("value", [FLIPPED, GONE])
def test_S12_a_file_that_rots_while_the_process_runs_is_repaired_in_place(value: float) -> None:
    lines: list[str] = []
    world = world_of(rots(2.5, value), lines=lines)
    whole(judge(world))
    assert words(lines) == ["rot", "doubt", "repaired"], "the replica goes on all the time"
    assert world.repairs == 1
    assert not world.hosts[VICTIM].durable.files.rotten


@pytest.mark.parametrize("value", [FLIPPED, GONE])
def test_x2_x28_a_start_that_finds_a_damaged_file_waits_for_a_peers(value: float) -> None:
    lines: list[str] = []
    whole(judge(world_of(rots(2.5, value, seconds=0.3), lines=lines)))
    assert words(lines) == ["rot", "aside", "doubt", "repaired", "continue"]


def test_x28_a_start_trusts_a_file_that_was_read_back_and_a_reader_finds_the_damage() -> None:
    lines: list[str] = []
    world = world_of(rots(4.8, FLIPPED, seconds=0.3), lines=lines)
    whole(judge(world))
    assert words(lines) == ["rot", "doubt", "repaired"]


def replica_on(host: Host) -> RangeReplica:
    assert host.replicas is not None
    (replica,) = host.replicas.ranges()
    return replica


def interrupted(world: World, at: float, act: Callable[[Host], None]) -> Outcome:
    """Run the world, and act on the victim at a time, as a part of its process."""
    host = world.hosts[VICTIM]
    world.scheduler.after(at, lambda: host.now(lambda: act(host)))
    return judge(world)


def test_x2_a_member_that_needs_a_damaged_file_to_apply_an_entry_continues_from_its_base() -> None:
    lines: list[str] = []

    def stuck(host: Host) -> None:
        replica = replica_on(host)
        names = [info.content_id for info in replica.store.state.durable_base.manifest]
        host.durable.files.rotten.add(names[0])
        assert host.repairs is not None
        error = CorruptData("a checksum", segment=names[0])
        host.repairs.step_found(replica, error)
        assert replica.stopped
        assert replica.gid not in host.replicas.groups  # type: ignore[union-attr]

    whole(interrupted(world_of(lines=lines), 2.5, stuck))
    assert words(lines) == ["aside", "doubt", "repaired", "continue"]


def test_S12_a_file_that_no_other_member_has_ends_the_replica() -> None:
    lines: list[str] = []
    alone = replace(OPTIONS, checkpoint_entries=10_000)
    # The victim alone makes a checkpoint: no other member has its file.
    own = Fault(2.0, "checkpoint", (VICTIM,))
    world = world_of(own, rots(3.0, FLIPPED), lines=lines, options=alone)
    whole(judge(world))
    assert words(lines) == ["rot", "doubt", "unrepaired", "damaged"]
    replicas = world.hosts[VICTIM].replicas
    assert replicas is not None
    ((gid, reason),) = replicas.damaged.items()
    row = world.hosts[VICTIM].durable.row(meta_keys.replica_key(gid))
    assert row["damaged"] == reason


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("at_start", [False, True], ids=["found later", "found by a start"])
def test_S2_S12_x2_28_a_node_dies_before_each_disk_operation_of_a_repair(
    how: str, at_start: bool
) -> None:
    """Operations of the WAL are among them, too."""
    at, seconds = (2.81, 0.3) if at_start else (2.5, 0.0)
    deaths = found = 0
    for operation in range(1, 13):
        lines: list[str] = []
        dies = Fault(at, "boundary", (VICTIM,), (), 0.1, how, operation)
        world = world_of(rots(2.5, FLIPPED, seconds=seconds), dies, lines=lines)
        outcome = judge(world)
        whole(outcome)
        assert "repaired" in words(lines), operation
        assert "damaged" not in words(lines), operation
        deaths += outcome.crashes
        found += words(lines).count("doubt")
    assert deaths >= 12
    assert found > 12, "some repairs were broken off and begun again"


def test_the_simulator_carries_out_the_rule_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken rule breaks a promise in the run."""

    def unrepaired(content_id: str) -> Steps:
        return (Resume(content_id),)

    monkeypatch.setattr(repairing, "doubt", unrepaired)
    outcome = judge(world_of(rots(2.5, FLIPPED), lines=[]))
    assert outcome.violation is not None
    assert outcome.violation.startswith("L2")
