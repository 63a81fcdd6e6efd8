"""Where replicas go so that zones, then nodes, have even shares; and that it comes to an end."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lognode.partitions.balance import APART, RESTS_S, UNDER_WAY_MAX, moves
from lognode.partitions.change import next_steps, timers
from lognode.partitions.facts import Facts
from lognode.partitions.leaving import DEAD_AFTER_S
from lognode.partitions.metadata import Metadata
from lognode.partitions.planner import Planned

NOW = 1_000.0
LONG_S = 9_999.0


def do(metadata: Metadata, op: str, **fields: Any) -> None:
    answer = metadata.apply(1, 1, {"op": op, **fields})
    assert "ok" in answer, answer


def cluster(zones: Sequence[str], homes: Sequence[tuple[int, ...]]) -> Metadata:
    """A node in each of the zones, and a range on each of the homes, of logs that want so many."""
    metadata = Metadata()
    do(metadata, "found", cluster="c", node=1)
    for node, zone in enumerate(zones, 1):
        do(metadata, "register", incarnation=node, boot=1, zone=zone)
    for size in sorted({len(members) for members in homes}):
        of_size = [members for members in homes if len(members) == size]
        do(metadata, "create_log", name=f"of-{size}", ranges=len(of_size), replicas=size)
        log = metadata.log_named(f"of-{size}")
        for range_, members in zip(metadata.ranges_of(log.log_id), of_size, strict=True):
            metadata.ranges[range_.range_id] = replace(range_, members=members)
    metadata.controller = replace(metadata.controller, members=(1, 2, 3))
    return metadata


def planned(
    metadata: Metadata,
    *,
    alive: Collection[int] | None = None,
    damaged: Mapping[int, Collection[tuple[int, int, str]]] | None = None,
    resting: Collection[int] = (),
    short: Collection[int] = (),
    leaders: Mapping[int, int] | None = None,
) -> list[Planned]:
    return moves(
        metadata, metadata.nodes if alive is None else alive, damaged or {}, resting, short,
        lambda range_id, _: (leaders or {}).get(range_id),
    )  # fmt: skip


def went(metadata: Metadata, move: Planned) -> tuple[int, int, int]:
    """Range, and from which node to which its replica goes."""
    before = set(metadata.ranges[move.range_id].members)
    (leaves,), (comes,) = before - set(move.members), set(move.members) - before
    return move.range_id, leaves, comes


FULL = [(1, 2, 3)] * 8
THREE_OF_FOUR = [(1, 2, 4), (1, 3, 4), (2, 3, 4)]


@pytest.mark.parametrize(
    ("zones", "homes", "expected", "reason"),
    [
        ("...", FULL, [], ""),
        ("....", FULL, [(1, 1, 4), (2, 2, 4)], "node 1 has 8 replicas, node 4 has 0"),
        ("....", FULL[:2], [], ""),  # two more are not worth a move
        ("....", FULL[:3], [(1, 1, 4)], "node 1 has 3 replicas, node 4 has 0"),
        (".....", [(1,)] * 5, [(1, 1, 2), (2, 1, 3)], "node 1 has 5 replicas, node 2 has 0"),
        ("....", [(1, 2, 3)] * 49 + THREE_OF_FOUR * 64, [], ""),  # 192 and 177: a tenth is 18
        (
            "....", [(1, 2, 3)] * 44 + THREE_OF_FOUR * 64, [(45, 4, 3), (46, 4, 2)],
            "node 4 has 192 replicas, node 3 has 172",
        ),
        ("aabc", [(1, 2, 3)], [(1, 1, 4)], "2 members in zone 'a', 0 in zone 'c'"),
        ("aabbc", [(1, 3, 5)] * 3, [(1, 1, 2), (2, 3, 4)], "node 1 has 3 replicas, node 2 has 0"),
        ("abc", FULL, [], ""),
        ("abca", FULL, [(1, 1, 4), (2, 1, 4)], "node 1 has 8 replicas, node 4 has 0"),
        ("abcd", FULL, [(1, 1, 4), (2, 2, 4)], "node 1 has 8 replicas, node 4 has 0"),
        ("abcc.", [(1, 2, 3, 4, 5)], [], ""),
        ("aaabbb", [(1, 2, 3, 4, 5)], [], ""),
        ("aaaabb", [(1, 2, 3, 4, 5)], [(1, 1, 6)], "4 members in zone 'a', 1 in zone 'b'"),
        ("aaab", THREE_OF_FOUR * 9, [], ""),  # zone b has no more
    ],
)  # fmt: skip
def test_a_planned_move_names_range_nodes_and_reason(
    zones: str, homes: list[tuple[int, ...]], expected: list[Any], reason: str
) -> None:
    metadata = cluster(zones, homes)
    found = planned(metadata)
    assert [went(metadata, move) for move in found] == expected
    assert [move.kind for move in found] == ["move"] * len(expected)
    if found:
        assert found[0].reason == reason


def test_a_follower_moves_before_the_leader() -> None:
    metadata = cluster("....", FULL)
    leaders = dict.fromkeys(range(1, 9), 1) | {5: 3, 7: 2}
    assert [went(metadata, m) for m in planned(metadata, leaders=leaders)] == [
        (1, 2, 4), (2, 3, 4),
    ]  # fmt: skip
    metadata = cluster("....", [(1,)] * 4)
    assert went(metadata, planned(metadata, leaders={1: 1, 2: 1, 3: 4, 4: 1})[0])[0] == 3


def test_busy_resting_damaged_or_incomplete_ranges_do_not_move() -> None:
    metadata = cluster("....", FULL[:6])
    do(metadata, "split_range", log="of-3", at=b"\x01")
    assert [m.range_id for m in planned(metadata)] == [2], "with another one under way one more"
    do(metadata, "split_range", log="of-3", at=metadata.ranges[6].span.start + b"x")
    assert len(metadata.operations) == UNDER_WAY_MAX
    assert planned(metadata) == []
    metadata = cluster("....", FULL[:6])
    assert [m.range_id for m in planned(metadata, resting={1, 3})] == [2, 4]
    assert [m.range_id for m in planned(metadata, damaged={2: [(1, 1, "bad"), (2, 9, "old")]})] == [
        2, 3,
    ]  # fmt: skip
    metadata.ranges[1] = replace(metadata.ranges[1], members=(1,))
    assert [m.range_id for m in planned(metadata)] == [2, 3]
    assert planned(metadata, alive={1, 2, 4}) == [], "a member is silent"


@pytest.mark.parametrize("state", ["DEAD", "DRAINING", "JOINING", "REMOVED"])
def test_a_silent_full_or_inactive_node_gets_no_replica(state: str) -> None:
    metadata = cluster("....", FULL)
    assert planned(metadata, alive={1, 2, 3}) == []
    assert planned(metadata, short={4}) == []
    assert len(planned(metadata, short={1, 2})) == 2, "what is full may leave it"
    do(metadata, "node_state", node=4, state=state)
    assert planned(metadata) == []


def test_replicas_on_their_way_count_where_they_are_to_be() -> None:
    """Else a second move would be one too many."""
    metadata = cluster(".....", [(1,)] * 4 + [(2,)] * 4 + [(3,)] * 4 + [(4,)] * 3)
    assert len(planned(metadata)) == 2
    move = {"range": 1, "from": 1, "to": 5}
    do(metadata, "move_range", **move)
    assert [went(metadata, m)[1:] for m in planned(metadata)] == [(2, 5)]
    metadata = cluster("..", [(1,)] * 5 + [(2,)] * 2)
    do(metadata, "move_range", **{"range": 1, "from": 1, "to": 2})
    assert planned(metadata) == []


def crowding(metadata: Metadata) -> int:
    return sum(
        count * count
        for range_ in metadata.ranges.values()
        for count in Counter(metadata.nodes[node].zone for node in range_.members).values()
    )


@pytest.mark.parametrize("seed", range(200))
def test_moves_from_any_state_come_to_an_end_where_none_is_planned(seed: int) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 9)
    letters = rng.choice(["", "ab", "abc", "abcdefghi"])
    zones = [rng.choice(letters) if letters else "" for _ in range(nodes)]
    some = rng.sample(range(1, nodes + 1), rng.randint(1, nodes))
    sizes = [size for size in (1, 3, 5, 7) if size <= len(some)]
    homes = [tuple(sorted(rng.sample(some, rng.choice(sizes)))) for _ in range(rng.randint(1, 60))]
    metadata = cluster(zones, homes)
    replicas = sum(map(len, homes))
    done, crowded = 0, crowding(metadata)
    while found := planned(metadata):
        for move in found:
            range_ = metadata.ranges[move.range_id]
            before = len({metadata.nodes[node].zone for node in range_.members})
            metadata.ranges[move.range_id] = replace(
                range_, members=move.members, generation=range_.generation + 1
            )
            assert len({metadata.nodes[node].zone for node in move.members}) >= before
            done += 1
        crowded, was = crowding(metadata), crowded
        assert crowded <= was
        assert done <= 2 * replicas, "it goes on and on"
    if len(set(zones)) == 1:
        load = Counter(dict.fromkeys(metadata.nodes, 0))
        load.update(node for range_ in metadata.ranges.values() for node in range_.members)
        assert max(load.values()) - min(load.values()) <= max(APART, replicas / nodes / 10)
    there = Counter(zones)
    for range_ in metadata.ranges.values():
        used = Counter(metadata.nodes[node].zone for node in range_.members)
        for zone, most in used.items():
            for other in there.keys() - {zone}:
                assert most - used[other] < 2 or used[other] == there[other]


# When.


def heard(metadata: Metadata, now: float = NOW) -> Facts:
    facts = Facts()
    facts.heard = dict.fromkeys(metadata.nodes, now)
    return facts


def test_x2_23_a_new_leader_of_the_controller_waits_until_it_has_heard_all() -> None:
    metadata = cluster("....", FULL)
    assert next_steps(metadata, heard(metadata), NOW, DEAD_AFTER_S - 0.1) == []
    steps = next_steps(metadata, heard(metadata), NOW, DEAD_AFTER_S)
    assert [(step["op"], step["kind"]) for step in steps] == [("plan", "move")] * 2
    assert next_steps(metadata, heard(metadata), NOW, LONG_S, balanced=False) == []


def test_all_else_comes_first() -> None:
    metadata = cluster("....", [*FULL, (1,)])
    log = metadata.log_named("of-1")
    metadata.logs[log.log_id] = replace(log, policy=replace(log.policy, replicas=3))
    (step,) = next_steps(metadata, heard(metadata), NOW, LONG_S)
    assert step["kind"] == "expand"


def test_a_range_rests_after_any_operation_and_time_alone_makes_it_due() -> None:
    metadata = cluster("....", FULL[:3])
    facts = heard(metadata)
    (step,) = next_steps(metadata, facts, NOW, LONG_S)
    assert step["inputs"] == [[1, 1]]
    do(metadata, "split_range", log="of-3", at=b"\x01")
    assert next_steps(metadata, facts, NOW, LONG_S)[0]["inputs"] == [[2, 1]]
    assert facts.changed == {1: NOW, 4: NOW}
    do(metadata, "abort", operation=1)
    soon, later = NOW + 1.0, NOW + RESTS_S
    for at, moves_first in ((soon, 2), (later, 1)):
        facts.heard = dict.fromkeys(metadata.nodes, at)
        (step,) = next_steps(metadata, facts, at, LONG_S)
        assert step["inputs"] == [[moves_first, 1]]
    facts = heard(metadata)
    facts.changed = {1: NOW}
    quiet = timers(metadata, facts, NOW, LONG_S, 0.0)
    facts.heard = dict.fromkeys(metadata.nodes, later)
    assert (now_due := timers(metadata, facts, later, LONG_S, 0.0)) != quiet
    facts.short = {4}
    assert timers(metadata, facts, later, LONG_S, 0.0) != now_due
    assert next_steps(metadata, facts, later, LONG_S) == []
    facts.changed[99] = later
    next_steps(metadata, facts, later, LONG_S)
    assert 99 not in facts.changed, "there is no such range any more"
