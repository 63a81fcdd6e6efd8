"""A pushed generation of the controller, when who pushed it goes away in the middle."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from storage_node import StorageNode

from lognode.client.protocol import Operation
from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.client.protocol.peers import CONTROLLER_INSTALL
from lognode.node.control.controller_changes import ControllerChanges
from lognode.node.metadata import image_pages
from lognode.node.replicas.controller_replica import ControllerReplica
from lognode.partitions import buckets
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import CONTROLLER_RANGE, Descriptor, Lineage, Span
from lognode.raft.types import GroupId

NEXT = Descriptor(CONTROLLER_RANGE, 2, 0, Span(b"", None), (1, 2, 3))
GID = GroupId(CONTROLLER_RANGE, 2)


def run(root: Path, test: Callable[[StorageNode], Awaitable[None]]) -> None:
    async def main() -> None:
        node = StorageNode(root)
        await node.start()
        try:
            async with asyncio.timeout(20):
                await test(node)
            assert node.failure is None
        finally:
            node.stop()

    asyncio.run(main())


def registered(count: int = 4) -> Metadata:
    """The state in which generation 2 begins."""
    metadata = Metadata()
    metadata.cluster_id, metadata.controller = "c", NEXT
    for number in range(1, count + 1):
        register = {"op": "register", "incarnation": number, "boot": 1, "address": "h:1"}
        assert "ok" in metadata.apply(number, 1, register)
    return metadata


async def push(
    metadata: Metadata | None = None, *, applied: tuple[int, int] = (1, 0)
) -> dict[str, Any]:
    """The only page of a push."""
    page = await image_pages.page_of(metadata or registered(), 0, tables=buckets.ALL)
    assert page["next"] is None
    return {"descriptor": NEXT.to_wire(), "applied": list(applied), "page": page}


async def begin(node: StorageNode, applied: tuple[int, int]) -> ControllerReplica | None:
    replica: ControllerReplica | None = await node.host.create_controller(
        NEXT, Metadata(), applied, campaign=False
    )
    return replica


async def begin_and_stop_half_way(node: StorageNode, applied: tuple[int, int]) -> None:
    """The log is in the WAL, the row is not in meta."""
    half = asyncio.ensure_future(begin(node, applied))
    while GID not in node.wal.groups and not half.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    half.cancel()
    await asyncio.wait([half])
    assert half.cancelled()
    assert GID in node.wal.groups
    assert GID not in node.host.groups


def test_x3_a_log_left_by_an_earlier_push_goes_on_from_the_later_one(tmp_path: Path) -> None:
    """The node stopped with "the log does not meet the applied state", and at each start again."""

    async def test(node: StorageNode) -> None:
        await begin_and_stop_half_way(node, (1, 0))
        replica = await begin(node, (4, 1))
        assert replica is not None
        assert (replica.applied_index, replica.raft_log.base_index) == (4, 4)

    run(tmp_path, test)


def test_x3_a_log_never_goes_back_to_an_earlier_push(tmp_path: Path) -> None:
    async def test(node: StorageNode) -> None:
        await begin_and_stop_half_way(node, (4, 1))
        with pytest.raises(Unavailable):
            await begin(node, (1, 0))
        replica = await begin(node, (5, 1))
        assert replica is not None
        assert replica.raft_log.base_index == 5

    run(tmp_path, test)


def test_L2_an_install_ends_though_its_asker_has_gone(tmp_path: Path) -> None:
    """A paused node found the request's connection closed, and dropped its replica half-way."""

    async def test(node: StorageNode) -> None:
        began: list[ControllerReplica] = []
        broken: list[BaseException] = []
        changes = ControllerChanges(
            node_id=1, host=node.host, connection=lambda _: None, image=Metadata,
            began=began.append, on_broken=broken.append,
        )  # fmt: skip
        body = await push()
        request = asyncio.ensure_future(changes.install(2, body))
        await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait([request])
        await changes.install(3, body)
        assert [replica.gid for replica in began] == [GID]
        assert node.host.groups[GID] is began[0]
        assert not broken

    run(tmp_path, test)


def test_x2_a_log_of_the_controller_that_meta_does_not_know_is_damage(tmp_path: Path) -> None:
    """It refused each push for ever, in the log alone: nobody repaired it, and the generation
    before it stayed."""

    async def test(node: StorageNode) -> None:
        node.wal.create_group(GID, index=1, term=0).append(2, 1, b"said and promised")
        await node.rounds.durable()
        assert await begin(node, (1, 0)) is None
        reported = dict(node.host.damaged)
        assert "meta is older than the WAL" in reported.pop(GID)
        assert not reported

    run(tmp_path, test)

    async def later(node: StorageNode) -> None:
        assert list(node.host.damaged) == [GID]
        assert await begin(node, (1, 0)) is None
        repaired = await node.host.create_controller(
            replace(NEXT, generation=3), Metadata(), (1, 0), campaign=False
        )
        assert repaired is not None
        assert node.host.controller is repaired

    run(tmp_path, later)


@pytest.mark.parametrize("late", [False, True])
def test_x2_a_push_to_a_damaged_member_is_refused(tmp_path: Path, late: bool) -> None:
    """It was answered like any other: who pushed took the member for one that has begun, and let
    the generation before go."""

    async def test(node: StorageNode) -> None:
        began: list[ControllerReplica] = []
        broken: list[BaseException] = []
        changes = ControllerChanges(
            node_id=1, host=node.host, connection=lambda _: None, image=Metadata,
            began=began.append, on_broken=broken.append,
        )  # fmt: skip
        body = await push()
        if late:
            await changes.install(2, body)
            node.host.damage(began.pop(), CorruptData("a checksum"))
        else:
            node.wal.create_group(GID, index=1, term=0).append(2, 1, b"said and promised")
        for _ in range(2):
            with pytest.raises(CorruptData):
                await changes.install(2, body)
        assert not began
        assert not broken
        await node.host.retire([GID])
        assert await changes.install(2, body) == {"done": True}, "later generations have begun"

    run(tmp_path, test)


