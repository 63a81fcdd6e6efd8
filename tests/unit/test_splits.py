"""Splits: what is planned and refused, and how both children come of their parent."""

import re
from typing import Any

import pytest
from pure_nodes import PHASES, VICTIMS, Nodes, carry_out, cluster, do, end_of

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.peers import HEARTBEAT
from lognode.partitions import commands
from lognode.partitions.change import next_steps
from lognode.partitions.duties import Begin, Damage, Local, Tell, duties
from lognode.partitions.facts import INSTALLED, Facts
from lognode.partitions.lineage import Gid
from lognode.partitions.locks import OPERATIONS_MAX
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Span
from lognode.partitions.planner import Large, Planned, plan

TOLD: Any = {"generation": 1, "version": 1, "leaders": [], "seen": [0, 0, 0]}

PARENT, LEFT, RIGHT = (1, 1), (1, 2), (2, 2)


def split(metadata: Metadata, at: object, log: str = "orders") -> dict[str, Any]:
    before = metadata.image()
    answer = metadata.apply(1, 1, {"op": commands.SPLIT, "log": log, "at": at})
    assert "ok" in answer or metadata.image() == before, "a refused command changed something"
    return answer


def test_a_split_keeps_the_range_for_the_left_keys_and_makes_one_for_the_right() -> None:
    metadata = cluster(split_at=[b"d"])
    answer = split(metadata, b"m")["ok"]
    assert answer == {"operation": 1, "range": 2, "generation": 2, "new_range": 3,
                      "version": metadata.version}  # fmt: skip
    (operation,) = metadata.operations.values()
    assert (operation.kind, operation.phase) == ("split", "PLANNED")
    assert operation.reason == "an operator splits it at key 'm'"
    left, right = operation.outputs
    members = metadata.ranges[2].members
    assert (left.range_id, left.generation, left.span, left.members) == (
        2, 2, Span(b"d", b"m"), members,
    )  # fmt: skip
    assert (right.range_id, right.generation, right.span, right.members) == (
        3, 2, Span(b"m", None), members,
    )  # fmt: skip
    do(metadata, op=commands.SEALING, operation=1)
    end = [2, 1, 40, 3, 100, 5, b"hash"]
    do(metadata, op=commands.DECIDE, operation=1, lineage=[end], members=[members, members])
    assert [range_.span for range_ in metadata.ranges_of(1)] == [
        Span(b"", b"d"), Span(b"d", b"m"), Span(b"m", None),
    ]  # fmt: skip
    for range_id in (2, 3):
        assert [list(parent) for parent in metadata.ranges[range_id].lineage] == [end]
    for node in members:
        do(metadata, op=commands.INSTALLED, operation=1, node=node, at_ms=7)
    assert not metadata.operations
    assert metadata.is_done(2, 1)
    assert not metadata.is_done(3, 2)
    for range_id in (2, 3):
        assert metadata.ranges[range_id].operation == 0
        assert metadata.last_operations[range_id].kind == "split"
    assert Metadata.from_image(metadata.image()).image() == metadata.image()
    assert [range_.range_id for range_ in metadata.descendants(2)] == [2, 3]
    assert [range_.range_id for range_ in metadata.descendants(3)] == [3]
    assert metadata.descendants(9) == []


@pytest.mark.parametrize(
    ("log", "at", "code", "told"),
    [
        ("none", b"k", "LOG_NOT_FOUND", "log 'none' does not exist"),
        ("orders", b"d", "INVALID_ARGUMENT", "range 2 begins at key 'd' already"),
        ("orders", b"", "INVALID_ARGUMENT", "split key has 0 bytes; 1 to 480"),
        ("orders", b"\xff" * 481, "INVALID_ARGUMENT", "split key has 481 bytes; 1 to 480"),
        ("orders", "k", "INVALID_ARGUMENT", "at is 'k'; give a key"),
        ("orders", None, "INVALID_ARGUMENT", "at is None; give a key"),
    ],
)
def test_a_split_that_cannot_be_is_refused_and_says_why(
    log: str, at: object, code: str, told: str
) -> None:
    metadata = cluster(split_at=[b"d"])
    error = split(metadata, at, log)["error"]
    assert error["code"] == code
    assert re.search(told, error["message"]), error["message"]


