"""Reads of files that a node has in the tier only: stores that hang, and objects that are lost."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tier_model import MemoryObjects

from lognode.client.protocol.errors import CorruptData, LognodeError, RangeNotFound, Unavailable
from lognode.node.directory.kept_files import Place
from lognode.node.metrics import Metrics
from lognode.node.replicas.far_conditions import FarConditions
from lognode.node.rules import repairing
from lognode.node.runtime.workers import Workers
from lognode.node.tier import far_files
from lognode.node.tier.chunk_cache import ChunkCache
from lognode.node.tier.far_files import READERS, FarFiles
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.tier_store import TierStore
from lognode.node.upkeep.segment_repair import SegmentRepair
from lognode.raft.types import GroupId

ID = "ab" * 32
FILE = StoredFile(Chain(7, 1), ID, 1)


class Far:
    """Files of a node whose tier has one file of ten bytes. `here`: what is on the disk."""

    def __init__(self, root: Path) -> None:
        self.objects = MemoryObjects()
        store = TierStore(self.objects)
        store.begin("c")
        self.objects.put(FILE.part(0), b"0123456789")
        self.asked: list[str] = []
        self.here: set[str] = set()
        place = Place(10, FILE.path)
        kept: Any = SimpleNamespace(
            place=lambda name: place, by_id={ID: place}, token=store.token()
        )
        files: Any = SimpleNamespace(
            read_elsewhere=lambda *_: None, is_listed=self.here.__contains__
        )
        sync: Any = None
        self.files = FarFiles(
            store, ChunkCache(root, memory_bytes_max=0, disk_bytes_max=0), kept,
            files, directory=root, tmp=root, sync=sync, workers=Workers("read", READERS),
            metrics=Metrics(), ask=self.asked.append,
        )  # fmt: skip

    async def read(self) -> bytes:
        file = self.files.open(ID)
        assert file is not None
        return bytes(await self.files.run(lambda: file.read(2, 3)))


def test_reads_of_a_store_that_hangs_end_and_do_not_gather(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory of a file server that is down: each look of a conditional append stayed."""
    monkeypatch.setattr(far_files, "_WAIT_S", 0.1)
    ends = threading.Event()

    async def main() -> None:
        far = Far(tmp_path)
        assert await far.read() == b"234"
        requests = 0

        def hang() -> None:
            nonlocal requests
            requests += 1
            ends.wait(60)

        far.objects.before = hang
        for _ in range(3 * READERS):
            with pytest.raises(Unavailable) as told:
                await far.read()
            assert told.value.fields["retry_after"] > 0
        assert requests == 1
        assert len(far.files._waits._calls) == 1, "one read hangs, and no other waits behind it"
        ends.set()
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await far.read() == b"234"
                    break
                except Unavailable:
                    await asyncio.sleep(0.01)

    try:
        asyncio.run(main())
    finally:
        ends.set()


