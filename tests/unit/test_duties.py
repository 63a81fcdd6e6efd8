"""What the metadata asks of a node, as a pure function; and a whole change by it alone."""

from dataclasses import replace

import pytest
from pure_nodes import Nodes, do

from lognode.partitions import commands
from lognode.partitions.change import next_steps
from lognode.partitions.duties import (
    LITTLE_BYTES,
    TAIL_BYTES,
    Begin,
    CatchUp,
    Copy,
    Damage,
    Duty,
    Flush,
    Held,
    LearnEnd,
    Local,
    Prepare,
    Retire,
    Seal,
    Tell,
    duties,
    steps,
)
from lognode.partitions.facts import Facts
from lognode.partitions.lineage import lineage_of, successor
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Descriptor, Lineage, Span
from lognode.partitions.policy import Policy

OLD, NEW = (1, 1), (1, 2)
END = Lineage(*OLD, 40, 3, 100, 5, b"hash")
SERVES = Held(
    leads=False, leader=None, members=(1, 2, 3), sealed=False, end=None, memtable_bytes=0,
    base_wanted=False,
)  # fmt: skip
LEADS = SERVES._replace(leads=True)
SEALED = SERVES._replace(sealed=True)
ENDED = SEALED._replace(end=END)


def a_cluster(nodes: int, replicas: int = 1) -> Metadata:
    metadata = Metadata()
    do(metadata, op=commands.FOUND, cluster="c", node=1)
    for node in range(1, nodes + 1):
        do(metadata, op=commands.REGISTER, incarnation=node, boot=1, process=1, address="a:1")
    do(metadata, op=commands.CREATE_LOG, name="orders", replicas=replicas)
    return metadata


def planned(to: tuple[int, ...], *, of: Metadata, phase: str = "PLANNED") -> Metadata:
    do(of, op=commands.PLAN, kind="move", inputs=[OLD], outputs=[{"range": 1, "members": to}])
    if phase != "PLANNED":
        do(of, op=commands.SEALING, operation=1)
    if phase == "DECIDED":
        do(of, op=commands.DECIDE, operation=1, lineage=[list(END)], members=[list(to)])
    return of


def asked(metadata: Metadata, node: int, **has: object) -> list[Duty]:
    return duties(metadata, Local(node_id=node, **has))  # type: ignore[arg-type]


def test_a_new_range_is_begun_by_its_members_and_one_asks_for_the_lead() -> None:
    metadata = a_cluster(3, replicas=3)
    begun = [asked(metadata, node) for node in (1, 2, 3)]
    assert [[type(duty) for duty in of_node] for of_node in begun] == [[Begin]] * 3
    assert sum(duty.campaign for of_node in begun for duty in of_node) == 1  # type: ignore[union-attr]
    assert asked(metadata, 1, replicas={OLD: SERVES}, marks={1: 1}) == []


def test_x3_a_generation_never_begins_twice_on_a_node() -> None:
    assert asked(a_cluster(1), 1, marks={1: 1}) == []
    assert asked(a_cluster(1), 1, marks={1: 1}, damaged=[OLD]) == []


def test_a_new_member_copies_and_says_so() -> None:
    metadata = planned((2,), of=a_cluster(2))
    assert asked(metadata, 2) == [Copy(OLD, 1)]
    assert asked(metadata, 2, copied={(1, OLD)}) == [Tell(1, "copied")]


def test_an_old_member_leaves_little_for_the_seal() -> None:
    metadata = planned((1, 2, 3), of=a_cluster(3))
    much = LEADS._replace(memtable_bytes=TAIL_BYTES + 1)
    has = {"replicas": {OLD: much}, "marks": {1: 1}}
    assert asked(metadata, 1, **has) == [Copy(OLD, 1)]
    # Appends go on meanwhile: it flushes again, and is not an obstacle.
    assert asked(metadata, 1, copied={(1, OLD)}, **has) == [Copy(OLD, 1), Tell(1, "copied")]
    more = {"replicas": {OLD: LEADS._replace(memtable_bytes=TAIL_BYTES)}, "marks": {1: 1}}
    assert asked(metadata, 1, **more) == [Copy(OLD, 1)], "less is left by who has not flushed yet"
    assert asked(metadata, 1, copied={(1, OLD)}, **more) == [Tell(1, "copied")]
    little = LEADS._replace(memtable_bytes=LITTLE_BYTES)
    assert asked(metadata, 1, replicas={OLD: little}, marks={1: 1}) == [Tell(1, "copied")]
    assert asked(metadata, 1, replicas={OLD: LEADS}, marks={1: 1}) == [Tell(1, "copied")]