def test_a_range_in_an_operation_is_not_split_and_its_neighbour_is() -> None:
    metadata = cluster(nodes=4, split_at=[b"d"])
    assert "ok" in split(metadata, b"m")
    error = split(metadata, b"n")["error"]
    assert (error["code"], error["fields"]) == (
        "OPERATION_IN_PROGRESS",
        {"range": 2, "operation": 1},
    )
    assert "ok" in split(metadata, b"b")


def test_the_number_of_operations_and_of_ranges_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [b"%03d" % number for number in range(1, 8)]
    metadata = cluster(split_at=keys)
    for key in keys[:OPERATIONS_MAX]:
        assert "ok" in split(metadata, key + b"x")
    assert split(metadata, b"9")["error"]["fields"]["limit"] == "operations_max"
    do(metadata, op=commands.ABORT, operation=1)
    monkeypatch.setattr(limits, "ranges_per_log_max", 8)
    error = split(metadata, b"9")["error"]
    assert error["fields"] == {"limit": "ranges_per_log_max", "value": 9, "allowed": 8}


def test_outputs_that_do_not_cover_the_inputs_are_refused() -> None:
    """The invariants of docs/design/ranges.md#metadata, for every planner."""
    metadata = cluster(split_at=[b"d"])
    answer = metadata.apply(1, 1, {
        "op": commands.PLAN, "kind": "move", "inputs": [[1, 1]],
        "outputs": [{"range": 2, "members": [1, 2, 3]}],
    })  # fmt: skip
    assert "do not cover the inputs exactly" in answer["error"]["message"]
    assert not metadata.operations


# How it is done.


def decided(metadata: Metadata) -> Metadata:
    assert "ok" in split(metadata, b"m")
    do(metadata, op=commands.SEALING, operation=1)
    do(metadata, op=commands.DECIDE, operation=1, lineage=[list(end_of(PARENT))],
       members=[[1, 2, 3], [1, 2, 3]])  # fmt: skip
    return metadata


def test_both_children_begin_from_the_local_parent_and_its_leader_leads_both() -> None:
    metadata, nodes = cluster(), Nodes(cluster())
    nodes.look(Facts(), 0.0)
    leader = nodes.leader(PARENT)
    decided(metadata)
    for node in (1, 2, 3):
        held = nodes.nodes[node].replicas[PARENT]._replace(sealed=True, end=end_of(PARENT))
        begun = duties(metadata, Local(node_id=node, replicas={PARENT: held}, marks={1: 1}))
        assert [
            ((duty.range_.range_id, duty.range_.generation), duty.parents, duty.campaign)
            for duty in begun
            if isinstance(duty, Begin)
        ] == [(LEFT, ("own",), node == leader), (RIGHT, ("own",), node == leader)]
        assert len(begun) == 2, "nothing is told before both have begun"


def test_x2_17_a_node_that_has_one_child_keeps_the_parent_and_says_nothing() -> None:
    """After a crash between the two."""
    metadata = decided(cluster())
    nodes = Nodes(cluster())
    nodes.look(Facts(), 0.0)
    held = nodes.nodes[1].replicas[PARENT]._replace(sealed=True, end=end_of(PARENT))
    one = Local(node_id=1, replicas={PARENT: held, LEFT: held}, marks={1: 2})
    (begin,) = duties(metadata, one)
    assert isinstance(begin, Begin)
    assert begin.range_.range_id == 2
    for node in (2, 3):
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    do(metadata, op=commands.DONE, operation=1)
    assert [type(duty) for duty in duties(metadata, one)] == [Begin], "the parent is not retired"
    both = Local(node_id=1, replicas={LEFT: held, RIGHT: held}, marks={1: 2, 2: 2})
    assert duties(decided(cluster()), both) == [Tell(1, INSTALLED)]


def test_x6_a_parent_with_another_hash_is_damaged_and_both_children_are_fetched() -> None:
    metadata = decided(cluster())
    nodes = Nodes(cluster())
    nodes.look(Facts(), 0.0)
    wrong = end_of(PARENT)._replace(state_hash=b"other")
    held = nodes.nodes[1].replicas[PARENT]._replace(sealed=True, end=wrong)
    found = duties(metadata, Local(node_id=1, replicas={PARENT: held}, marks={1: 1}))
    assert {duty.gid for duty in found if isinstance(duty, Damage)} == {PARENT}
    assert [duty.parents for duty in found if isinstance(duty, Begin)] == [("peers",)] * 2


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("back", [False, True], ids=["stays away", "comes back"])
def test_a_split_completes_after_the_death_of_any_node_in_any_phase(
    victim: str, phase: str, back: bool
) -> None:
    nodes = Nodes(cluster())
    nodes.look(Facts(), 0.0)
    assert "ok" in split(nodes.metadata, b"m")
    carry_out(nodes, (PARENT, LEFT), victim=victim, phase=phase, back=back)
    assert [range_.span for range_ in nodes.metadata.ranges_of(1)] == [
        Span(b"", b"m"), Span(b"m", None),
    ]  # fmt: skip
    for node in nodes.nodes.keys() - nodes.down:
        assert set(nodes.nodes[node].replicas) == {LEFT, RIGHT}, f"node {node}"
    children: tuple[Gid, Gid] = (LEFT, RIGHT)
    assert all(nodes.leader(gid) is not None for gid in children)


