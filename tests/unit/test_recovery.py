"""Unsafe recovery: when it is refused, and how a range goes on from one member, by the pure
functions alone."""

from dataclasses import replace
from typing import Any

import pytest
from pure_nodes import Nodes, do, end_of

from lognode.partitions import commands
from lognode.partitions.change import next_steps
from lognode.partitions.duties import (
    Begin,
    CatchUp,
    Duty,
    Flush,
    GoAlone,
    Held,
    Local,
    Retire,
    Seal,
    StandDown,
    Tell,
    duties,
)
from lognode.partitions.facts import Facts
from lognode.partitions.lineage import recovered, successor
from lognode.partitions.metadata import Metadata
from lognode.partitions.recovery import SEQS_LEFT_OUT

OLD, NEW = (1, 1), (1, 2)
END = end_of(OLD)
SERVES = Held(
    leads=False, leader=None, members=(1, 2, 3), sealed=False, end=None, memtable_bytes=0,
    base_wanted=False,
)  # fmt: skip
ALONE = SERVES._replace(members=(1,), leads=True, leader=1)


def cluster(nodes: int = 5, dead: tuple[int, ...] = (2, 3), replicas: int = 3) -> Metadata:
    metadata = Metadata()
    do(metadata, op=commands.FOUND, cluster="c", node=1)
    for node in range(1, nodes + 1):
        do(metadata, op=commands.REGISTER, incarnation=node, boot=1, process=1, address="a:1")
    do(metadata, op=commands.CREATE_LOG, name="orders", replicas=replicas)
    metadata.controller = replace(metadata.controller, members=(1, 4, 5))
    for node in dead:
        do(metadata, op=commands.NODE_STATE, node=node, state="DEAD")
    return metadata


def recover(metadata: Metadata, **command: Any) -> dict[str, Any]:
    before = metadata.image()
    asked = {"op": commands.RECOVER, "range": 1, "from": 1, **command}
    answer = metadata.apply(1, 1, asked)
    assert "ok" in answer or metadata.image() == before, "a refused command changed something"
    return answer


# Whether it may begin.


def test_a_recovery_is_sealing_from_the_start_and_names_the_survivor_alone() -> None:
    metadata = cluster()
    answer = recover(metadata)["ok"]
    assert answer == {"operation": 1, "generation": 2, "version": metadata.version}
    (operation,) = metadata.operations.values()
    assert (operation.kind, operation.phase, operation.inputs) == ("recover", "SEALING", (OLD,))
    (output,) = operation.outputs
    assert (output.range_id, output.generation, output.members) == (1, 2, (1,))
    assert operation.reason == "an operator goes on from node 1 alone"
    refused = metadata.apply(1, 1, {"op": commands.ABORT, "operation": 1})
    assert "is in phase SEALING, not PLANNED" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("dead", "command", "code", "said"),
    [
        ((2,), {}, "CONFLICT", "nodes 1, 3 of its members 1, 2, 3 run"),
        ((), {}, "CONFLICT", "has a majority"),
        ((2, 3), {"range": 9}, "RANGE_NOT_FOUND", "range 9 does not exist"),
        ((2, 3), {"range": 0}, "INVALID_ARGUMENT", "range 0 is the controller"),
        ((2, 3), {"range": None}, "INVALID_ARGUMENT", "range 0 is the controller"),
        ((2, 3), {"range": "1"}, "INVALID_ARGUMENT", "range is '1'; give an integer"),
        ((2, 3), {"from": 4}, "NODE_NOT_FOUND", "node 4 has no replica .* members 1, 2, 3"),
        ((2, 3), {"from": 99}, "NODE_NOT_FOUND", "node 99 has no replica of range 1"),
        ((2, 3), {"from": None}, "NODE_NOT_FOUND", "node 0 has no replica of range 1"),
        ((2, 3), {"from": 2}, "CONFLICT", r"node 2 is DEAD: .* \(1\)"),
        ((1, 2, 3), {}, "CONFLICT", r"node 1 is DEAD: .* \(none runs\)"),
        ((2,), {"damaged": [1, 3]}, "CONFLICT", "the replica of node 1 is damaged"),
        ((2, 3), {"damaged": "x"}, "INVALID_ARGUMENT", "damaged is 'x'; give integers"),
    ],
)
def test_a_refusal_gives_the_reason_and_changes_nothing(
    dead: tuple[int, ...], command: dict[str, Any], code: str, said: str
) -> None:
    error = recover(cluster(dead=dead), **command)["error"]
    assert error["code"] == code
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(error["message"])