def test_a_damaged_file_does_not_wait_for_a_store_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members were not asked, and the replica that needed the file stood still."""
    monkeypatch.setattr(far_files, "_WAIT_S", 0.1)
    ends = threading.Event()

    async def main() -> None:
        far = Far(tmp_path)

        def hang() -> None:
            ends.wait(60)

        far.objects.before = hang
        for _ in range(2):
            with pytest.raises(Unavailable, match="gives no answer"):
                await asyncio.wait_for(far.files.bring_back(ID), 20)

    try:
        asyncio.run(main())
    finally:
        ends.set()


def test_an_object_that_is_lost_is_named_and_members_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        far = Far(tmp_path)
        far.objects.delete(FILE.part(0))
        with pytest.raises(Unavailable, match="newer manifests"):
            await far.read()
        assert not far.asked
        monkeypatch.setattr(far_files, "_GONE_S", 0.0)
        far.files._gone.clear()
        for _ in range(2):
            with pytest.raises(Unavailable) as told:
                await far.read()
        assert f"segment {ID} is in the tier only" in told.value.message
        assert FILE.part(0) in told.value.message
        assert "restore the object from a copy" in told.value.message
        assert set(far.asked) == {ID}
        far.here.add(ID)
        with pytest.raises(Unavailable):
            await far.read()
        assert not far.files._gone

    asyncio.run(main())


@pytest.mark.parametrize("other", [False, True], ids=["empty place", "another tier"])
def test_a_tier_that_is_unmounted_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    """Members sent each file that was read, until the disk was full: nothing leaves meanwhile."""
    monkeypatch.setattr(far_files, "_GONE_S", 0.0)

    async def main() -> None:
        far = Far(tmp_path)
        found, far.objects.found = far.objects.found, {}
        if other:
            TierStore(far.objects).begin("c")
        for _ in range(3):
            with pytest.raises(Unavailable, match="check its mount") as told:
                await far.read()
            assert told.value.fields["retry_after"] > 0
        with pytest.raises(Unavailable, match="check its mount"):
            await far.files.bring_back(ID)  # CorruptData would end a replica without other copies
        assert not far.asked
        far.objects.found = found
        assert await far.read() == b"234"
        far.objects.delete(FILE.part(0))
        with pytest.raises(CorruptData, match="object is missing"):
            await far.files.bring_back(ID)

    asyncio.run(main())


@pytest.mark.parametrize("has", [True, False], ids=["one has", "none has"])
def test_members_are_asked_for_a_lost_file_and_no_replica_is_damaged(has: bool) -> None:
    asked = []

    async def fetch_file(peer: int, gid: GroupId, info: Any) -> None:
        asked.append(peer)
        if peer != 3 or not has:
            raise RangeNotFound("no such segment", range=7)

    async def main() -> None:
        descriptor = SimpleNamespace(range_id=7, generation=1, members=(1, 2, 3, 4))
        host: Any = SimpleNamespace(holders=lambda name: {GroupId(7, 1): (descriptor, None)})
        fetcher: Any = SimpleNamespace(fetch_file=fetch_file)
        store: Any = None
        repair = SegmentRepair(
            node_id=1, host=host, store=store, fetcher=fetcher, metrics=Metrics(),
            on_broken=lambda error: None,
        )  # fmt: skip
        repair.ask_members(ID)
        repair.ask_members(ID)
        assert not repair.in_doubt
        await asyncio.gather(*repair._tasks.values())
        assert asked == ([2, 3] if has else [2, 3, 4])
        assert (ID in repair._mended) == has

    asyncio.run(main())


def test_appends_whose_condition_waits_for_a_store_that_hangs_end() -> None:
    """Their bytes count for the queue of the range, which was full for ever."""

    async def main() -> None:
        conditions, then = FarConditions(), []
        replica: Any = SimpleNamespace(state=SimpleNamespace(), stopped=False)

        async def fails(*_: Any) -> None:
            raise Unavailable("the tier gives no answer", reason="tier", retry_after=5.0)

        conditions.looked_up = fails  # type: ignore[method-assign]
        batch: Any = None
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        conditions.look(replica, batch, 100, future, lambda: then.append(1))
        with pytest.raises(LognodeError) as told:
            await future
        await asyncio.sleep(0)
        assert told.value.fields["retry_after"] == 5.0
        assert not then
        assert not conditions._size

    asyncio.run(main())


@pytest.mark.parametrize("members", [(1,), (1, 2)], ids=["alone", "with another member"])
def test_a_damaged_file_of_a_lonely_replica_waits_for_the_tier(
    monkeypatch: pytest.MonkeyPatch, members: tuple[int, ...]
) -> None:
    """The tier rests for up to two minutes after a failure: the only copy was given up before."""
    monkeypatch.setattr(repairing, "PATIENCE_S", 0.05)
    monkeypatch.setattr(repairing, "RETRY_S", 0.01)
    is_here = False

    async def fetch_from_tier(gid: GroupId, info: Any) -> bool:
        if not is_here:
            raise Unavailable("the tier has failed lately")
        return True

    async def fetch_file(*_: Any) -> None:
        raise RangeNotFound("no such segment", range=7)

    async def bring_back(content_id: str) -> bool:
        return False

    async def main() -> None:
        nonlocal is_here
        descriptor = SimpleNamespace(range_id=7, generation=1, members=members)
        host: Any = SimpleNamespace(
            holders=lambda name: {GroupId(7, 1): (descriptor, None)},
            kept=SimpleNamespace(bring_back=bring_back), rows_of=lambda gids: {GroupId(7, 1): {}},
        )  # fmt: skip
        fetcher: Any = SimpleNamespace(fetch_file=fetch_file, fetch_from_tier=fetch_from_tier)
        store: Any = None
        repair = SegmentRepair(
            node_id=1, host=host, store=store, fetcher=fetcher, metrics=Metrics(),
            on_broken=lambda error: None,
        )  # fmt: skip
        doubt: Any = SimpleNamespace(content_id=ID, error=SimpleNamespace(message="rot"))
        work = asyncio.ensure_future(repair._fetch(doubt))
        done, _ = await asyncio.wait([work], timeout=0.3)
        assert bool(done) == (len(members) > 1), "another member rebuilds the replica"
        is_here = True
        steps = await asyncio.wait_for(work, 20)
        assert (steps == repairing.fetched(ID)) == (len(members) == 1)

    asyncio.run(main())
