"""Segment files in a tier for tests: uploaded from a range's state, and read through the cache."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from flushed_range import FlushedRange
from prepared import make_ready

from lognode.client.objects.directory import DirectoryStore
from lognode.client.objects.store import Listed, ObjectStore
from lognode.client.protocol.errors import LognodeError, Unavailable
from lognode.node.tier.chunk_cache import ChunkCache
from lognode.node.tier.local_file import LocalFile
from lognode.node.tier.manifest import Held
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.tier_files import TierFiles
from lognode.node.tier.tier_store import TierStore
from lognode.statemachine.range_state import RangeState
from lognode.statemachine.segments import SegmentStore
from lognode.statemachine.turn_limits import NotPrepared, TurnOver, Turns

T = TypeVar("T")
MIB = 1 << 20


class CountedObjects(ObjectStore):
    """A directory that counts range requests, and may be away or damaged."""

    def __init__(self, root: Path) -> None:
        self.place = str(root)
        self._within = DirectoryStore(root)
        self.asked: list[tuple[str, int, int]] = []
        self.away = False
        self.refusal: type[LognodeError] = Unavailable
        self.spoils: Callable[[bytes], bytes] = lambda data: data
        self.before: Callable[[], None] = lambda: None

    @property
    def fetched(self) -> int:
        """The bytes of all range requests."""
        return sum(end - begin for _, begin, end in self.asked)

    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        return self._within.put(name, content, replace=replace)

    def get(self, name: str, bytes_max: int) -> bytes | None:
        return self._within.get(name, bytes_max)

    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        self.asked.append((name, begin, end))
        self.before()
        if self.away:
            raise self.failed(self.refusal, "no answer")
        found = self._within.get_range(name, begin, end)
        return None if found is None else self.spoils(found)

    def objects(self, folder: str = "") -> Iterator[Listed]:
        return self._within.objects(folder)

    def delete(self, name: str) -> None:
        self._within.delete(name)


class TierReads:
    """The files of a range in a tier, and a state that reads the range from there."""

    def __init__(
        self, made: FlushedRange, *, memory_bytes: int = 16 * MIB, disk_bytes: int = 64 * MIB,
    ) -> None:  # fmt: skip
        self.objects = CountedObjects(made.root / "tier")
        self.made = made
        self.held: dict[str, Held] = {}
        self.now = 0.0
        store = TierStore(self.objects)
        for info in made.state.durable_base.manifest:
            file = StoredFile(Chain(1, 1), info.content_id, 1)
            local = LocalFile(made.store.path(info.content_id), info.content_id, info.size)
            local.check()
            for at, replaces in store.missing_parts(file, info.size):
                store.put_part(local, file, at, replace=replaces)
            local.close()
            self.held[info.content_id] = Held(info.size, file.path)
        self.begin(memory_bytes, disk_bytes)

    def begin(self, memory_bytes: int = 16 * MIB, disk_bytes: int = 64 * MIB) -> None:
        """Begin as a new process does, with the chunks on the disk."""
        root = self.made.root
        self.cache = ChunkCache(
            root / "chunks", memory_bytes_max=memory_bytes, disk_bytes_max=disk_bytes
        )
        self.files = TierFiles(self.objects, self.cache, self.held.get, lambda: self.now)
        self.store = SegmentStore(root / "none", elsewhere=self.files.open)
        self.state = RangeState(
            start=b"", end=None, store=self.store, base=self.made.state.durable_base
        )

    def end(self) -> None:
        """End as a process does."""
        self.store.close()
        self.cache.close()

    def read(self, ask: Callable[[RangeState], T]) -> T:
        """Return what `ask` returns, in turns as on a node."""
        turns = Turns()
        while True:
            try:
                with self.store.on_hand(turns):
                    return ask(self.state)
            except TurnOver:
                pass
            except NotPrepared as missing:
                make_ready(self.store, missing, turns)