def test_members_that_are_damaged_for_good_are_gone_too() -> None:
    assert "ok" in recover(cluster(dead=(2,)), damaged=[3])


def moved(metadata: Metadata, phase: str, *installed: int) -> Metadata:
    """A move from node 3 to node 4 before nodes 2 and 3, or 4, are lost."""
    do(metadata, op=commands.MOVE, **{"range": 1, "from": 3, "to": 4})
    if phase != "PLANNED":
        do(metadata, op=commands.SEALING, operation=1)
    if phase == "DECIDED":
        do(metadata, op=commands.DECIDE, operation=1, lineage=[list(END)], members=[[1, 2, 4]])
    for node in installed:
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    for node in (2, 4 if phase == "DECIDED" else 3):
        do(metadata, op=commands.NODE_STATE, node=node, state="DEAD")
    return metadata


@pytest.mark.parametrize(
    ("phase", "installed"), [("PLANNED", ()), ("DECIDED", ()), ("DECIDED", (2,))]
)
def test_an_operation_that_may_end_by_itself_is_waited_for(
    phase: str, installed: tuple[int, ...]
) -> None:
    """Of one that is decided the survivor may not have all that was acknowledged before it."""
    error = recover(moved(cluster(dead=()), phase, *installed))["error"]
    assert (error["code"], error["fields"]) == (
        "OPERATION_IN_PROGRESS",
        {"range": 1, "operation": 1},
    )
    assert f"(move, {phase})" in error["message"]


def test_an_operation_whose_seal_waits_for_the_lost_majority_gives_way() -> None:
    metadata = moved(cluster(dead=()), "SEALING")
    assert "ok" in recover(metadata)
    assert list(metadata.operations) == [2]
    assert metadata.ranges[1].operation == 2
    assert metadata.last_operations[1].outcome == "ABORTED"
    assert not metadata.is_done(*OLD)


def test_an_operation_that_waits_for_the_lost_to_install_gives_way_to_the_next_generation() -> None:
    """The survivor has installed it, and with it all that its input had."""
    metadata = moved(cluster(dead=()), "DECIDED", 1)
    assert recover(metadata)["ok"]["generation"] == 3
    (operation,) = metadata.operations.values()
    assert operation.inputs == (NEW,)
    assert metadata.is_done(*OLD)


def test_a_recovery_may_get_another_survivor_until_it_is_decided() -> None:
    metadata = cluster(nodes=7, dead=(1, 2, 3), replicas=5)
    metadata.controller = replace(metadata.controller, members=(5, 6, 7))
    assert "ok" in recover(metadata, **{"from": 4})
    error = recover(metadata, **{"from": 4})["error"]
    assert "(recover, SEALING)" in error["message"]
    # Those who come back take no part: without the survivor the range would wait for ever.
    for node, state in ((4, "DEAD"), (1, "ACTIVE"), (2, "ACTIVE")):
        do(metadata, op=commands.NODE_STATE, node=node, state=state)
    assert "ok" in recover(metadata, **{"from": 5})
    (operation,) = metadata.operations.values()
    assert (operation.operation_id, operation.outputs[0].members) == (2, (5,))
    do(metadata, op=commands.DECIDE, operation=2, lineage=[list(END)], members=[[5]])
    do(metadata, op=commands.NODE_STATE, node=4, state="ACTIVE")
    assert recover(metadata, **{"from": 4})["error"]["code"] == "NODE_NOT_FOUND"


# What nodes do.


def asked(metadata: Metadata, node: int, **has: Any) -> list[Duty]:
    return duties(metadata, Local(node_id=node, **has))


def test_the_survivor_leaves_the_others_and_ends_the_generation_alone() -> None:
    metadata = cluster()
    recover(metadata)
    for held in (SERVES, SERVES._replace(leads=True), ALONE._replace(stopped=True)):
        assert asked(metadata, 1, replicas={OLD: held}) == [GoAlone(OLD, 1)]
    assert asked(metadata, 1, replicas={OLD: ALONE}) == [Seal(OLD, 1)]
    sealed = ALONE._replace(sealed=True)
    assert asked(metadata, 1, replicas={OLD: sealed}) == [Flush(OLD)]
    ended = sealed._replace(end=END)
    assert asked(metadata, 1, replicas={OLD: ended}) == [Tell(1, "sealed", END)]
    by_quorum = ended._replace(members=(1, 2, 3), leads=False)
    assert asked(metadata, 1, replicas={OLD: by_quorum}) == [Tell(1, "sealed", END)]
    assert asked(metadata, 1, damaged=[OLD], marks={1: 1}) == [], "nobody else has it"
    do(metadata, op=commands.DECIDE, operation=1, lineage=[list(END)], members=[[1]])
    begin = Begin(metadata.ranges[1], True, ("recovered",))
    assert asked(metadata, 1, replicas={OLD: ended}) == [begin]


