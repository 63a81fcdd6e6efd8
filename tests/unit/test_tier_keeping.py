"""The work of a node for files in the tier only, without a node: claims that end, and late ones."""

import asyncio
import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tier_model import MemoryObjects

from lognode.client.protocol.errors import CorruptData, Unavailable
from lognode.node.directory.kept_files import KeptFiles, Place
from lognode.node.directory.meta_keys import kept_key, kept_row
from lognode.node.replicas.pinned_files import PinnedFiles
from lognode.node.tier import keeping
from lognode.node.tier.keeping import Keeping
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import TIER, Chain, StoredFile
from lognode.node.tier.tier_store import TierStore
from lognode.partitions.model import LogRecord
from lognode.partitions.policy import Policy
from lognode.raft.types import GroupId

T = TypeVar("T")
OLD, NEW = GroupId(7, 1), GroupId(7, 2)
CONTENT = {at: b"file %d" % at for at in range(4)}
IDS = {at: hashlib.sha256(content).hexdigest() for at, content in CONTENT.items()}
HELD = {
    at: Held(len(content), StoredFile(Chain(*OLD), IDS[at], 1).path)
    for at, content in CONTENT.items()
}
PLACES = {at: Place(*held) for at, held in HELD.items()}


class Node:
    """A node with this id 1, whose tier is in memory. It runs no replica unless a test adds one."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.rows: dict[str, Any] = {}
        self.kept = KeptFiles(self, self)  # type: ignore[arg-type]
        self.kept.use(SimpleNamespace())  # type: ignore[arg-type]
        self.store = TierStore(self.objects)
        self.replicas: dict[GroupId, object] = {}
        self.pinned = PinnedFiles()
        self.here: set[str] = set()
        """Files on the disk."""
        self.answers: asyncio.Event | None = None
        """Requests to the store wait for this event, if there is one."""
        record = LogRecord(3, "orders", Policy(local_retention_bytes=1))
        metadata = SimpleNamespace(logs={3: record}, ranges={7: SimpleNamespace(log_id=3)})
        given: dict[str, Any] = {
            "node_id": 1, "cluster": "c", "store": self.store, "workers": self, "grace_s": 60.0,
            "host": SimpleNamespace(
                kept=self.kept, replica=self.replicas.get, ranges=tuple, pinned=self.pinned,
                idle_rows=dict, give_up=self._give_up,
            ),
            "files": SimpleNamespace(
                is_listed=self.here.__contains__, is_suspended=lambda name: False
            ),
            "far": SimpleNamespace(fetch_pages=self._no_pages, keep_pages=self._no_pages),
            "metadata": lambda: metadata, "wall_ms": lambda: 5,
            "progress": SimpleNamespace(failed=lambda error: None), "upload": None,
        }  # fmt: skip
        self.keeping = Keeping(**given)
        self.store.begin("c")
        asyncio.run(self.kept.check(self.store.token()))
        self.keeping._has_begun = True

    # What KeptFiles needs of meta, and both of their threads.

    def get(self, key: str) -> Any:
        return self.rows.get(key)

    def commit(self, puts: dict[str, Any], deletes: tuple[str, ...] = ()) -> None:
        self.rows = {key: row for key, row in self.rows.items() if key not in deletes} | puts

    async def run(self, call: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        if self.answers is not None:
            await self.answers.wait()
        return call()

    async def _no_pages(self, content_id: str) -> None:
        return None

    async def _give_up(self, content_ids: list[str]) -> None:
        self.here.difference_update(content_ids)

    # What tests do.

    def publish(self, gid: GroupId, *files: int, claims: dict[int, tuple[int, ...]]) -> None:
        for at in files:
            file = StoredFile(Chain(*OLD), IDS[at], 1)
            self.objects.put(file.part(0), CONTENT[at])
        names = tuple(IDS[at] for at in files)
        claimed = {node: tuple(IDS[at] for at in some) for node, some in claims.items()}
        assert self.store.publish(
            Manifest(
                Chain(*gid), 1, LogFacts(3, "orders", {}), (b"", None),
                {IDS[at]: HELD[at] for at in files}, names[:1], (9, 1), b"base",
                members=(1, 2), claims=claimed,
            )
        )  # fmt: skip

    def remember(self, gid: GroupId, *files: int) -> None:
        places = {IDS[at]: PLACES[at] for at in files}
        self.kept.take(gid, places)
        self.rows[kept_key(gid)] = kept_row(places)

    def claimed(self, gid: GroupId) -> set[str]:
        """The files that the node claims in the head of a chain."""
        numbers = [number for chain, some in self.store.snapshot().numbers.items()
                   if chain == gid for number in some]  # fmt: skip
        head = self.store.manifest(Chain(*gid), max(numbers))
        assert head is not None
        return set(head.claims.get(1, ()))

    def base(self, *files: int) -> Any:
        infos = [SimpleNamespace(content_id=IDS[at], size=len(CONTENT[at])) for at in files]
        return SimpleNamespace(manifest=infos)


def test_no_fetch_uses_a_place_whose_claim_may_have_ended() -> None:
    """The answer to the put is lost, or the node is killed before it removes the row."""
    node = Node()
    node.publish(OLD, 0, 1, claims={1: (1,)})
    node.remember(OLD, 1)
    at_put: list[Any] = []

    def loses() -> str:
        at_put.append(node.rows[kept_key(OLD)])
        return "answer"

    async def release() -> None:
        await node.keeping._end_joins()

    node.objects.loses = loses
    with pytest.raises(Unavailable):
        asyncio.run(release())
    node.objects.loses = lambda: ""
    assert node.claimed(OLD) == set()
    assert at_put[-1] == [], "a restart finds no place either"
    assert not node.kept.has(OLD, IDS[1])
    asyncio.run(release())
    assert not node.kept.knows(OLD)
    assert kept_key(OLD) not in node.rows


def test_claims_by_which_a_replica_of_the_next_generation_lives_stay() -> None:
    """The row of the old generation came later, for a replica that never began."""
    node = Node()
    node.publish(OLD, 0, 1, 2, claims={1: (1, 2)})
    node.remember(OLD, 2)
    node.remember(NEW, 1)
    node.replicas[NEW] = object()
    asyncio.run(node.keeping._end_joins())
    assert node.claimed(OLD) == {IDS[1]}


def test_a_fetch_that_begins_before_its_turn_keeps_its_places() -> None:
    node = Node()
    node.publish(OLD, 0, 1, claims={1: (1,)})
    node.remember(OLD, 1)

    async def race() -> None:
        async with node.keeping._turn:
            ends = asyncio.ensure_future(node.keeping._end_joins())
            await asyncio.sleep(0.01)
            node.pinned.pin("begin", [IDS[1]])
        await ends

    asyncio.run(race())
    assert node.kept.has(OLD, IDS[1])
    assert node.claimed(OLD) == {IDS[1]}


def test_a_replica_that_takes_a_later_base_claims_all_that_it_has_in_the_tier_only() -> None:
    """It has not spoken in its generation, and the chain before keeps nothing once it has."""
    node = Node()
    node.publish(NEW, 0, 1, 2, claims={})
    node.remember(NEW, 1)
    node.replicas[NEW] = object()
    asyncio.run(node.keeping.join(NEW, node.base(1, 2, 3)))
    assert node.claimed(NEW) == {IDS[1], IDS[2]}
    assert dict(node.kept.of(NEW)) == {IDS[1]: PLACES[1], IDS[2]: PLACES[2]}


def test_a_slow_upload_holds_up_no_other_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member uploads what no leader will: all claims and deletions of the node had waited."""
    node = Node()
    node.publish(NEW, 0, 1, claims={})
    node.here.update((IDS[0], IDS[3]))
    base = SimpleNamespace(applied_index=9, applied_term=1, **vars(node.base(3)))
    span = SimpleNamespace(start=b"", end=None)
    replica: Any = SimpleNamespace(
        gid=NEW, state=SimpleNamespace(durable_base=base, manifest=base.manifest),
        descriptor=SimpleNamespace(log_id=3, span=span, lineage=(), members=(1, 2)),
        leads=False, stopped=False, is_sealed=False,
    )  # fmt: skip
    node.replicas[NEW] = replica
    node.keeping._host.ranges = lambda: (replica,)  # type: ignore[method-assign]
    labels = []

    async def run() -> None:
        goes_on = asyncio.Event()

        async def upload(own: Any, name: str, size: int, label: int) -> Held:
            await goes_on.wait()
            labels.append(label)
            file = StoredFile(Chain(*NEW), name, label)
            node.objects.put(file.part(0), CONTENT[3])
            return Held(size, file.path)

        node.keeping._upload = upload
        async with asyncio.timeout(10):
            await node.keeping._serve(replica)
            await node.keeping._serve(replica)
            await node.keeping.join(NEW, node.base(1, 2))
            assert node.kept.has(NEW, IDS[1])
            goes_on.set()
            while node.here != {IDS[0]}:
                await asyncio.sleep(0)  # lets the upload go on, and the time limit count
                await node.keeping._serve(replica)
                if node.keeping._adding is not None and node.keeping._adding[1].done():
                    node.keeping._adding = None
        assert node.claimed(NEW) >= {IDS[3]}

    asyncio.run(run())
    assert labels == [1, 2], "the claim of the join came first, so the first upload was in vain"


