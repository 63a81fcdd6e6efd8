"""Small neighbours: which are merged by themselves, when, and why not."""

from dataclasses import replace
from typing import Any

import pytest
from pure_nodes import cluster, do

from lognode.client.protocol import limits
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.protocol.peers import HEARTBEAT
from lognode.partitions import commands, shrinking
from lognode.partitions.change import next_steps, timers
from lognode.partitions.facts import Facts
from lognode.partitions.metadata import Metadata
from lognode.partitions.planner import Planned
from lognode.partitions.shrinking import Small

TOLD: Any = {"generation": 1, "version": 1, "leaders": [], "seen": [0, 0, 0]}

MIB = limits.MIB
NOW, LONG_S, MERGE_S = 10_000.0, 9_999.0, 600.0


def grown(*at: bytes, nodes: int = 3, **log: Any) -> Metadata:
    """A log of one range that was split at these keys since; ranges are 1, 2, ... in order."""
    metadata: Metadata = cluster(nodes=nodes, split_at=list(at), **log)
    record = metadata.logs[1]
    metadata.logs[1] = replace(record, policy=replace(record.policy, ranges_min=1))
    return metadata


def small(*sizes: int, rate: int = 0) -> list[Small]:
    return [Small(number, 1, size, rate) for number, size in enumerate(sizes, 1)]


def merges(metadata: Metadata, told: list[Small], **more: Any) -> list[Planned]:
    alive, resting = more.get("alive", {1, 2, 3, 4}), more.get("resting", ())
    return shrinking.merges(metadata, alive, resting, told)


def test_neighbours_that_are_small_together_are_merged_no_range_twice() -> None:
    metadata = grown(b"d", b"m", b"s")
    found = merges(metadata, small(MIB, 2 * MIB, 3 * MIB, 4 * MIB))
    assert [(each.kind, each.range_id, each.at) for each in found] == [
        ("merge", 1, b"d"), ("merge", 3, b"s"),
    ]  # fmt: skip
    assert found[0].reason == "the range and range 2 are small together"


@pytest.mark.parametrize(
    ("told", "more"),
    [
        (small(64 * MIB, 64 * MIB), {}),
        (small(MIB, MIB, rate=2_500), {}),
        (small(MIB), {}),
        ([Small(1, 2, 0, 0), Small(2, 1, 0, 0)], {}),
        ([Small(1, 1, 0, 0), Small(9, 1, 0, 0)], {}),
        (small(MIB, MIB), {"resting": {2}}),
        (small(MIB, MIB), {"alive": {1, 2}}),
    ],
    ids=["a quarter", "busy", "one alone", "generation", "no such range", "resting", "away"],
)
def test_nothing_is_merged(told: list[Small], more: dict[str, Any]) -> None:
    assert merges(grown(b"m"), small(MIB, MIB)), "but for that they would be"
    assert merges(grown(b"m"), told, **more) == []


def test_a_log_keeps_the_ranges_that_it_was_created_with() -> None:
    assert merges(cluster(split_at=[b"m"]), small(0, 0)) == []
    assert merges(grown(b"m", split_bytes=None), small(0, 0)) == []
    assert len(merges(grown(b"m", split_rate=None), small(0, 0, rate=1 << 20))) == 1
    metadata = grown(b"d", b"m", b"s")
    record = metadata.logs[1]
    metadata.logs[1] = replace(record, policy=replace(record.policy, ranges_min=3))
    assert len(merges(metadata, small(0, 0, 0, 0))) == 1


def test_ranges_on_different_nodes_are_gathered_first() -> None:
    metadata = grown(b"m", nodes=5)
    metadata.ranges[1] = replace(metadata.ranges[1], members=(1, 2, 3))
    metadata.ranges[2] = replace(metadata.ranges[2], members=(2, 4, 5))
    alive = {1, 2, 3, 4, 5}
    (found,) = merges(metadata, small(0, 0), alive=alive)
    assert (found.kind, found.range_id, found.members) == ("gather", 2, (1, 2, 5))
    assert found.reason == "the range is small and will be merged with range 1"
    metadata.nodes[1] = replace(metadata.nodes[1], state="DRAINING")
    assert merges(metadata, small(0, 0), alive=alive) == []


def heard(metadata: Metadata, at: float, told: list[Small], facts: Facts | None = None) -> Facts:
    facts = facts or Facts()
    facts.heard = dict.fromkeys(metadata.nodes, at)
    facts.small = {2: told}
    return facts


def steps(metadata: Metadata, facts: Facts, now: float, leads_for_s: float = LONG_S) -> Any:
    return next_steps(metadata, facts, now, leads_for_s, balanced=False, merge_after_s=MERGE_S)


def test_ranges_rest_after_an_operation_and_a_new_controller_leader_starts_afresh() -> None:
    metadata = grown(b"d", b"m")
    told = small(0, 0, 0)
    facts = heard(metadata, NOW, told)
    assert steps(metadata, facts, NOW, MERGE_S - 1) == []
    assert next_steps(metadata, facts, NOW, LONG_S, balanced=False) == [], "it is turned off"
    do(metadata, op=commands.SPLIT, log="orders", at=b"e")
    assert steps(metadata, facts, NOW) == []
    do(metadata, op=commands.ABORT, operation=1)
    later = NOW + MERGE_S - 1
    assert steps(metadata, heard(metadata, later, told, facts), later) == [], "range 2 rests"
    quiet = timers(metadata, facts, later, LONG_S, 0.0, MERGE_S)
    heard(metadata, later + 1, told, facts)
    assert timers(metadata, facts, later + 1, LONG_S, 0.0, MERGE_S) != quiet
    (step,) = steps(metadata, facts, later + 1)
    assert (step["op"], step["at"]) == (commands.MERGE, b"d")
    do(metadata, **step)
    assert metadata.operations[2].reason == "the range and range 2 are small together"


def test_collected_candidates_are_merged_at_once() -> None:
    metadata = grown(b"m", nodes=4)
    metadata.ranges[1] = replace(metadata.ranges[1], members=(1, 2, 3))
    metadata.ranges[2] = replace(metadata.ranges[2], members=(2, 3, 4))
    facts = heard(metadata, NOW, small(0, 0))
    (step,) = steps(metadata, facts, NOW)
    assert (step["op"], step["kind"]) == (commands.PLAN, "gather")
    do(metadata, **step)
    steps(metadata, facts, NOW)
    do(metadata, op=commands.SEALING, operation=1)
    end = [2, 1, 9, 1, 5, 9, b"hash"]
    do(metadata, op=commands.DECIDE, operation=1, lineage=[end], members=[[1, 2, 3]])
    for node in (1, 2, 3):
        do(metadata, op=commands.INSTALLED, operation=1, node=node)
    told = [Small(1, 1, 0, 0), Small(2, 2, 0, 0)]
    (step,) = steps(metadata, heard(metadata, NOW + 1, told, facts), NOW + 1)
    assert step["op"] == commands.MERGE


@pytest.mark.parametrize("wrong", [5, [5], [[1, 1, 9]], [[1, 1, 9, "m"]], [[1, True, 9, 1]]])
def test_a_peer_that_tells_of_small_ranges_in_no_known_way_is_refused(wrong: object) -> None:
    assert HEARTBEAT.request.check({**TOLD, "small": [[1, 1, 9, 3]]})["small"] == [[1, 1, 9, 3]]
    with pytest.raises(InvalidArgument):
        HEARTBEAT.request.check({**TOLD, "small": wrong})