def test_L1_no_append_waits_at_the_seal_until_a_builder_process_has_begun() -> None:
    """The first split of a cluster paused appends for 0.8 s, and on a busy machine for 3 s."""
    metadata = planned((1, 2, 3), of=a_cluster(3))
    has = {"replicas": {OLD: LEADS._replace(memtable_bytes=1)}, "marks": {1: 1}}
    assert asked(metadata, 1, **has, builds_at_once=False) == [Copy(OLD, 1)]
    assert asked(metadata, 1, **has, builds_at_once=True) == [Tell(1, "copied")]
    # A builder that ends again and again puts no operation off.
    flushed = {"builds_at_once": False, "copied": {(1, OLD)}}
    assert asked(metadata, 1, **has, **flushed) == [Tell(1, "copied")]
    nothing = {"replicas": {OLD: LEADS}, "marks": {1: 1}}
    assert asked(metadata, 1, **nothing, builds_at_once=False) == [Tell(1, "copied")]


def test_a_leaving_member_flushes_too_and_reports_nothing() -> None:
    """A new member may copy from it, and appends wait while its last entries go to a file."""
    metadata = planned((2, 3, 4), of=a_cluster(4, replicas=3))
    much = LEADS._replace(memtable_bytes=TAIL_BYTES + 1)
    assert asked(metadata, 1, replicas={OLD: much}) == [Copy(OLD, 1)]
    assert asked(metadata, 1, replicas={OLD: much}, copied={(1, OLD)}) == [Copy(OLD, 1)]
    assert asked(metadata, 1, replicas={OLD: LEADS}) == []
    assert asked(metadata, 2, replicas={OLD: SERVES}) == [Tell(1, "copied")]


def test_x8_the_tail_goes_to_a_file_before_it_counts_as_prepared() -> None:
    metadata = planned((2,), of=a_cluster(2), phase="SEALING")
    assert asked(metadata, 1, replicas={OLD: LEADS}) == [Seal(OLD, 1)]
    assert asked(metadata, 1, replicas={OLD: SERVES}) == []
    assert asked(metadata, 1, replicas={OLD: SEALED}) == [Flush(OLD)]
    assert asked(metadata, 1, replicas={OLD: ENDED}) == [Tell(1, "sealed", END)]
    assert asked(metadata, 2) == [Prepare(OLD, 1)]
    assert asked(metadata, 2, prepared={(1, OLD): END}) == [Tell(1, "prepared", END)]


def test_the_next_generation_begins_from_what_is_here_if_it_is_the_very_end() -> None:
    metadata = planned((1, 2), of=a_cluster(2), phase="DECIDED")
    range_ = metadata.ranges[1]
    leader = ENDED._replace(leads=True)
    assert asked(metadata, 1, replicas={OLD: leader}) == [Begin(range_, True, ("own",))]
    assert asked(metadata, 2, prepared={(1, OLD): END}) == [Begin(range_, False, ("prepared",))]
    assert asked(metadata, 2) == [Begin(range_, False, ("peers",))]
    later = END._replace(final_index=39)
    assert asked(metadata, 2, prepared={(1, OLD): later}) == [Begin(range_, False, ("peers",))]
    begun = {"replicas": {NEW: SERVES}, "marks": {1: 2}}
    assert asked(metadata, 2, **begun) == [Tell(1, "installed")]


