"""Which leads are handed over, to whom, and that this comes to an end."""

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import Operation
from lognode.client.protocol.errors import Conflict, InvalidArgument
from lognode.client.protocol.peers import GIVE_LEAD, HEARTBEAT
from lognode.node.control import heartbeat, lead_balance
from lognode.node.control.heartbeat import Heartbeat
from lognode.node.control.lead_balance import LeadBalance
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.metadata.leaders import Leaders
from lognode.node.serving.cluster_service import ClusterService
from lognode.partitions.balance import tolerance
from lognode.partitions.facts import Facts
from lognode.partitions.leads import LEAD_RESTS_S, TRY_AGAIN_AFTER_S, handovers
from lognode.partitions.leaving import DEAD_AFTER_S
from lognode.partitions.levels import Program
from lognode.partitions.metadata import Metadata
from lognode.partitions.shrinking import Small
from lognode.raft.types import GroupId

ALL = (1, 2, 3)
Body = dict[str, Any]


def cluster(nodes: int, homes: Sequence[tuple[int, ...]]) -> Metadata:
    """A log with a range on each of the homes, its number that of its place."""
    metadata = Metadata()
    commands: list[dict[str, Any]] = [
        {"op": "found", "cluster": "c", "node": 1},
        *({"op": "register", "incarnation": n, "boot": 1} for n in range(1, nodes + 1)),
        {"op": "create_log", "name": "a", "ranges": len(homes)},
    ]
    for command in commands:
        assert "ok" in metadata.apply(1, 1, command)
    for range_id, members in enumerate(homes, 1):
        metadata.ranges[range_id] = replace(metadata.ranges[range_id], members=members)
    return metadata


def given(
    metadata: Metadata,
    leaders: Sequence[int],
    *,
    alive: Collection[int] | None = None,
    keepers: Mapping[int, int] | None = None,
    short: Collection[int] = (),
) -> list[tuple[int, int, int]]:
    """Range, from which node and to which."""

    def leader(range_id: int, generation: int) -> int | None:
        assert metadata.ranges[range_id].generation == generation
        return leaders[range_id - 1] or None

    found = handovers(
        metadata, metadata.nodes if alive is None else alive, keepers or {}, short, leader
    )
    return [(each.range_id, each.from_node, each.to_node) for each in found]


@pytest.mark.parametrize(
    ("homes", "leaders", "expected"),
    [
        ([ALL] * 12, [1] * 12, [(1, 1, 2)]),
        ([ALL] * 12, [1] * 6 + [2] * 6, [(1, 1, 3)]),  # not two to one
        ([ALL] * 12, [1] * 5 + [2] * 4 + [3] * 3, []),
        ([ALL] * 12, [1] * 6 + [2] * 3 + [3] * 3, [(1, 1, 2)]),
        ([ALL] * 2, [1, 1], []),
        ([ALL] * 3, [1, 1, 1], [(1, 1, 2)]),
        ([(1,)] * 5 + [ALL], [1] * 6, [(6, 1, 2)]),  # leads that no other node can take count
        ([(1,)] * 5, [1] * 5, []),
        ([(1, 2, 4)] * 4 + [(1, 3, 4)], [1] * 5, [(1, 1, 2)]),
        (
            [(1, 2, 4)] * 4 + [(1, 2, 3)],
            [1, 1, 1, 2, 1],
            [(5, 1, 3)],
        ),  # of the node with fewest leads
        ([(1, 2, 3)] * 4 + [(2, 3, 4)] * 4, [1] * 4 + [2] * 4, [(1, 1, 3), (5, 2, 4)]),
        ([ALL] * 6, [1, 1, 1, 0, 0, 0], [(1, 1, 2)]),  # the leaders of these are unknown
    ],
)
def test_the_node_with_most_leads_gives_a_lead_to_the_member_with_fewest(
    homes: list[tuple[int, ...]], leaders: list[int], expected: list[Any]
) -> None:
    metadata = cluster(4, homes)
    alive = {node for members in homes for node in members} | {3}
    assert given(metadata, leaders, alive=alive) == expected


