"""What a node takes from the answers to its heartbeats."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.protocol import Operation
from lognode.client.protocol.errors import NotLeader
from lognode.client.protocol.peers import HEARTBEAT
from lognode.node.control.heartbeat import Heartbeat, program_told
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.metadata.view import View
from lognode.node.runtime.sync_thread import SyncThread
from lognode.partitions.levels import Program
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import CONTROLLER_RANGE, NodeRecord
from lognode.statemachine.meta import LmdbMeta


class Leader:
    """The connection to the controller's leader, which has told everything before."""

    error: NotLeader | None = None

    async def request(
        self, op: Operation, body: dict[str, Any], *, deadline: float
    ) -> dict[str, Any]:
        assert op is HEARTBEAT
        assert body["insecure"] is False
        if self.error is not None:
            raise self.error
        answer = {"page": None, "leaders": [], "seen": [4, 7, 90], "insecure": [[2, True]]}
        return op.check_answer(answer)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    """Of node 1; nodes 2, 3 and 5 are the members of the controller."""
    sync = SyncThread("files")
    meta = LmdbMeta(tmp_path / "meta", map_bytes=1 << 20)
    view = View(meta, sync, on_change=lambda: None, present=lambda _: True)
    metadata = Metadata()
    metadata.controller = replace(metadata.controller, generation=4, members=(2, 3, 5))
    for node in (1, 2, 3):
        metadata.nodes[node] = NodeRecord(node, "", "", "", node, 1, "ACTIVE")
    view.metadata = metadata
    yield view
    sync.close()
    meta.close()


OWN = Program(1, 1, 1, 2, "9.9")


def heartbeat_of(view: View, leader: Leader, controller: Any = None) -> Heartbeat:
    parts: dict[str, Any] = {
        "node_id": 1, "view": view, "facts": None,
        "host": SimpleNamespace(controller=controller, stored_damage={}, halted={}),
        "connection": lambda _: leader,
        "room": DiskRoom(1, 100),
        "draining": SimpleNamespace(leads_left=None),
        "large": SimpleNamespace(told=[], small=[]), "hot": SimpleNamespace(told=[]),
        "handover": SimpleNamespace(wishes=lambda _: []), "images": None,
        "exposure": SimpleNamespace(insecure=False),
        "stored": SimpleNamespace(told=dict, learn=lambda _: None), "program": OWN,
        "noted": lambda: 1,
    }  # fmt: skip
    return Heartbeat(**parts)


def test_x29_a_node_that_answers_a_heartbeat_leads_even_if_the_asker_forgot(view: View) -> None:
    """It is told the leader once; after a break only the hint of another node was known."""
    heartbeat = heartbeat_of(view, Leader())

    async def run() -> None:
        view.learn_leaders([(CONTROLLER_RANGE, 4, 0, 2)])
        assert view.elected(CONTROLLER_RANGE, 4) is None
        await heartbeat._ask()
        assert view.elected(CONTROLLER_RANGE, 4) == 2
        assert view.insecure == {1: False, 2: True}

    asyncio.run(run())


def test_the_programs_of_all_nodes_come_with_the_answer(view: View) -> None:
    leader = Leader()
    heartbeat = heartbeat_of(view, leader)
    view.programs = {3: OWN}
    asyncio.run(heartbeat._ask())
    assert view.programs == {1: OWN}, "an earlier version tells none"
    told = {"programs": [[2, 5, 9, 1, 2, "9.9", 2], [1, 1, 1, 1, 1, "stale", 1]]}
    request = leader.request

    async def answer(op: Operation, body: dict[str, Any], *, deadline: float) -> dict[str, Any]:
        assert body["program"] == [1, 1, 1, 2, "9.9", 1]
        return HEARTBEAT.check_answer({**await request(op, body, deadline=deadline), **told})

    leader.request = answer  # type: ignore[method-assign]
    asyncio.run(heartbeat._ask())
    assert view.programs == {1: OWN, 2: Program(5, 9, 1, 2, "9.9", 2)}