def test_L2_a_decided_generation_ends_here_also_without_a_leader() -> None:
    """Seed 17487: the others were lost, and the last member never learned of the commit."""
    metadata = planned((1, 2), of=a_cluster(2), phase="DECIDED")
    begin = Begin(metadata.ranges[1], False, ("peers",))
    assert asked(metadata, 1, replicas={OLD: SERVES}) == [begin, LearnEnd(OLD, 40, 3)]
    assert asked(metadata, 1, replicas={OLD: SEALED}) == [begin, Flush(OLD)]
    stopped = SERVES._replace(stopped=True)
    assert asked(metadata, 1, replicas={OLD: stopped}) == [begin]
    leaving = planned((2,), of=a_cluster(2), phase="DECIDED")
    assert asked(leaving, 1, replicas={OLD: SERVES}) == [LearnEnd(OLD, 40, 3)]
    sealing = planned((1, 2), of=a_cluster(2), phase="SEALING")
    assert asked(sealing, 1, replicas={OLD: SERVES}) == []


def test_x2_17_only_the_next_generation_counts_as_installed() -> None:
    """Members told so of the one that was about to end, and DONE came before they had begun."""
    planned_only = planned((1, 2), of=a_cluster(2))
    assert asked(planned_only, 1, replicas={OLD: SERVES}) == [Tell(1, "copied")]
    sealing = planned((1, 2), of=a_cluster(2), phase="SEALING")
    assert asked(sealing, 1, replicas={OLD: ENDED}) == [Tell(1, "sealed", END)]


def test_a_leader_that_stays_a_member_leads_the_next_generation() -> None:
    metadata = planned((1, 2, 4), of=a_cluster(4, replicas=3), phase="DECIDED")
    range_ = metadata.ranges[1]
    leader, follower = ENDED._replace(leads=True, leader=1), ENDED._replace(leader=1)
    assert asked(metadata, 1, replicas={OLD: leader}) == [Begin(range_, True, ("own",))]
    assert asked(metadata, 2, replicas={OLD: follower}) == [Begin(range_, False, ("own",))]
    assert asked(metadata, 4, prepared={(1, OLD): END}) == [Begin(range_, False, ("prepared",))]
    unknown = ENDED._replace(leader=None)
    assert asked(metadata, 2, replicas={OLD: unknown}) == [Begin(range_, False, ("own",))]


def test_L1_a_staying_member_asks_for_the_lead_of_a_leaving_leader_at_once() -> None:
    """Not the new member, which knows of no leader, and not two of them."""
    metadata = planned((1, 2, 4), of=a_cluster(4, replicas=3), phase="DECIDED")
    range_ = metadata.ranges[1]
    follower = ENDED._replace(leader=3)
    assert asked(metadata, 1, replicas={OLD: follower}) == [Begin(range_, False, ("own",))]
    assert asked(metadata, 2, replicas={OLD: follower}) == [Begin(range_, True, ("own",))]
    assert asked(metadata, 4, prepared={(1, OLD): END}) == [Begin(range_, False, ("prepared",))]
    assert asked(metadata, 3, replicas={OLD: ENDED._replace(leads=True, leader=3)}) == []


def test_x6_another_hash_at_the_same_end_is_damage() -> None:
    metadata = planned((1, 2), of=a_cluster(2), phase="DECIDED")
    wrong = ENDED._replace(end=END._replace(state_hash=b"other"))
    damage, begin = asked(metadata, 1, replicas={OLD: wrong})
    assert isinstance(damage, Damage)
    assert damage.gid == OLD
    assert begin == Begin(metadata.ranges[1], False, ("peers",))


def test_S12_x6_other_effects_at_the_same_end_are_damage() -> None:
    one, other, elsewhere = (bytes([1]) + bytes(7) + at + b"?" for at in (b"\1", b"\1", b"\2"))
    other += b"!"
    metadata = planned((1, 2, 3), of=a_cluster(3, replicas=3), phase="DECIDED")
    range_ = replace(metadata.ranges[1], effects=(one,))
    metadata.changes.begin(metadata.version)
    metadata.ranges[1] = range_
    damage, begin = asked(metadata, 1, replicas={OLD: ENDED._replace(effects=other)})
    assert isinstance(damage, Damage)
    assert "the entries of the generation had another effect on this" in damage.reason
    assert begin == Begin(range_, False, ("peers",))
    for effects in (one, elsewhere, b""):
        held = ENDED._replace(effects=effects)
        assert asked(metadata, 1, replicas={OLD: held}) == [Begin(range_, False, ("own",))]
        prepared = {"prepared": {(1, OLD): END}, "prepared_effects": {(1, OLD): effects}}
        assert asked(metadata, 3, **prepared) == [Begin(range_, False, ("prepared",))]
    prepared = {"prepared": {(1, OLD): END}, "prepared_effects": {(1, OLD): other}}
    assert asked(metadata, 3, **prepared) == [Begin(range_, False, ("peers",))]


