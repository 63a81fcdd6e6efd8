"""What a replica keeps beside its log: the real RangeState, its meta row, its segment files.

Meta and files are of the interface of the real ones, atomic, and durable at commit (raft.md
section 7). A checkpoint freezes the memtable at one index; the segment is built and the base
committed a while later, or the build fails and the memtable is thawed.
"""

import random
from typing import Any, Final

from ...client.invariants import invariant
from ...client.types import Entry
from ...statemachine.admission import admit
from ...statemachine.meta import MemoryMeta
from ...statemachine.range_state import Applied, Base, Frozen, RangeState
from . import segments
from .segments import Files, MemorySegments

_BUILD_FAILS: Final = 0.05
_PAGE_ENTRIES: Final = 50
_PAGE_BYTES: Final = 1 << 20


class Durable:
    """A machine's meta store and segment files: what a crash leaves."""

    def __init__(self) -> None:
        self.meta = MemoryMeta()
        self.files: Files = {}

    def remove_orphans(self) -> None:
        """At start: delete files that no manifest names."""
        bases = [Base.from_wire(row) for _, row in self.meta.items("replica/")]
        named = {info.content_id for base in bases for info in base.manifest}
        for content_id in [file for file in self.files if file not in named]:
            del self.files[content_id]


class ReplicaStore:
    """The state of one replica of a group over its machine's stores."""

    def __init__(self, durable: Durable, number: int, rng: random.Random) -> None:
        self._durable = durable
        self._rng = rng
        self._row = f"replica/{number + 1:010d}/{1:06d}/base"
        self._frozen: Frozen | None = None
        self._prefix = b"%d/" % number
        self._end = b"%d0" % number
        self.state = self._load()

    def _load(self) -> RangeState:
        row = self._durable.meta.get(self._row)
        base = Base() if row is None else Base.from_wire(row)
        self._checkpointed = base.applied_index
        store = MemorySegments(self._durable.files)
        return RangeState(start=self._prefix, end=self._end, store=store, base=base)

    @property
    def entries_to_checkpoint(self) -> int:
        """Entries applied since the last checkpoint was begun."""
        return self.state.applied_index - self._checkpointed

    def admit(self, batch: bytes) -> None:
        """Raises what a leader answers to a batch that it does not take."""
        admit(batch, self.state.start, self.state.end)

    def apply(self, index: int, term: int, command: bytes) -> Applied:
        """Apply a committed entry."""
        return self.state.apply(index, term, command)

    # Checkpoints.

    def freeze(self) -> bool:
        """Begin a checkpoint at the applied index; False if there is nothing new."""
        self._checkpointed = self.state.applied_index
        self._frozen = self.state.freeze()
        return self._frozen is not None

    def commit_checkpoint(self) -> int | None:
        """The build is done: make the base durable. Its index, None without one."""
        frozen, self._frozen = self._frozen, None
        if frozen is None:
            return None
        if self._rng.random() < _BUILD_FAILS:
            self.state.thaw(frozen)
            return None
        info = None
        if len(frozen.memtable):
            sources = frozen.sources()
            info = segments.build(self._durable.files, frozen.memtable.first_seq, sources)
        base = self.state.base_with(frozen, info)
        self._durable.meta.commit({self._row: base.to_wire()})
        self.state.flushed(base)
        return base.applied_index

    # Bases.

    def export_base(self) -> dict[str, Any] | None:
        """The durable base, for a peer; None without one."""
        row: dict[str, Any] | None = self._durable.meta.get(self._row)
        return row

    def install(self, row: dict[str, Any], source: Files) -> bool:
        """Copy a peer's files, then make its base ours. False: a file is gone there."""
        base = Base.from_wire(row)
        names = [info.content_id for info in base.manifest]
        if any(name not in source for name in names):
            return False
        self._durable.files.update({name: source[name] for name in names})
        self._durable.meta.commit({self._row: row})
        self._frozen = None
        self.state = self._load()
        return True

    # Reads.

    def read(self, key: bytes) -> tuple[int, list[tuple[int, bytes]]]:
        """A key's last seq, and its entries as (seq, value), read page by page."""
        entries: list[tuple[int, bytes]] = []
        start = 1
        while True:
            page = self.state.scan(key, start, limit=_PAGE_ENTRIES, bytes_max=_PAGE_BYTES)
            entries += [(entry.seq, entry.value or b"") for entry in page.entries()]
            if not page.more:
                return self.state.last_seq(key), entries
            start = page.next

    def contents(self) -> dict[bytes, list[tuple[int, bytes]]]:
        """Every key's entries; all ways of reading them must agree."""
        state = self.state
        found: dict[bytes, list[tuple[int, bytes]]] = {}
        after: bytes | None = None
        while keys := state.keys(b"", after, limit=3):
            after = keys[-1]
            for key in keys:
                last, found[key] = self.read(key)
                latest = state.latest(key)
                invariant(latest is not None and latest.seq == last, "latest", key=key)
                invariant(state.count(key) == len(found[key]), "count", key=key)
        span = [(entry.key, entry.seq, entry.value or b"") for entry in self._span()]
        by_key = [(key, *entry) for key, entries in found.items() for entry in entries]
        invariant(span == sorted(by_key, key=lambda row: row[1]), "a span read differs from scans")
        return found

    def _span(self) -> list[Entry]:
        entries: list[Entry] = []
        start = 1
        while True:
            page = self.state.read_span(
                self._prefix, self._end, start, limit=_PAGE_ENTRIES, bytes_max=_PAGE_BYTES
            )
            entries += page.entries()
            if not page.more:
                return entries
            start = page.next