def test_S2_the_others_take_no_part_and_delete_nothing_before_it_is_done() -> None:
    metadata = cluster()
    recover(metadata)
    stopped = SERVES._replace(stopped=True)
    for _ in ("SEALING", "DECIDED"):
        for held in (SERVES, SERVES._replace(sealed=True, end=END)):
            assert asked(metadata, 2, replicas={OLD: held}) == [StandDown(OLD)]
        assert asked(metadata, 2, replicas={OLD: stopped._replace(base_wanted=True)}) == []
        if "DECIDED" not in [each.phase for each in metadata.operations.values()]:
            do(metadata, op=commands.DECIDE, operation=1, lineage=[list(END)], members=[[1]])
    do(metadata, op=commands.INSTALLED, operation=1, node=1)
    for held in (SERVES, stopped):
        assert asked(metadata, 2, replicas={OLD: held}) == [Retire((OLD,))]


def test_a_stopped_replica_is_not_asked_to_fetch_a_base() -> None:
    wants = SERVES._replace(base_wanted=True)
    assert asked(cluster(), 2, replicas={OLD: wants}) == [CatchUp(OLD)]
    assert asked(cluster(), 2, replicas={OLD: wants._replace(stopped=True)}) == []


def test_S6_seqs_go_on_far_above_those_of_entries_that_may_be_lost() -> None:
    tables = {"sealed": [7, 40, 3], "next_seq": 100, "hash": b"hash"}
    assert recovered(tables) == {**successor(tables), "next_seq": 100 + SEQS_LEFT_OUT}
    assert 8_000 * SEQS_LEFT_OUT < 1 << 53


STEPS = 12


@pytest.mark.parametrize("killed_at", range(STEPS))
@pytest.mark.parametrize("new_leader", [False, True], ids=["", "a new leader of the controller"])
@pytest.mark.parametrize("others_back", [False, True], ids=["others gone", "others come back"])
def test_a_recovery_completes_after_a_death_of_the_survivor_at_any_step(
    killed_at: int, new_leader: bool, others_back: bool
) -> None:
    """Each node does at once what it is asked; the controller commits what is next."""
    nodes, facts = Nodes(cluster(dead=())), Facts()
    metadata = nodes.metadata
    nodes.look(facts, 0.0)
    nodes.down = {2, 3}
    for node in (2, 3):
        do(metadata, op=commands.NODE_STATE, node=node, state="DEAD")
    recover(metadata)
    for tick in range(3 * STEPS):
        if tick == killed_at:
            nodes.down.add(1)
            facts = Facts() if new_leader else facts
        elif tick == killed_at + 2:
            nodes.restart(1)
        elif tick == killed_at + 1 and others_back:
            nodes.restart(2)
            nodes.restart(3)
        nodes.look(facts, float(tick))
        for step in next_steps(metadata, facts, float(tick), leads_for_s=100.0):
            if "recover" in [operation.kind for operation in metadata.operations.values()]:
                do(metadata, **step)
        leaders = [
            local.node_id
            for local in nodes.nodes.values()
            if OLD in local.replicas and local.replicas[OLD].sealed
        ]
        assert set(leaders) <= {1}, "nobody else ends the generation"
    range_ = metadata.ranges[1]
    assert (range_.members, range_.generation, range_.operation) == ((1,), 2, 0)
    assert metadata.last_operations[1].kind == "recover"
    assert list(nodes.nodes[1].replicas) == [NEW]
    if others_back:
        assert not nodes.nodes[2].replicas, "it has learned its outcome"
        assert not nodes.nodes[3].replicas


def test_the_word_of_another_member_counts_for_nothing() -> None:
    metadata, facts = cluster(), Facts()
    recover(metadata)
    for node in (2, 3):
        told = {"operation": 1, "kind": "sealed", "lineage": list(END)}
        facts.take(node, told, 0.0)
    assert next_steps(metadata, facts, 1.0, leads_for_s=1.0) == []
    facts.take(1, {"operation": 1, "kind": "sealed", "lineage": list(END)}, 1.0)
    (decide,) = next_steps(metadata, facts, 1.0, leads_for_s=1.0)
    assert (decide["op"], decide["members"]) == (commands.DECIDE, [[1]])
