"""Unsafe recovery on the survivor's own disk: what it takes for committed, whom it serves until it
is over, and every step at which it may be killed."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pure_nodes import do
from storage_node import StorageNode, descriptor, numbered_batch, one_life

from lognode.client.protocol.errors import Sealed, Unavailable
from lognode.node.directory import meta_keys
from lognode.node.directory.disk_room import DiskRoom
from lognode.node.lifecycle.duty_runner import DutyRunner
from lognode.node.replicas.range_replica import RangeReplica
from lognode.partitions import commands as metadata_commands
from lognode.partitions.change import next_steps
from lognode.partitions.facts import Facts, Report
from lognode.partitions.lineage import lineage_of
from lognode.partitions.metadata import Metadata
from lognode.partitions.model import Lineage
from lognode.partitions.recovery import SEQS_LEFT_OUT
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.range_state import Base

G1, G2 = GroupId(1, 1), GroupId(1, 2)
COMMITTED, LAST = 4, 9
"""The last entry that the survivor knew to be committed, and the last one in its log."""


async def hold(node: StorageNode) -> RangeReplica:
    """A member of three with five entries that may have been acknowledged, or not."""
    created = await node.host.create_range(descriptor(1, (1, 2, 3)), Base(), campaign=False)
    replica: RangeReplica | None = created
    assert replica is not None
    for index in range(2, LAST + 1):
        command = commands.encode(commands.APPEND, 1_000, [numbered_batch(index, [b"key"])])
        replica.raft_log.append(index, 3, command)
    replica.raft_log.set_commit(COMMITTED)
    await node.rounds.durable()
    return replica


def numbers(replica: RangeReplica) -> list[int]:
    """Of the records that the replica shows."""
    page = replica.state.scan(b"key", 1, None, limit=100, bytes_max=1 << 20)
    values: list[bytes] = page.to_wire()["values"]
    return [int(value.split(b":")[0]) for value in values]


def test_S2_S11_all_of_the_log_counts_and_nobody_is_served_before_the_next_generation(
    tmp_path: Path,
) -> None:
    async def alone(node: StorageNode) -> None:
        replica = await hold(node)
        before = replica.fingerprint
        await node.host.go_on_alone(replica)
        found = node.host.replica(G1)
        assert replica.stopped
        assert found is not None
        await refuses(node, found, before)
        with pytest.raises(Unavailable):
            await node.host.go_on_alone(replica)

    async def again(node: StorageNode) -> None:
        """After a restart it is the same, without having been asked."""
        found = node.host.replica(G1)
        assert found is not None
        await refuses(node, found, descriptor(1, (1, 2, 3)).fingerprint())
        await node.flusher.flush(found)  # what it stores later says the same
        row = node.meta.get(meta_keys.replica_key(G1))
        assert row is not None
        assert (row["descriptor"]["members"], row["descriptor"]["state"]) == ([1], "SEALING")

    async def refuses(node: StorageNode, found: RangeReplica, before: bytes) -> None:
        await node.leading(found)
        assert found.members == (1,)
        assert found.fingerprint != before, "it would take messages of the others"
        assert numbers(found) == list(range(2, LAST + 1))
        with pytest.raises(Sealed):
            found.append(numbered_batch(50, [b"key"]))
        with pytest.raises(Sealed):
            await found.propose_and_wait(commands.FENCE, [7, 2, 2])
        with pytest.raises(Sealed):
            await found.read_barrier()
        assert found.state.sealed is None

    one_life(tmp_path, alone)
    for _ in range(2):
        one_life(tmp_path, again)


def test_a_flush_that_is_under_way_does_not_bring_the_others_back(tmp_path: Path) -> None:
    async def test(node: StorageNode) -> None:
        replica = await hold(node)
        async with asyncio.timeout(10):
            await replica.wait_applied(COMMITTED)
        flush = asyncio.ensure_future(node.flusher.flush(replica))
        async with replica.base_turn:
            going = asyncio.ensure_future(node.host.go_on_alone(replica))
            await asyncio.sleep(0.01)
            assert not replica.stopped, "its row is being written"
        await asyncio.gather(flush, going, return_exceptions=True)
        row = node.meta.get(meta_keys.replica_key(G1))
        assert row is not None
        assert row["descriptor"]["members"] == [1]

    one_life(tmp_path, test)


SEAL = LAST + 1


async def hold_to_the_seal(node: StorageNode) -> RangeReplica:
    """A member of three that has the seal in its log, and does not know that it is committed."""
    replica = await hold(node)
    replica.raft_log.append(SEAL, 3, commands.encode(commands.SEAL, 1_000, 1))
    await node.rounds.durable()
    return replica


def test_L2_a_decided_generation_ends_and_the_next_begins_where_no_other_member_is_left(
    tmp_path: Path,
) -> None:
    ends: list[Lineage] = []

    async def peer(node: StorageNode) -> None:
        replica = await hold_to_the_seal(node)
        replica.learn_commit(SEAL, 3)
        await node.applied(replica)
        await node.flusher.flush(replica)
        base = replica.state.durable_base
        end = lineage_of(G1, (base.applied_index, base.applied_term), base.tables)
        assert end is not None
        ends.append(end)

    async def test(node: StorageNode) -> None:
        replica = await hold_to_the_seal(node)
        for index, term in ((SEAL, 4), (SEAL, 2), (SEAL + 1, 3)):
            replica.learn_commit(index, term)
            assert replica.raft_log.commit_index == COMMITTED, "another entry is committed there"
        survivor = Survivor()
        do(survivor.metadata, op=metadata_commands.PLAN, kind="move", inputs=[G1],
           outputs=[{"range": 1, "members": [1, 2, 3]}])  # fmt: skip
        do(survivor.metadata, op=metadata_commands.SEALING, operation=1)
        do(survivor.metadata, op=metadata_commands.DECIDE, operation=1, lineage=[list(ends[0])],
           members=[[1, 2, 3]])  # fmt: skip
        begun = None
        while begun is None:
            await survivor.live(node, most=1)
            begun = node.host.replica(G2)
        assert {"LearnEnd", "Flush", "Begin"} <= set(survivor.done)
        assert numbers(begun) == list(range(2, LAST + 1))

    one_life(tmp_path / "peer", peer)
    one_life(tmp_path / "node", test)


class Survivor:
    """Node 1 of three, the others dead, with the controller's metadata beside it."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        do(self.metadata, op=metadata_commands.FOUND, cluster="c", node=1)
        for node in (1, 2, 3):
            do(self.metadata, op=metadata_commands.REGISTER, incarnation=node, boot=1, process=1,
               address="a:1")  # fmt: skip
        do(self.metadata, op=metadata_commands.CREATE_LOG, name="orders", replicas=3)
        for node in (2, 3):
            do(self.metadata, op=metadata_commands.NODE_STATE, node=node, state="DEAD")
        self.facts = Facts()
        self.done: list[str] = []

    async def live(self, node: StorageNode, most: int) -> None:
        """Until so many duties are done, or the range is recovered and all is quiet."""
        view: Any = SimpleNamespace(
            metadata=self.metadata, leader=lambda *_: None, policy=lambda _: None
        )

        async def fetch(*_: object, **__: object) -> Base:
            raise Unavailable("no peer is left")

        fetcher: Any = SimpleNamespace(fetch=fetch)

        async def report(told: Report) -> None:
            self.facts.take(1, told, 0.0)
            for step in next_steps(self.metadata, self.facts, 0.0, leads_for_s=0.0):
                do(self.metadata, **step)

        duties = DutyRunner(
            node_id=1, host=node.host, view=view, flusher=node.flusher, fetcher=fetcher,
            sync=node.files, report=report, room=DiskRoom(1, 0), on_broken=node._fail,
        )  # fmt: skip
        ended = 0
        do_one = duties._do

        async def counted(duty: Any) -> None:
            nonlocal ended
            self.done.append(type(duty).__name__)
            await do_one(duty)
            ended += 1

        duties._do = counted  # type: ignore[method-assign]
        running = asyncio.ensure_future(duties.run())
        async with asyncio.timeout(20):
            while ended < most and (self.metadata.operations or node.host.replica(G1)):
                assert node.failure is None, node.failure
                duties.wake()
                await asyncio.sleep(0.002)
        running.cancel()


