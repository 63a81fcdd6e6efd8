"""Whom a node asks for news, what the controller's leader keeps, and how ranges follow a level."""

from dataclasses import replace

import pytest

from lognode.client.protocol import limits
from lognode.client.protocol.peers import HEARTBEAT
from lognode.node.rules.heartbeats import (
    Told,
    damage_told,
    has_news,
    is_heard,
    keep,
    next_to_ask,
)
from lognode.node.rules.levels import REPEAT_S, may_propose, ranges_may_rise, to_note
from lognode.partitions.facts import Facts
from lognode.partitions.levels import Program
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import NodeRecord
from lognode.partitions.planner import Large
from lognode.raft.types import GroupId


@pytest.fixture
def metadata() -> Metadata:
    """Nodes 1 to 4, of which 4 was removed; 2 and 3 are the members of the controller."""
    found = Metadata()
    found.controller = replace(found.controller, generation=4, members=(2, 3))
    for node in (1, 2, 3, 4):
        state = "REMOVED" if node == 4 else "ACTIVE"
        found.nodes[node] = NodeRecord(node, "", "", "", node, 1, state)
    return found


def test_x29_members_and_all_other_nodes_are_asked_in_turn(metadata: Metadata) -> None:
    asked = [next_to_ask(metadata, 1, turn) for turn in range(8)]
    assert asked[1::2] == [2, 3, 2, 3], "the members"
    assert set(asked[::2]) == {2, 3}, "no removed node"
    assert {next_to_ask(metadata, 2, turn) for turn in range(8)} == {1, 3}
    metadata.nodes = {2: metadata.nodes[2]}
    metadata.controller = replace(metadata.controller, members=(2,))
    assert next_to_ask(metadata, 2, 1) is None


def test_news_go_to_nodes_with_an_older_image_by_generation_first(metadata: Metadata) -> None:
    metadata.version = 7
    assert has_news(metadata, (4, 6))
    assert has_news(metadata, (3, 90))
    assert not has_news(metadata, (4, 7))
    assert not has_news(metadata, (5, 0))


def test_a_removed_node_reports_nothing_that_is_kept(metadata: Metadata) -> None:
    assert [is_heard(node, metadata) for node in (1, 4, 9)] == [True, False, True]


def test_a_report_takes_the_place_of_the_earlier_one() -> None:
    facts = Facts()
    large = Large(1, 1, 10, b"k")
    keep(facts, 2, Told([(1, 1, "a checksum")], [large], [], {"acme": 5}))
    assert (facts.damaged[2], facts.large[2]) == ([(1, 1, "a checksum")], [large])
    assert facts.stored[2] == {"acme": 5}
    keep(facts, 2, Told([]))
    assert (facts.damaged[2], facts.large[2], facts.small[2], facts.stored[2]) == ([], [], [], {})
    assert not facts.heard, "that the node is alive is noted apart"


@pytest.mark.parametrize("why", ["\u00fc\x1b" * 5_000, "a \udc80 file name", "short"])
def test_the_leader_takes_a_report_on_whatever_damage_there_is(why: str) -> None:
    """Before, a text of over 4 KiB had the whole report refused, and the node was DEAD."""
    many = {GroupId(n, 1): why for n in range(limits.told_rows_max + 1)}
    told = damage_told(many)
    assert len(told) == limits.told_rows_max
    assert told[0][2][:5] == why.replace("\x1b", "?").replace("\udc80", "?")[:5]
    field = HEARTBEAT.request.shape["damaged"]
    assert len(field.kind.check([list(row) for row in told], "damaged")) == len(told)


def test_no_range_rises_before_all_directories_have_noted_the_level(metadata: Metadata) -> None:
    programs = {node: Program(1, 0, 1, 2, "9.9", noted=2) for node in (1, 2, 3)}
    assert to_note(metadata, 1) is None
    assert not ranges_may_rise(metadata, programs)
    metadata.feature_level = 2
    assert to_note(metadata, 1) == 2
    assert to_note(metadata, 2) is None
    assert ranges_may_rise(metadata, programs)
    assert not ranges_may_rise(metadata, {**programs, 3: programs[3]._replace(noted=1)})
    del programs[2]
    assert not ranges_may_rise(metadata, programs)


def test_a_level_is_proposed_again_until_it_is_applied() -> None:
    assert may_propose(1, 2, None, 100.0)
    assert not may_propose(1, 2, 100.0, 100.0 + REPEAT_S - 0.1)
    assert may_propose(1, 2, 100.0, 100.0 + REPEAT_S)
    assert not may_propose(2, 2, None, 100.0)
