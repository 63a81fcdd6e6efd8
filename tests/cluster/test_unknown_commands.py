"""A replica stops at a command of a newer program, and goes on with it after an upgrade."""

import asyncio
from pathlib import Path

import pytest
from live_nodes import live, until

import lognode
from lognode.client.protocol.errors import LognodeError
from lognode.partitions import commands as metadata_commands
from lognode.partitions.metadata import Metadata
from lognode.statemachine import commands

pytestmark = pytest.mark.cluster

OLD_KINDS = commands.KINDS - {commands.TRIM_KEYS}


def without_create_log(cls: type[Metadata]) -> list[str]:
    return [op for op in KNOWN if op != metadata_commands.CREATE_LOG]


KNOWN = Metadata.known_commands()


async def fails(call: asyncio.Task[object]) -> None:
    """The call has no success while the replica stands still; nobody waits for it any longer."""
    await asyncio.wait({call}, timeout=0.3)
    call.cancel()
    with pytest.raises((LognodeError, asyncio.CancelledError)):
        await call


def test_a_replica_stops_at_an_unknown_command_and_goes_on_after_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster:
            (node,) = cluster.nodes
            with monkeypatch.context() as older:
                older.setattr(commands, "KINDS", OLD_KINDS)
                # What an older program left, in which a newer leader's command arrives.
                await node.stop()
                await node.start()
                async with lognode.AsyncClient(cluster.address) as client:
                    log = await client.create_log("orders")
                    other = await client.create_log("others")
                    await log.append_many([(b"k", b"%d" % n) for n in range(20)])
                    await fails(asyncio.create_task(log.trim(b"k", before=11)))
                    (gid,) = node.host.halted
                    await other.append(b"k", b"v")
                for _ in range(2):
                    said = node.host.halted[gid]
                    assert "a command of kind 7; this program knows 1, 2, 3, 4, 5, 6, 8" in said
                    assert "Upgrade this node" in said
                    assert node.host.damaged == {}
                    replica = node.host.replica(gid)
                    assert (replica.stopped, replica.state.next_seq) == (True, 21)
                    await node.stop()
                    await node.start()
                    await until(lambda: node.host.halted, "the replica meets the command again")
                async with lognode.AsyncClient(cluster.address) as client:
                    await client.log("others").append(b"k", b"v")
            await node.stop()
            await node.start()
            async with lognode.AsyncClient(cluster.address) as client:
                log = client.log("orders")
                assert [each.seq async for each in log.scan(b"k")] == list(range(11, 21))
                await log.append(b"k", b"after")
                assert (await log.latest(b"k")).seq == 21
            assert node.host.halted == {}
            assert "replica stops at a command of a newer program" in caplog.text

    asyncio.run(run())


@pytest.mark.by_hand
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_the_other_members_go_on_without_the_member_that_does_not_know_a_command(
    tmp_path: Path, leads: bool
) -> None:
    async def run() -> None:
        async with live(tmp_path, 3) as cluster, lognode.AsyncClient(cluster.address) as client:
            await cluster.healthy(3)
            log = await client.create_log("orders", replicas=3)
            await log.append_many([(b"k", b"%d" % n) for n in range(20)])
            await cluster.settled()
            old = next(each for each in cluster.nodes if each.host.ranges()[0].leads == leads)
            (replica,) = old.host.ranges()
            replica.state.kinds = OLD_KINDS
            await log.trim(b"k", before=11)
            await until(lambda: replica.gid in old.host.halted, "the old member stops")
            number = old.node.identity.node_id
            told = f"node {number}'s replica of range {replica.gid.range_id} of log orders waits "
            for _ in range(400):
                if any(told in why for why in (await client.health())["reasons"]):
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError((await client.health())["reasons"])
            await log.append(b"k", b"w")
            # A change of generation begins on the members that know the command, not on this one.
            await client.admin.split("orders", at=b"m", wait=False)
            others = [each for each in cluster.nodes if each is not old]
            await until(lambda: all(len(each.host.ranges()) >= 2 for each in others), "the split")
            await log.append(b"k", b"x")
            assert replica.gid in old.host.halted
            assert [each.gid for each in old.host.ranges()] == [replica.gid]
            await old.stop()
            await old.start()
            await cluster.settled()
            assert len(old.host.ranges()) == 2
            assert await log.count(b"k", node=number, through=22) == 12
            assert old.host.halted == {}

    asyncio.run(run())


def test_the_controller_stops_at_an_unknown_command_and_goes_on_after_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with live(tmp_path) as cluster:
            (node,) = cluster.nodes
            async with lognode.AsyncClient(cluster.address) as client:
                log = await client.create_log("orders")
                await log.append(b"k", b"v")
                with monkeypatch.context() as older:
                    older.setattr(Metadata, "known_commands", classmethod(without_create_log))
                    await fails(asyncio.create_task(client.create_log("others")))
                    (gid,) = node.host.halted
                    assert (gid.range_id, node.host.controller) == (0, None)
                    assert "metadata command 'create_log'; this program" in node.host.halted[gid]
                    await log.append(b"k", b"w")
            await node.stop()
            await node.start()
            async with lognode.AsyncClient(cluster.address) as client:
                await client.log("others").append(b"k", b"v")
                assert await client.log("orders").count(b"k") == 2
            assert node.host.halted == {}

    asyncio.run(run())