def test_all_nodes_show_the_nodes_that_the_leader_heard(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, leader = Clock(monkeypatch), Leader()
    heartbeat = heartbeat_of(view, leader)
    assert heartbeat.shown_alive() is None, "no leader has answered"
    asyncio.run(heartbeat._ask())
    assert heartbeat.shown_alive() is None, "an earlier version tells none"
    request = leader.request

    async def answer(op: Operation, body: dict[str, Any], *, deadline: float) -> dict[str, Any]:
        told = await request(op, body, deadline=deadline)
        return HEARTBEAT.check_answer({**told, "alive": [1, 2]})

    leader.request = answer  # type: ignore[method-assign]
    asyncio.run(heartbeat._ask())
    assert heartbeat.shown_alive() == {1, 2}
    clock.now += 3.1
    assert heartbeat.shown_alive() is None, "the leader is away"


def test_a_node_that_tells_no_program_knows_the_first_level_alone(view: View) -> None:
    heartbeat, metadata = heartbeat_of(view, Leader()), view.metadata
    metadata.nodes[3] = replace(metadata.nodes[3], boot=7, process=70)
    for node in (2, 3, 9):  # node 9 is not registered yet
        told = [1, 4, 1, 2, "9.9"] if node == 2 else None
        program = program_told(told, metadata.nodes.get(node))
        view.learn_node(node, [], [], insecure=None, program=program)
    assert view.programs == {
        2: Program(1, 4, 1, 2, "9.9"), 3: Program(7, 70, 1, 1, "before feature levels"),
    }  # fmt: skip
    metadata.nodes[2] = replace(metadata.nodes[2], state="REMOVED")
    assert heartbeat._programs(metadata) == [[3, 7, 70, 1, 1, "before feature levels", 1]]


class Clock:
    """In place of the monotonic clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_an_answer_confirms_what_the_node_knew_when_it_asked(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of rights counts from there. A refusal, and silence, confirm nothing."""
    clock, leader = Clock(monkeypatch), Leader()
    heartbeat = heartbeat_of(view, leader)
    answer = leader.request

    async def slow(op: Operation, body: dict[str, Any], *, deadline: float) -> dict[str, Any]:
        clock.now += 3.0
        return await answer(op, body, deadline=deadline)

    leader.request = slow  # type: ignore[method-assign]
    view.learn_leaders([(CONTROLLER_RANGE, 4, 7, 2)])
    clock.now += 10.0
    assert heartbeat.unsure_s() == 10.0
    asyncio.run(heartbeat._ask())
    assert heartbeat.unsure_s() == 3.0
    leader.error = NotLeader("this node does not lead the controller", hint=2)
    view.learn_leaders([(CONTROLLER_RANGE, 4, 7, 2)])
    with pytest.raises(NotLeader):
        asyncio.run(heartbeat._ask())
    assert heartbeat.unsure_s() == 6.0


def test_a_leader_is_confirmed_by_its_quorum_when_it_is_asked(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is cut off believes for a while that it leads; that confirms nothing."""
    clock = Clock(monkeypatch)
    view.metadata.nodes[3] = replace(view.metadata.nodes[3], state="REMOVED")

    class Replica:
        leads = True
        gid = SimpleNamespace(generation=4)
        group = SimpleNamespace(term=7)
        metadata = view.metadata
        has_quorum = False

        async def ready(self) -> None:
            if not self.has_quorum:
                raise NotLeader("the leader of the controller has no quorum", hint=None)

    replica = Replica()
    heartbeat = heartbeat_of(view, Leader(), replica)
    asked = {"generation": 4, "version": view.metadata.version, "seen": [4, 7, 0], "damaged": []}
    clock.now += 10.0
    with pytest.raises(NotLeader):
        asyncio.run(heartbeat.serve(3, asked))
    assert heartbeat.unsure_s() == 10.0
    replica.has_quorum = True
    asyncio.run(heartbeat.serve(3, asked))
    assert heartbeat.unsure_s() == 0.0