def test_pinned_and_busy_ranges_keep_their_leader_and_some_nodes_get_none() -> None:
    metadata, leaders = cluster(4, [ALL] * 8), [1] * 8
    assert given(metadata, leaders) == [(1, 1, 2)]
    assert given(metadata, leaders, keepers={1: 1, 2: 1}) == [(3, 1, 2)]
    assert given(metadata, leaders, keepers={1: 2}) == [(1, 1, 2)], "it leads no longer"
    assert given(metadata, leaders, short={2}) == [(1, 1, 3)]
    assert given(metadata, leaders, short={1}) == [], "it hands all over by itself"
    assert given(metadata, leaders, alive={1, 3, 4}) == [(1, 1, 3)]
    assert given(metadata, leaders, alive={2, 3, 4}) == []
    assert "ok" in metadata.apply(1, 1, {"op": "split_range", "log": "a", "at": b"\x01"})
    assert given(metadata, [*leaders, 1]) == [(2, 1, 2)]
    for node, expected in ((2, [(2, 1, 3)]), (1, [])):
        metadata.nodes[node] = replace(metadata.nodes[node], state="DRAINING")
        assert given(metadata, [*leaders, 1]) == expected


@pytest.mark.parametrize("seed", range(100))
def test_handovers_from_any_state_come_to_an_end(seed: int) -> None:
    """Where no member of a range leads many fewer ranges than its leader."""
    rng = random.Random(seed)
    nodes = rng.randint(1, 8)
    sizes = [size for size in (1, 3, 5) if size <= nodes]
    homes = [
        tuple(sorted(rng.sample(range(1, nodes + 1), rng.choice(sizes))))
        for _ in range(rng.randint(1, 80))
    ]
    metadata, leaders = cluster(nodes, homes), [rng.choice(members) for members in homes]
    done = 0
    while found := given(metadata, leaders):
        assert len({leaves for _, leaves, _ in found}) == len(found)
        assert len({comes for _, _, comes in found}) == len(found)
        for range_id, leaves, comes in found:
            assert leaders[range_id - 1] == leaves
            assert comes in homes[range_id - 1]
            leaders[range_id - 1] = comes
            done += 1
        assert done <= 2 * len(homes), "it goes on and on"
    leads = Counter(dict.fromkeys(metadata.nodes, 0))
    leads.update(leaders)
    for members, leader in zip(homes, leaders, strict=True):
        assert leads[leader] - min(leads[node] for node in members) <= tolerance(leads)


# At the controller's leader.


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lead_balance, "time", clock)
    monkeypatch.setattr(heartbeat, "time", clock)
    return clock


class World:
    """A node that leads the controller, and its peers."""

    def __init__(self, clock: Clock, node: int, leaders: list[int]) -> None:
        self.metadata, self.leaders = cluster(3, [ALL] * len(leaders)), leaders
        self.asked: list[tuple[int, Body]] = []
        self.node, self.linked = node, True
        self.number = 0
        self.given = True
        self.facts = Facts()
        self.facts.heard = dict.fromkeys(ALL, clock.now + 1e6)
        self.replica = SimpleNamespace(leads=True, leads_since=0.0, metadata=self.metadata)
        host: Any = SimpleNamespace(controller=self.replica)
        view: Any = SimpleNamespace(leaders=self, leader=self._leader)
        connection: Any = self._connection
        handover: Any = SimpleNamespace(give=self.give)
        self.balance = LeadBalance(
            node_id=node, host=host, view=view, facts=self.facts, connection=connection,
            handover=handover,
        )  # fmt: skip

    def _leader(self, range_id: int, _: int) -> int:
        return self.leaders[range_id - 1]

    def _connection(self, node: int) -> Any:
        assert node != self.node, "nobody has a link to itself"

        async def request(op: Operation, body: Body, deadline: float) -> dict[str, bool]:
            assert op is GIVE_LEAD
            return await self.give(node, body)

        return SimpleNamespace(request=request) if self.linked else None

    async def give(self, node: int, body: Body) -> dict[str, bool]:
        self.asked.append((node, body))
        if self.given is None:
            raise Conflict("another hand-over is under way")
        return {"given": self.given}

    def look(self) -> list[tuple[int, int, int]]:
        """What is asked: of whom, for which range and node."""
        self.asked.clear()
        asyncio.run(self.balance.look())
        return [(node, body["range"], body["node"]) for node, body in self.asked]