def test_a_replica_that_waits_for_an_upgrade_begins_no_next_generation_and_stays() -> None:
    metadata = planned((1, 2, 3), of=a_cluster(3, replicas=3), phase="DECIDED")
    halted = SERVES._replace(stopped=True)
    assert asked(metadata, 3, replicas={OLD: halted}, halted=[OLD]) == []
    for node in (1, 2):
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    do(metadata, op=commands.DONE, operation=1)
    assert asked(metadata, 3, replicas={OLD: halted}, halted=[OLD]) == []
    range_ = metadata.ranges[1]
    assert asked(metadata, 3, replicas={OLD: SERVES}) == [Begin(range_, False, late=True)]


def test_x2_17_nothing_goes_before_the_metadata_says_so() -> None:
    metadata = planned((2,), of=a_cluster(2), phase="DECIDED")
    assert asked(metadata, 1, replicas={OLD: ENDED}) == []
    do(metadata, op=commands.INSTALLED, operation=1, node=2)
    assert asked(metadata, 1, replicas={OLD: ENDED}) == [Retire((OLD,))]
    assert asked(metadata, 1, damaged=[OLD]) == [Retire((OLD,))]
    do(metadata, op=commands.DELETE_LOG, name="orders")
    assert asked(metadata, 2, replicas={NEW: SERVES}) == [Retire((NEW,))]


def test_x2_17_a_parent_stays_while_the_metadata_change_between_the_steps() -> None:
    """The generations that are over are found before the ranges that begin from them."""

    def changed_after(step: int) -> list[Duty]:
        metadata = planned((1, 2, 3), of=a_cluster(3, replicas=3), phase="SEALING")
        local = Local(node_id=3, replicas={OLD: ENDED}, marks={1: 1})
        finding = steps(metadata, local)
        try:
            for _ in range(step):
                next(finding)
            do(metadata, op=commands.DECIDE, operation=1, lineage=[list(END)], members=[[1, 2, 3]])
            for node in (1, 2):
                do(metadata, op=commands.INSTALLED, operation=1, node=node)
            do(metadata, op=commands.DONE, operation=1)
            while True:
                next(finding)
        except StopIteration as done:
            found: list[Duty] = done.value
            return found

    found = [changed_after(step) for step in range(5)]
    assert [Begin(a_begun(), False, ("own",))] in found
    assert not any(isinstance(duty, Retire) for each in found for duty in each)


def a_begun() -> Descriptor:
    metadata = planned((1, 2, 3), of=a_cluster(3, replicas=3), phase="DECIDED")
    for node in (1, 2):
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    do(metadata, op=commands.DONE, operation=1)
    return metadata.ranges[1]


def test_each_range_operation_and_replica_is_a_step_of_its_own() -> None:
    """A node with thousands of replicas looks at all of them in slices of the loop's time."""
    metadata = a_cluster(1)
    do(metadata, op=commands.CREATE_LOG, name="wide", ranges=1_000)
    replicas = {(range_id, 1): SERVES for range_id in list(metadata.ranges)[:500]}
    local = Local(node_id=1, replicas=replicas, marks=dict(replicas))
    assert sum(1 for _ in steps(metadata, local)) == 500 + 1_001 + 500
    assert len(duties(metadata, local)) == 501