# By itself.

MIB = limits.MIB
LARGE = Large(1, 1, 600 * MIB, b"m")


def asked(metadata: Metadata, *large: Large, alive: Any = (1, 2, 3), **more: Any) -> list[Planned]:
    return plan(metadata, set(alive), more.pop("damaged", {}), large=large, **more)


def test_a_range_that_is_too_large_is_split_at_its_half_and_says_why() -> None:
    metadata, facts = cluster(), Facts()
    (planned,) = asked(metadata, LARGE)
    assert (planned.kind, planned.range_id, planned.at) == ("split", 1, b"m")
    facts.heard, facts.large = dict.fromkeys((1, 2, 3), 100.0), {2: [LARGE]}
    (step,) = next_steps(metadata, facts, 100.0, leads_for_s=100.0)
    do(metadata, **step)
    (operation,) = metadata.operations.values()
    assert operation.reason == (f"{600 * MIB} bytes, more than {512 * MIB}: split in the middle")
    assert [output.span for output in operation.outputs] == [Span(b"", b"m"), Span(b"m", None)]
    do(metadata, op=commands.ABORT, operation=1)
    assert next_steps(metadata, facts, 101.0, leads_for_s=100.0) == [], "not at once again"
    facts.heard = dict.fromkeys((1, 2, 3), 120.0)
    assert next_steps(metadata, facts, 120.0, leads_for_s=100.0) == [step]


@pytest.mark.parametrize(
    ("large", "more"),
    [
        (LARGE._replace(size=512 * MIB), {}),
        (LARGE._replace(generation=2), {}),
        (LARGE._replace(range_id=9), {}),
        (LARGE._replace(at=b""), {}),
        (LARGE._replace(range_id=2, at=b"c"), {}),
        (LARGE, {"resting": {1}}),
        (LARGE, {"alive": {1, 2}}),
    ],
    ids=["not larger", "generation", "range", "no key", "another's key", "just split",
         "a member is away"],
)  # fmt: skip
def test_no_split_is_planned(large: Large, more: dict[str, Any]) -> None:
    assert asked(cluster(split_at=[b"n"]), large, **more) == []


def test_no_split_is_planned_where_the_policy_has_another_bound_or_none() -> None:
    for bound, count in ((None, 0), (700 * MIB, 0), (599 * MIB, 1)):
        metadata = cluster(split_bytes=bound)
        assert len(asked(metadata, LARGE)) == count, bound
    metadata = cluster()
    do(metadata, op=commands.ALTER_LOG, name="orders", changes={"split_bytes": None})
    assert asked(metadata, LARGE) == []


def test_a_repair_comes_before_a_split_and_an_operation_is_waited_for() -> None:
    metadata = cluster(split_at=[b"n"])
    broken = {2: [(2, 1, "rotten")]}
    found = asked(metadata, LARGE, damaged=broken)
    assert [(each.kind, each.range_id) for each in found] == [("repair", 2), ("split", 1)]
    found = asked(metadata, LARGE._replace(range_id=2, at=b"x"), damaged=broken)
    assert [(each.kind, each.range_id) for each in found] == [("repair", 2)]
    assert "ok" in split(metadata, b"c")
    assert asked(metadata, LARGE) == []


@pytest.mark.parametrize("wrong", [5, [5], [[1, 1, 9]], [[1, 1, 9, "m"]], [[1, True, 9, b"m"]]])
def test_a_peer_that_tells_of_large_ranges_in_no_known_way_is_refused(wrong: object) -> None:
    assert HEARTBEAT.request.check({**TOLD, "large": [[1, 1, 9, b"m"]]})["large"] == [
        [1, 1, 9, b"m"]
    ]
    with pytest.raises(InvalidArgument):
        HEARTBEAT.request.check({**TOLD, "large": wrong})