def test_a_claim_ends_although_a_listing_does_not_show_its_chain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An old listing: the node forgot the claim, which kept the file in the tier for ever."""
    monkeypatch.setattr(keeping, "_REST_S", 0.0)
    node = Node()
    node.publish(OLD, 0, 1, claims={1: (1,)})
    node.remember(OLD, 1)
    found, empty = node.objects.found, {TIER: node.objects.found[TIER]}
    node.objects.found = dict(empty)
    asyncio.run(node.keeping._end_joins())
    assert node.kept.knows(OLD)
    assert not node.kept.of(OLD), "nothing uses the places meanwhile"
    node.objects.found = found
    asyncio.run(node.keeping._end_joins())
    assert node.claimed(OLD) == set()
    assert not node.kept.knows(OLD)
    # A chain that was removed is not looked for for ever.
    node.remember(OLD, 1)
    node.objects.found = dict(empty)
    asyncio.run(node.keeping._end_joins())
    monkeypatch.setattr(keeping, "_UNLISTED_S", 0.0)
    asyncio.run(node.keeping._end_joins())
    assert not node.kept.knows(OLD)


def test_a_claim_that_is_to_end_is_not_forgotten_while_the_tier_is_unmounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chain of an unmounted directory counted as removed: its claim stayed for ever."""
    monkeypatch.setattr(keeping, "_UNLISTED_S", 0.0)
    node = Node()
    node.publish(OLD, 0, 1, claims={1: (1,)})
    node.remember(OLD, 1)
    found, node.objects.found = node.objects.found, {}
    for _ in range(2):
        with pytest.raises(Unavailable, match="check its mount"):
            asyncio.run(node.keeping._end_joins())
    node.objects.found = found
    asyncio.run(node.keeping._end_joins())
    assert node.claimed(OLD) == set()
    assert not node.kept.knows(OLD)


def test_a_store_that_hangs_holds_up_no_base_from_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_JOIN_S", 0.05)
    node = Node()
    node.publish(OLD, 0, 1, claims={})

    async def join() -> None:
        node.answers = asyncio.Event()
        await asyncio.wait_for(node.keeping.join(OLD, node.base(1, 2)), 5)

    asyncio.run(join())
    assert not node.kept.of(OLD)


def test_a_new_replica_leaves_only_files_whose_parts_the_tier_has() -> None:
    node = Node()
    node.publish(OLD, 0, 1, 2, claims={})
    node.objects.delete(StoredFile(Chain(*OLD), IDS[1], 1).part(0))
    asyncio.run(node.keeping.join(OLD, node.base(1, 2, 3)))
    assert dict(node.kept.of(OLD)) == {IDS[2]: PLACES[2]}
    node.remember(OLD, 1)
    with pytest.raises(CorruptData, match="the tier lacks parts"):
        asyncio.run(node.keeping._delete([IDS[1]]))