def test_x2_16_a_late_member_begins_from_a_later_base_of_the_new_generation() -> None:
    """Its peers have let go of what the generation began from."""
    metadata = planned((1, 2, 3), of=a_cluster(3, replicas=3), phase="DECIDED")
    assert asked(metadata, 3) == [Begin(metadata.ranges[1], False, ("peers",))]
    for node in (1, 2):
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    do(metadata, op=commands.DONE, operation=1)
    range_ = metadata.ranges[1]
    assert asked(metadata, 3) == [Begin(range_, False, late=True)]
    # What it has of the old generation goes when it has begun the new one, and not before.
    assert asked(metadata, 3, damaged=[OLD]) == [Begin(range_, False, late=True)]
    assert asked(metadata, 3, replicas={OLD: SERVES}) == [Begin(range_, False, late=True)]
    assert asked(metadata, 3, replicas={OLD: ENDED}) == [Begin(range_, False, ("own",))]
    begun = {"replicas": {NEW: SERVES}, "marks": {1: 2}}
    assert asked(metadata, 3, **begun, damaged=[OLD]) == [Retire((OLD,))]


def test_x2_a_damaged_member_fetches_like_a_new_one() -> None:
    has = {"damaged": [OLD], "marks": {1: 1}}
    repair = planned((1, 2, 3), of=a_cluster(3, replicas=3))
    assert asked(repair, 3, **has) == [Copy(OLD, 1)]
    do(repair, op=commands.SEALING, operation=1)
    assert asked(repair, 3, **has) == [Prepare(OLD, 1)]
    assert asked(repair, 3, prepared={(1, OLD): END}, **has) == [Tell(1, "prepared", END)]


def test_a_base_is_fetched_unless_the_generation_has_ended() -> None:
    metadata = a_cluster(1)
    wants = SERVES._replace(base_wanted=True)
    assert asked(metadata, 1, replicas={OLD: wants}) == [CatchUp(OLD)]
    assert asked(metadata, 1, replicas={OLD: wants._replace(sealed=True)}) == []


def test_lineage_is_that_of_a_base_at_the_seal() -> None:
    tables = {"sealed": [7, 40, 3], "next_seq": 100, "last_timestamp_ms": 5, "hash": b"hash"}
    assert lineage_of(OLD, (40, 3), tables) == END
    assert lineage_of(OLD, (39, 3), tables) is None
    assert lineage_of(OLD, (40, 3), successor(tables)) is None


GROWTH = None
A_FOLLOWER, THE_LEADER = {"range": 1, "from": 1, "to": 4}, {"range": 1, "from": 2, "to": 4}


@pytest.mark.parametrize(
    ("replicas", "move", "members", "leader"),
    [
        (1, GROWTH, (1, 2, 3), 1),
        (3, A_FOLLOWER, (2, 3, 4), 2),
        (3, THE_LEADER, (1, 3, 4), 3),
        (1, {"range": 1, "from": 1, "to": 2}, (2,), 2),
    ],
    ids=["growth", "a follower moves", "the leader moves", "the only member moves"],
)
def test_a_generation_follows_another_by_these_functions_alone(
    replicas: int, move: dict[str, int] | None, members: tuple[int, ...], leader: int | None
) -> None:
    """Each node does at once what it is asked; the controller commits what is next."""
    cluster, facts = Nodes(a_cluster(4, replicas)), Facts()
    metadata = cluster.metadata
    metadata.controller = replace(metadata.controller, members=(1, 2, 3))
    cluster.look(facts, 0.0)
    if move is None:
        metadata.logs[1] = replace(metadata.logs[1], policy=Policy(replicas=3))
    else:
        do(metadata, op=commands.MOVE, **move)
    phases = []
    for tick in range(40):
        cluster.look(facts, float(tick))
        for step in next_steps(metadata, facts, float(tick), leads_for_s=100.0):
            do(metadata, **step)
        phases += [operation.phase for operation in metadata.operations.values()]
    assert list(dict.fromkeys(phases)) == ["PLANNED", "SEALING", "DECIDED"]
    range_ = metadata.ranges[1]
    assert (range_.members, range_.generation) == (members, 2)
    assert range_.span == Span(b"", None)
    assert not metadata.operations
    for node, local in cluster.nodes.items():
        assert list(local.replicas) == ([NEW] if node in members else []), f"node {node}"
    assert cluster.leader(NEW) == leader
