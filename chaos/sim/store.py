"""The stored state of a replica beside its log: the real RangeState, its meta row, its segments.

Meta and files have the interface of the real ones, and are atomic and durable at commit
(docs/testing.md#the-simulator). A checkpoint freezes the memtable at one index; the segment is
built and the base committed a while later, or the build fails and is begun again.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...client.protocol.invariants import invariant
from ...client.protocol.levels import LEVEL_MIN
from ...client.protocol.records import Batch
from ...client.protocol.types import Entry
from ...node.directory import feature_level, meta_keys
from ...node.rules import merging
from ...node.rules.durable_steps import Commit
from ...node.rules.ending import needed
from ...node.rules.flushing import store_base
from ...partitions.model import Descriptor
from ...statemachine.admission import admit
from ...statemachine.meta import MemoryMeta
from ...statemachine.range_state import Base, RangeState
from . import segments
from .disk import SimDisk
from .segments import Files, MemorySegment, MemorySegments

Contents = dict[bytes, list[tuple[int, bytes]]]
"""The seq and value of each entry, by key."""

_BUILD_FAILS: Final = 0.05
_PAGE_ENTRIES: Final = 50
_PAGE_BYTES: Final = 1 << 20


class Durable:
    """A machine's meta store and segment files, which survive a crash.

    A transaction of the meta store is one step of the machine's disk: a crash, or a full or failing
    disk, can be put before it.
    """

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.meta = MemoryMeta()
        self.files = Files()

    def commit(
        self, puts: Mapping[str, Any], deletes: Iterable[str] = (), *, level: int = LEVEL_MIN
    ) -> None:
        """Commit one transaction. Raises OSError or Died before anything is changed.

        `level` is the feature level of metadata in the puts: the transaction notes it.
        """
        self._disk.boundary()
        self.meta.commit({**puts, **feature_level.rows(self.meta.get, level)}, deletes)

    def row(self, key: str) -> dict[str, Any]:
        """Return a row of the meta store. Raises KeyError when it is missing."""
        row: dict[str, Any] | None = self.meta.get(key)
        if row is None:
            raise KeyError(key)
        return row

    def copy_files(self, base: Base, source: "Durable") -> bool:
        """Copy the files of a base that are not here from another machine.

        Return False if one of them is gone there, or is damaged.
        """
        wanted = [info.content_id for info in base.manifest if info.content_id not in self.files]
        if not all(map(source.files.is_sound, wanted)):
            return False
        for name in wanted:
            self.files[name] = source.files[name]
        return True

    def add_file(self, content_id: str, segment: MemorySegment) -> None:
        """Put a file in place, durably. Raises OSError or Died before anything is changed."""
        self._disk.boundary()
        self.files[content_id] = segment

    def bad_files(self, base: Base) -> dict[str, str]:
        """Return the damage of the base's files that a start finds.

        It hashes the files that were not read back from the disk before (x28).
        """
        bad = {}
        for info in base.manifest:
            name = info.content_id
            if name not in self.files:
                bad[name] = f"segment {name} is missing"
            elif name in self.files.rotten and self.meta.get(meta_keys.sound_key(name)) is None:
                bad[name] = f"segment {name} is damaged"
        return bad

    def remove_orphans(self, states: Iterable[RangeState] = (), pinned: Iterable[str] = ()) -> None:
        """Delete files that no running replica, no row and no duty needs."""
        rows = [*self.meta.items(meta_keys.REPLICA), *self.meta.items(meta_keys.PREPARED)]
        named = needed(states, (row for _, row in rows), pinned)
        gone = [file for file in self.files if file not in named]
        for content_id in gone:
            del self.files[content_id]
        keys = [key for key in map(meta_keys.sound_key, gone) if self.meta.get(key) is not None]
        if keys:
            self.commit({}, keys)


class ReplicaStore:
    """The state of one replica of a range over its machine's stores."""

    def __init__(
        self, durable: Durable, descriptor: Descriptor, base: Base, rng: random.Random
    ) -> None:
        self._durable = durable
        self._descriptor = descriptor
        self._rng = rng
        self.state = self._new_state(base)

    def _new_state(self, base: Base) -> RangeState:
        self._checkpointed = base.applied_index
        span = self._descriptor.span
        store = MemorySegments(self._durable.files)
        return RangeState(start=span.start, end=span.end, store=store, base=base)

    @property
    def entries_to_checkpoint(self) -> int:
        """Return the number of entries applied since the last checkpoint began."""
        return self.state.applied_index - self._checkpointed

    def admit(self, batch: bytes) -> Batch:
        """Return the batch, or raise the refusal of the leader."""
        return admit(batch, self.state.start, self.state.end)

    # Checkpoints.

    def frozen(self) -> int:
        """Return how many checkpoints wait for their segments; note the entry of the last one."""
        if self.state.queue:
            self._checkpointed = max(self._checkpointed, self.state.queue[-1].applied_index)
        return len(self.state.queue)

    def commit_checkpoint(self) -> int | None:
        """Make the base of the oldest finished build durable.

        Returns its index, or None if the build failed.
        """
        frozen = self.state.queue[0]
        if self._rng.random() < _BUILD_FAILS:
            return None
        info = None
        if len(frozen.memtable):
            sources = frozen.sources()
            info = segments.build(self._durable.files, frozen.memtable.first_seq, sources)
        base = self.state.base_with(frozen, info)
        self._store(base, self.state.flushed)
        return base.applied_index

    def merge(self) -> bool:
        """Carry out the merge that is due; return whether one was due."""
        state = self.state
        span = state.start, state.end
        merge = merging.due(state.durable_base, span, ended=state.sealed is not None)
        if merge is None:
            return False
        merged = None
        if merge.writes:
            merged = segments.merge(
                self._durable.files, merge.inputs, merge.rules, oldest=merge.oldest
            )
        base = state.base_merged(merge.inputs, merged)
        self._store(base, self.state.merged)
        return True

    def _store(self, base: Base, adopt: Callable[[Base], None]) -> None:
        for step in store_base(self._descriptor, base):
            if isinstance(step, Commit):
                self._durable.commit(step.puts)
            else:
                adopt(base)

    # Reads.

    def read(self, key: bytes, as_of: str | None = None) -> tuple[int, list[tuple[int, bytes]]]:
        """Return a key's last seq, and its entries as (seq, value), read page by page.

        `as_of` reads through the lease of that name. Raises NotFound for an unknown lease.
        """
        entries: list[tuple[int, bytes]] = []
        start = 1
        while True:
            page = self.state.scan(
                key, start, limit=_PAGE_ENTRIES, bytes_max=_PAGE_BYTES, as_of=as_of
            )
            entries += [
                (seq, value or b"") for seq, value in zip(page.seqs, page.values, strict=True)
            ]
            if not page.more:
                return self.state.last_seq(key), entries
            start = page.next

    def contents(self) -> Contents:
        """Return every key's entries; check that all ways of reading agree."""
        state = self.state
        found: Contents = {}
        after: bytes | None = None
        while keys := state.keys(b"", after, limit=3):
            after = keys[-1]
            for key in keys:
                last, found[key] = self.read(key)
                latest = state.latest(key)
                invariant(latest is not None and latest.seq == last, "latest", key=key)
                invariant(state.count(key) == len(found[key]), "count", key=key)
        begin: bytes | None = state.start
        read = 0
        while begin is not None:
            until, entries = self._span(begin)
            span = [(entry.key, entry.seq, entry.value or b"") for entry in entries]
            by_key = [
                (key, *entry)
                for key in found
                if key >= begin and (until is None or key < until)
                for entry in found[key]
            ]
            ordered = sorted(by_key, key=lambda row: row[1])
            invariant(span == ordered, "a span read differs from scans")
            begin, read = until, read + len(span)
        invariant(read == sum(map(len, found.values())), "a span read has more than the scans")
        return found

    def _span(self, begin: bytes) -> tuple[bytes | None, list[Entry]]:
        """Read as many keys from `begin` on as one pass allows; return its end, and the entries."""
        entries: list[Entry] = []
        end = self.state.readable_to(begin, self.state.end, 1)
        start = 1
        while True:
            page = self.state.read_span(
                begin, end or self.state.end, start, limit=_PAGE_ENTRIES, bytes_max=_PAGE_BYTES
            )
            entries += page.entries()
            if not page.more:
                return end, entries
            start = page.next
