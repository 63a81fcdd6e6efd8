"""A replica whose next entry needs a file that is in the tier only, while the tier is away."""

import asyncio
import contextlib
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import storage_node
from live_nodes import until
from storage_node import StorageNode, descriptor

from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.client.protocol.levels import TIER_ONLY_FROM
from lognode.client.protocol.records import encode_batch
from lognode.node.directory.kept_files import KeptFiles, Place
from lognode.node.replicas import range_replica
from lognode.node.replicas.far_conditions import FarConditions
from lognode.node.replicas.range_replica import RangeReplica
from lognode.raft.types import GroupId
from lognode.statemachine import commands
from lognode.statemachine.range_state import Base
from lognode.statemachine.segment_file import SegmentFile
from lognode.statemachine.segments import SegmentStore

GID = GroupId(1, 1)
OLD = b"old"


def batch(key: bytes, expect: int | None = None) -> bytes:
    expects = None if expect is None else [expect]
    return encode_batch([key], [b"v"], producer=0, epoch=0, low=1, numbers=1, expects=expects)


class Tier:
    """Where the only file of the replica is. All stores of segments read there."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self._root = root
        self.is_away = False
        self.asked = 0
        self.answers = threading.Event()
        """Whether the tier answers, which says that it is away."""
        self.answers.set()

    def store(self, directory: Path) -> SegmentStore:
        """Make the store of a node."""
        store = SegmentStore(directory)
        store.read_elsewhere(self._open, asyncio.to_thread)
        return store

    def take(self, store: SegmentStore, content_id: str) -> None:
        """Take a file from the disk of the node."""
        shutil.copy(store.path(content_id), self._root / content_id)
        for removed in store.give_up([content_id]):
            store.remove(removed)

    def _open(self, content_id: str) -> SegmentFile:
        self.asked += 1
        if self.is_away:
            self.answers.wait(20)
            raise Unavailable("the store answers 503", reason="tier", retry_after=0.05)
        return SegmentFile(self._root / content_id, content_id)


def with_tier(kept: KeptFiles, load: Callable[[KeptFiles], None] = KeptFiles.load) -> None:
    """Load what a node knows of a tier that is never asked by itself."""
    tier: Any = SimpleNamespace()
    kept.use(tier)
    load(kept)


@contextlib.asynccontextmanager
async def life(root: Path, tier: Tier) -> AsyncIterator[StorageNode]:
    """A node from its start to its end, which comes without a flush."""
    node = StorageNode(root / "node")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_node, "SegmentStore", tier.store)
        patch.setattr(KeptFiles, "load", with_tier)
        await node.start()
    try:
        yield node
    finally:
        node.stop()


async def led(node: StorageNode, tier: Tier) -> RangeReplica:
    """A replica that leads, and has its only entry in the tier only."""
    replica = await node.host.create_range(descriptor(1), Base(), campaign=True)
    assert replica is not None
    await node.leading(replica)
    await replica.propose_and_wait(commands.LEVEL, TIER_ONLY_FROM)
    await replica.append(batch(OLD))
    await node.flusher.flush(replica)
    (info,) = replica.state.durable_base.manifest
    await node.host.kept.store(GID, {info.content_id: Place(info.size, "files/1.1/one")})
    tier.take(node.store, info.content_id)
    return replica


def run(root: Path, test: Callable[[RangeReplica, Tier], Awaitable[None]]) -> None:
    """A leader in whose tier, which is away, is the only entry."""

    async def main() -> None:
        tier = Tier(root / "tier")
        async with life(root, tier) as node:
            replica = await led(node, tier)
            tier.is_away = True
            await test(replica, tier)

    asyncio.run(main())


def propose(replica: RangeReplica) -> "asyncio.Future[Any]":
    """Propose an append on the condition of an old entry, of which no member knows: nobody has
    looked before."""
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
    """It had been proposed and had waited, so that its caller did not know the outcome."""

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


def test_S9_a_node_that_starts_anew_needs_no_tier_for_the_conditions_of_its_log(
    tmp_path: Path,
) -> None:
    """In seed 3 of the simulator a range waited until the store was back."""

    async def main() -> None:
        tier = Tier(tmp_path / "tier")
        async with life(tmp_path, tier) as node:
            replica = await led(node, tier)
            before = tier.asked
            assert (await replica.append(batch(OLD, 1)))["status"] == "ok"
            assert (await replica.append(batch(OLD, 1)))["status"] == "error"
            assert tier.asked > before
            last_seq, digest = replica.state.next_seq - 1, replica.state.state_hash
        tier.is_away = True
        before = tier.asked
        async with life(tmp_path, tier) as node:
            (replica,) = node.host.ranges()
            await node.leading(replica)
            assert replica.state.next_seq == last_seq + 1
            assert (await replica.append(batch(OLD, last_seq)))["status"] == "ok"
            assert replica.state.state_hash != digest
            assert tier.asked == before

    asyncio.run(main())