@pytest.mark.parametrize("node", [1, 3])
def test_the_controllers_leader_asks_the_leader_and_the_range_rests(
    clock: Clock, node: int
) -> None:
    world = World(clock, node, [1] * 5)
    assert world.look() == [(1, 1, 2)]
    why = "node 1 leads 5 ranges, node 2 leads 0"
    assert world.asked[0][1] == {"range": 1, "generation": 1, "node": 2, "why": why}
    assert world.facts.kept == {1: (2, clock.now + LEAD_RESTS_S)}
    world.leaders, world.number = [2, 2, 2, 2, 1], 1
    assert world.look() == [(2, 2, 3)], "it keeps the first"
    clock.now += LEAD_RESTS_S
    assert world.look() == [(2, 1, 3)]


def test_a_hand_over_that_fails_is_tried_again_later_and_others_before(clock: Clock) -> None:
    world = World(clock, 1, [2] * 4)
    for world.given in (False, None):  # type: ignore[assignment]
        assert world.look()[0][0] == 2
    world.linked = False
    assert world.look() == []
    assert world.facts.kept == dict.fromkeys((1, 2, 3), (2, clock.now + TRY_AGAIN_AFTER_S))
    world.linked = world.given = True
    clock.now += TRY_AGAIN_AFTER_S
    assert world.look() == [(2, 1, 1)]


def test_all_ranges_are_gone_over_only_when_something_has_changed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand held the event loop each second."""
    world, looked = World(clock, 1, [1, 2, 3]), 0

    def counted(*told: Any) -> Any:
        nonlocal looked
        looked += 1
        return handovers(*told)

    monkeypatch.setattr(lead_balance, "handovers", counted)

    def looks() -> int:
        before = looked
        for _ in range(3):
            world.look()
        return looked - before

    assert looks() == 1
    world.leaders, world.number = [1, 1, 2], 1
    assert looks() == 1
    world.facts.short = {3}
    assert looks() == 1
    world.facts.keep(1, 1, clock.now + 1.0)
    assert looks() == 1
    clock.now += 1.0
    assert looks() == 1
    del world.facts.heard[2]
    assert looks() == 1
    world.metadata.version += 1
    assert looks() == 1
    world.facts.heard[2], world.leaders = clock.now, [1, 1, 1]
    world.facts.short = ()
    assert looks() == 3, "as long as leads are handed over"


def test_x2_23_a_node_that_does_not_lead_the_controller_or_only_just_leads_asks_no_node(
    clock: Clock,
) -> None:
    world = World(clock, 1, [1] * 5)
    for leads, since in ((False, 0.0), (True, None), (True, clock.now - DEAD_AFTER_S + 0.1)):
        world.replica.leads, world.replica.leads_since = leads, since
        assert world.look() == []
    world.replica.leads_since = clock.now - DEAD_AFTER_S
    assert len(world.look()) == 1
    world.balance._host = SimpleNamespace(controller=None)  # type: ignore[assignment]
    assert world.look() == []


# What an operator wants.


class Heard:
    """The controller's leader at the other end of heartbeats, and a node that sends them."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.facts = clock, Facts()
        self.wishes: list[tuple[int, int, float]] = []
        self.room = DiskRoom(1, 100)
        metadata = cluster(3, [ALL])

        async def nothing(*_: Any) -> None:
            return None

        replica = SimpleNamespace(
            leads=True, ready=nothing, metadata=metadata, gid=GroupId(0, 1),
            group=SimpleNamespace(term=1),
        )  # fmt: skip
        parts: dict[str, Any] = {
            "node_id": 1,
            "host": SimpleNamespace(controller=replica, stored_damage={}, halted={}),
            "view": SimpleNamespace(
                learning=lambda _: iter(()), learn_node=lambda *_, **__: None, changed=nothing,
                leaders=Leaders(), damaged={}, halted={}, insecure={}, programs={},
                kafka={},
            ),
            "facts": self.facts,
            "connection": lambda _: None,
            "room": self.room,
            "draining": SimpleNamespace(leads_left=None),
            "large": SimpleNamespace(told=[], small=[]),
            "hot": SimpleNamespace(told=[]),
            "handover": SimpleNamespace(wishes=lambda _: self.wishes),
            "exposure": SimpleNamespace(insecure=False),
            "program": Program(1, 1, 1, 2, "9.9"), "noted": lambda: 1,
        "stored": SimpleNamespace(told=dict, learn=lambda _: None),
            "images": SimpleNamespace(first_page=nothing),
        }  # fmt: skip
        self.heartbeat = Heartbeat(**parts)

    def serve(self, **told: Any) -> None:
        """Node 2 sends one."""
        body = {"leaders": [], "seen": [0, 0, 0], "generation": 1, "version": 0, **told}
        asyncio.run(self.heartbeat.serve(2, HEARTBEAT.request.check(body)))

    def note_own(self) -> None:
        self.heartbeat._note_own()