@pytest.mark.parametrize("killed_after", range(1, 9))
def test_a_recovery_continues_after_a_kill_of_the_survivor_at_any_step(
    tmp_path: Path, killed_after: int
) -> None:
    survivor = Survivor()

    async def begin(node: StorageNode) -> None:
        await hold(node)
        answer = survivor.metadata.apply(
            1, 1, {"op": metadata_commands.RECOVER, "range": 1, "from": 1}
        )
        assert "ok" in answer, answer
        await survivor.live(node, killed_after)

    def rest(node: StorageNode) -> Awaitable[None]:
        return survivor.live(node, 1_000)

    async def look(node: StorageNode) -> None:
        replica = node.host.replica(G2)
        assert replica is not None
        await node.leading(replica)
        assert numbers(replica) == list(range(2, LAST + 1))
        reply = await replica.append(numbered_batch(LAST + 1, [b"key"]))
        assert reply["first_seq"] == LAST + SEQS_LEFT_OUT, "S6: those after it may have been given"
        again = await replica.append(numbered_batch(LAST, [b"key"]))
        assert again["duplicates"] == [0], "S8: the table of producers came along"
        await node.flusher.flush(replica)
        assert numbers(replica) == list(range(2, LAST + 2))

    one_life(tmp_path, begin)
    one_life(tmp_path, rest)
    for step in ("GoAlone", "Seal", "Flush", "Tell", "Begin", "Retire"):
        assert step in survivor.done
    assert not survivor.metadata.operations
    assert survivor.metadata.ranges[1].members == (1,)
    one_life(tmp_path, look)


def test_a_stopped_replica_begins_again_alone_on_request(tmp_path: Path) -> None:
    """The first survivor is gone too: another is named, which takes no part any more."""
    survivor = Survivor()
    metadata = survivor.metadata
    do(metadata, op=metadata_commands.NODE_STATE, node=1, state="DEAD")
    do(metadata, op=metadata_commands.NODE_STATE, node=2, state="ACTIVE")
    metadata.controller = replace(metadata.controller, members=(2,))

    async def test(node: StorageNode) -> None:
        replica = await hold(node)
        do(metadata, op=metadata_commands.RECOVER, **{"range": 1, "from": 2})
        await survivor.live(node, 1)
        assert survivor.done == ["StandDown"]
        assert replica.stopped
        assert node.host.replica(G1) is replica, "what it has stays"
        do(metadata, op=metadata_commands.NODE_STATE, node=2, state="DEAD")
        do(metadata, op=metadata_commands.NODE_STATE, node=1, state="ACTIVE")
        do(metadata, op=metadata_commands.RECOVER, **{"range": 1, "from": 1})
        await survivor.live(node, 1_000)
        found = node.host.replica(G2)
        assert found is not None
        assert numbers(found) == list(range(2, LAST + 1))

    one_life(tmp_path, test)