def test_L1_one_member_that_refuses_keeps_the_push_from_nobody_else(tmp_path: Path) -> None:
    """Of three, one whose WAL knows more than its meta refused each time: the third, asked after
    it, never began, and the new generation had no majority."""

    class Peer:
        def __init__(self, number: int) -> None:
            self.number = number

        async def request(self, op: Operation, body: dict[str, Any], *, deadline: float) -> object:
            assert op is CONTROLLER_INSTALL
            asked.append(self.number)
            if self.number == 2:
                raise CorruptData("meta is older than the WAL")
            return {"done": True}

    asked: list[int] = []

    async def test(node: StorageNode) -> None:
        parent = Lineage(CONTROLLER_RANGE, 1, 9, 1, 0, 0, b"")
        replica = await node.host.create_controller(
            replace(NEXT, lineage=(parent,)), Metadata(), (1, 0), campaign=False
        )
        assert replica is not None
        peers: Any = {number: Peer(number) for number in (2, 3)}
        changes = ControllerChanges(
            node_id=1, host=node.host, connection=peers.get, image=Metadata,
            began=lambda _: None, on_broken=lambda _: None,
        )  # fmt: skip
        run = asyncio.ensure_future(changes.run())
        while asked.count(2) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        run.cancel()
        assert asked == [2, 3, 2]

    run(tmp_path, test)


def sealed_for(*members: int) -> Metadata:
    """At its last record, which names the members of generation 3."""
    metadata = registered()
    seal = {"op": "seal_controller", "members": list(members)}
    assert "ok" in metadata.apply(9, 1, seal)
    return metadata


def test_x29_a_leaving_member_of_the_controller_pushes_until_it_hears_a_later_leader(
    tmp_path: Path,
) -> None:
    """The only member held the last record alone when another node was to take its place: nobody
    began the next generation. Then its replica goes, and not before."""
    asked: list[int] = []
    bodies: list[dict[str, Any]] = []

    class Peer:
        async def request(self, op: Operation, body: dict[str, Any], *, deadline: float) -> object:
            assert op is CONTROLLER_INSTALL
            asked.append(4)
            if len(asked) == 1:
                raise Unavailable("not yet")
            bodies.append(body)
            return {"done": True}

    async def test(node: StorageNode) -> None:
        metadata = sealed_for(4)
        replica = await node.host.create_controller(NEXT, metadata, (9, 1), campaign=False)
        assert replica is not None
        known = metadata  # what a node knows first is its own replica's
        peers: Any = {4: Peer()}
        changes = ControllerChanges(
            node_id=1, host=node.host, connection=peers.get, image=lambda: known,
            began=lambda _: None, on_broken=lambda _: None,
        )  # fmt: skip
        run = asyncio.ensure_future(changes.run())
        while not bodies:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (body,) = bodies
        assert (body["descriptor"]["generation"], body["descriptor"]["members"]) == (3, [4])
        image = await image_pages.Assembly().add(body["page"])
        assert image is not None
        assert (body["applied"], (await image_pages.made(image)).sealed) == ([1, 0], False)
        await asyncio.sleep(0.3)  # three looks
        assert len(asked) == 2, "it has it"
        assert GID in node.host.groups, "nobody has said that the next generation goes on"
        known = Metadata.from_image(metadata.image())
        known.begin_generation()
        while GID in node.host.groups:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        run.cancel()

    run(tmp_path, test)


@pytest.mark.parametrize(("members", "goes"), [((2, 3, 4), True), ((1, 2, 4), False)])
def test_x29_a_replica_of_the_controller_is_deleted_where_it_is_not_a_member(
    tmp_path: Path, members: tuple[int, ...], goes: bool
) -> None:
    async def test(node: StorageNode) -> None:
        replica = await node.host.create_controller(NEXT, Metadata(), (1, 0), campaign=False)
        assert replica is not None
        image = sealed_for(*members)
        image.begin_generation()
        changes = ControllerChanges(
            node_id=1, host=node.host, connection=lambda _: None, image=lambda: image,
            began=lambda _: None, on_broken=lambda _: None,
        )  # fmt: skip
        run = asyncio.ensure_future(changes.run())
        await asyncio.sleep(0.3)  # three looks
        run.cancel()
        assert (GID not in node.host.groups) == goes

    run(tmp_path, test)


def test_x3_earlier_generations_are_searched_until_none_can_begin() -> None:
    """A generation that began after a search, and before its mark, must be retired too."""
    first, second = GroupId(CONTROLLER_RANGE, 1), GroupId(CONTROLLER_RANGE, 2)
    retired: list[GroupId] = []
    host: Any = SimpleNamespace(groups={}, damaged={}, marks={CONTROLLER_RANGE: 1})

    async def retire(gids: Sequence[GroupId]) -> None:
        retired.extend(gids)
        for gid in gids:
            del host.groups[gid]

    async def main() -> None:
        host.retire = retire
        changes = ControllerChanges(
            node_id=1, host=host, connection=lambda _: None, image=Metadata,
            began=lambda _: None, on_broken=lambda _: None,
        )  # fmt: skip
        await changes.retire_before(3)
        host.groups[second] = None  # the mark 1 lets generation 2 begin
        await changes.retire_before(3)
        assert retired == [second]
        host.marks[CONTROLLER_RANGE] = 2
        await changes.retire_before(3)
        host.groups[first] = None
        await changes.retire_before(3)
        assert retired == [second], "nothing is searched: neither generation can begin again"

    asyncio.run(main())