def test_the_leader_that_an_operator_chose_is_reported_and_kept(clock: Clock) -> None:
    heard = Heard(clock)
    heard.serve(wishes=[[7, 3, 100.0]])
    assert heard.facts.keepers(clock.now) == {7: 3}
    heard.wishes = [(8, 2, 0.0)]
    heard.note_own()
    assert heard.facts.keepers(clock.now + LEAD_RESTS_S - 100.1) == {7: 3, 8: 2}
    assert heard.facts.keepers(clock.now + LEAD_RESTS_S - 100) == {8: 2}
    heard.serve()  # of a node that knows no wishes
    for wrong in ([[1, 2]], [[1, 2, -1.0]], [[1, 2, 601.0]], [["x", 2, 1.0]], 5):
        with pytest.raises(InvalidArgument, match="wishes"):
            heard.serve(wishes=wrong)


def test_small_ranges_are_told_with_the_heartbeat_and_forgotten_with_the_next(
    clock: Clock,
) -> None:
    heard = Heard(clock)
    heard.serve(small=[[7, 1, 4_096, 2]])
    assert heard.facts.small == {2: [Small(7, 1, 4_096, 2)]}
    heard.serve()
    heard.note_own()
    assert heard.facts.small == {1: [], 2: []}


def test_a_wish_that_has_come_true_already_is_kept_too() -> None:
    """The range was given away a second later, the others that were handed over were not."""
    metadata, wishes = cluster(3, [ALL]), []
    parts: dict[str, Any] = {
        "node_id": lambda: 2,
        "host": None,
        "view": SimpleNamespace(metadata=metadata, leader=lambda *_: 1),
        "connection": lambda _: None,
        "status": None,
        "rng": None,
        "handover": SimpleNamespace(wish=lambda *wish: wishes.append(wish)),
        "recoveries": SimpleNamespace(report=None),
        "room": None,
        "images": None,
        "wall_ms": None,
        "alive": set,
    }
    service = ClusterService(**parts)
    answer = asyncio.run(service.range_transfer({"range": 1, "node": 1}))
    assert (answer, wishes) == ({"leader": 1, "changed": False}, [(1, 1)])


def test_heartbeats_tell_which_nodes_are_short_of_disk(clock: Clock) -> None:
    heard = Heard(clock)
    heard.serve(disk_free=7)
    assert set(heard.facts.short) == {2}
    heard.room.saw(5)
    heard.note_own()
    assert set(heard.facts.short) == {1, 2}
    heard.room.saw(5_000)
    heard.serve(disk_free=None)
    assert set(heard.facts.short) == set()
