"""A replica whose next entry needs a file that is in the tier only, while the tier is away."""

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from live_nodes import until
from storage_node import StorageNode, descriptor

from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.client.protocol.records import encode_batch
from lognode.node.replicas import range_replica
from lognode.node.replicas.far_conditions import FarConditions
from lognode.node.replicas.range_replica import RangeReplica
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_file import SegmentFile

GID = GroupId(1, 1)
OLD = b"old"


def batch(key: bytes, expect: int | None = None) -> bytes:
    expects = None if expect is None else [expect]
    return encode_batch([key], [b"v"], producer=0, epoch=0, low=1, numbers=1, expects=expects)


class Tier:
    """Where the only file of the replica is."""

    def __init__(self, node: StorageNode, root: Path) -> None:
        self._node = node
        self._root = root
        self.is_away = False
        self.asked = 0
        self.answers = threading.Event()
        """Whether the tier answers, which says that it is away."""
        self.answers.set()
        node.store.read_elsewhere(self._open, asyncio.to_thread)

    def take(self, content_id: str) -> None:
        """Take a file from the disk of the node."""
        shutil.copy(self._node.store.path(content_id), self._root / content_id)
        for removed in self._node.store.give_up([content_id]):
            self._node.store.remove(removed)

    def _open(self, content_id: str) -> SegmentFile:
        self.asked += 1
        if self.is_away:
            self.answers.wait(20)
            raise Unavailable("the store answers 503", reason="tier", retry_after=0.05)
        return SegmentFile(self._root / content_id, content_id)


def run(root: Path, test: Callable[[RangeReplica, Tier], Awaitable[None]]) -> None:
    """A leader whose entries are in the tier only, and which has an append with `expect` to apply
    that was looked up before the tier went away, as at a member that follows."""

    async def main() -> None:
        (root / "tier").mkdir()
        node = StorageNode(root / "node")
        await node.start()
        replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
        assert replica is not None
        await node.leading(replica)
        await replica.append(batch(OLD))
        await node.flusher.flush(replica)
        tier = Tier(node, root / "tier")
        for info in replica.state.durable_base.manifest:
            tier.take(info.content_id)
        tier.is_away = True
        try:
            await test(replica, tier)
        finally:
            node.stop()

    asyncio.run(main())


def propose(replica: RangeReplica) -> "asyncio.Future[Any]":
    """Propose an append on the condition of an old entry, without a look at the condition."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    command = commands.proposal(commands.APPEND, 1_000, [batch(OLD, 1)])
    replica.propose(command, (future,))
    return future


async def held(replica: RangeReplica) -> None:
    await until(lambda: replica._far_conditions.held_up is not None, "the entry waits")


WAITS: dict[str, Callable[[RangeReplica], Awaitable[Any]]] = {
    "read": lambda replica: replica.read_barrier(),
    "read up to a seq": lambda replica: replica.wait_seq(2, alone=False),
    "read of this node up to a seq": lambda replica: replica.wait_seq(2, alone=True),
    "read of a session": lambda replica: replica.wait_applied(replica.raft_log.last_index),
}


@pytest.mark.parametrize("early", [True, False], ids=["began before", "begins later"])
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_read_behind_an_entry_that_waits_for_the_tier_says_so(
    tmp_path: Path, wait: Callable[[RangeReplica], Awaitable[Any]], early: bool
) -> None:
    """In seed 116 of the simulator a read ended with Timeout, without a word about the tier."""

    async def test(replica: RangeReplica, tier: Tier) -> None:
        proposed = propose(replica)
        if early:
            tier.answers.clear()
            await until(lambda: tier.asked > 0, "the tier is asked")
            reads = asyncio.ensure_future(wait(replica))
            await asyncio.sleep(0.05)
            assert not reads.done()
            tier.answers.set()
        else:
            await held(replica)
            reads = asyncio.ensure_future(wait(replica))
        with pytest.raises(Unavailable, match="range 1 waits for the store") as told:
            await asyncio.wait_for(reads, 20)
        assert told.value.fields == {"reason": "tier", "retry_after": 0.05}
        assert "503" in told.value.message
        tier.is_away = False
        async with asyncio.timeout(20):
            assert (await proposed)["first_seq"] == 2
            await wait(replica)

    run(tmp_path, test)


def test_S11_a_write_behind_an_entry_that_waits_for_the_tier_is_not_applied(
    tmp_path: Path,
) -> None:
    """The write had been proposed and had waited, and its caller did not know the outcome."""

    async def test(replica: RangeReplica, tier: Tier) -> None:
        proposed = propose(replica)
        await held(replica)
        last = replica.raft_log.last_index
        for _ in range(2):
            with pytest.raises(Unavailable) as told:
                replica.append(batch(b"new"))
            assert told.value.outcome == "not_applied"
            assert told.value.fields["retry_after"]
            with pytest.raises(Unavailable) as told:
                await replica.propose_and_wait(commands.TRIM_KEYS, [[OLD, 1]])
            assert told.value.outcome == "not_applied"
        assert replica.raft_log.last_index == last
        tier.is_away = False
        async with asyncio.timeout(20):
            await proposed
            assert (await replica.append(batch(b"new")))["first_seq"] == 3

    run(tmp_path, test)


def test_an_entry_that_waits_for_the_tier_is_tried_again_at_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pump of the replica had begun a thread that failed."""
    monkeypatch.setattr(range_replica, "AGAIN_S", 0.1)

    async def test(replica: RangeReplica, tier: Tier) -> None:
        proposed = propose(replica)
        await held(replica)
        before = tier.asked
        for _ in range(50):
            replica.wake()  # as each message of a member does
            await asyncio.sleep(0.003)
        assert tier.asked - before <= 3
        tier.is_away = False
        async with asyncio.timeout(20):
            await proposed

    run(tmp_path, test)


def test_a_refusal_has_a_time_also_where_the_tier_names_none() -> None:
    conditions = FarConditions()
    conditions.check(GID)
    conditions.hold_up(Unavailable("the store answers 503"))
    with pytest.raises(LognodeError) as told:
        conditions.check(GID)
    assert told.value.fields["retry_after"] > 0
