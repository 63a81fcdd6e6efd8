"""The state machine of a range: committed entries in, replies and an index out.

`apply` is deterministic: the same entries give the same state, seqs and replies on every replica,
whatever its files, clock or configuration (executions 2.22). A batch that cannot be applied is
refused in the same way everywhere, and never stops a replica (1.22).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from ..client import limits
from ..client.errors import (
    CorruptData,
    GenerationMismatch,
    LognodeError,
    Sealed,
    SequenceMismatch,
    Unsupported,
    to_wire,
)
from ..client.invariants import invariant
from ..client.records import EXPECT_ANY, Batch, decode_batch
from . import commands
from .memtable import Memtable
from .producers import Producers
from .reads import Reads
from .segment_writer import SegmentInfo, Source
from .segments import SegmentStore

Reply = dict[str, Any]
_HASH_BYTES = 16


class Seal(NamedTuple):
    """The last entry of a generation."""

    operation_id: int
    final_index: int
    final_term: int


@dataclass(slots=True)
class Applied:
    """What an entry did: a reply per client batch, and the keys that got entries."""

    replies: Sequence[Reply] | None = ()
    keys: Sequence[bytes] = ()


@dataclass(slots=True)
class Frozen:
    """A memtable on its way to a segment, with the tables of exactly its last index (1.16)."""

    memtable: Memtable
    applied_index: int
    applied_term: int
    tables: dict[str, Any]

    def sources(self) -> list[Source]:
        """The batches, for the builder."""
        return [
            Source(slice_.data, slice_.selected, slice_.timestamp_ms)
            for slice_ in self.memtable.slices
        ]


@dataclass(slots=True)
class Base:
    """Durable state at one index: what a member installs, and what meta stores."""

    applied_index: int = 1
    applied_term: int = 0
    manifest: list[SegmentInfo] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """As it is stored and sent."""
        return {
            "applied": [self.applied_index, self.applied_term],
            "manifest": [list(info) for info in self.manifest],
            "tables": self.tables,
        }

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> "Base":
        """Undo `to_wire`. Raises CorruptData."""
        try:
            index, term = body["applied"]
            if type(index) is not int or type(term) is not int:
                raise ValueError(f"applied is {index!r}, {term!r}")
            manifest = [SegmentInfo.from_wire(info) for info in body["manifest"]]
            return cls(index, term, manifest, dict(body["tables"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"a base that is none: {error}") from None


class RangeState(Reads):
    """One replica's state. All calls on one thread; reads are in `Reads`."""

    def __init__(
        self, *, start: bytes, end: bytes | None, store: SegmentStore, base: Base | None = None
    ) -> None:
        base = base or Base()
        tables = base.tables
        super().__init__(store, base.manifest, first_seq=tables.get("next_seq", 1))
        self.start = start
        self.end = end
        self.applied_index = base.applied_index
        self.applied_term = base.applied_term
        self.next_seq: int = tables.get("next_seq", 1)
        self.last_timestamp_ms: int = tables.get("last_timestamp_ms", 0)
        self.state_hash: bytes = tables.get("hash", bytes(_HASH_BYTES))
        sealed = tables.get("sealed")
        self.sealed: Seal | None = Seal(*sealed) if sealed else None
        self.producers = Producers.from_wire(tables.get("producers", {}))
        self.durable_base = base
        """What meta says, as far as this process knows."""

    # Applying.

    def apply(self, index: int, term: int, command: bytes) -> Applied:
        """Apply the committed entry at `index`, which follows the last one applied."""
        invariant(
            index == self.applied_index + 1, "an entry is applied out of order",
            index=index, applied=self.applied_index,
        )  # fmt: skip
        self.applied_index, self.applied_term = index, term
        if self.sealed is not None:
            return Applied(self._void(command))  # entries after the seal are void (2.16)
        digest = blake2b(self.state_hash, digest_size=_HASH_BYTES)
        digest.update(b"%d %d " % (index, term))
        digest.update(command)
        self.state_hash = digest.digest()
        try:
            decoded = commands.decode(command)
        except CorruptData as error:
            return Applied((_refusal(error),))
        if decoded is None:
            return Applied()
        self.last_timestamp_ms = max(self.last_timestamp_ms, decoded.timestamp_ms)
        if decoded.kind == commands.APPEND:
            return self._apply_batches(decoded.payload)
        if decoded.kind == commands.SEAL:
            self.sealed = Seal(decoded.payload, index, term)
            return Applied(({"status": "ok"},))
        if decoded.kind == commands.RETIRE_PRODUCERS:
            self.producers.retire(decoded.payload)
            return Applied(({"status": "ok"},))
        if decoded.kind == commands.FENCE:
            producer, epoch, token = decoded.payload
            full = self.producers.fence(producer, epoch, token, self.last_timestamp_ms)
            return Applied(({"status": "ok"} if full is None else _refusal(full),))
        return Applied((_refusal(Unsupported(f"command of unknown kind {decoded.kind}")),))

    def _void(self, command: bytes) -> Sequence[Reply] | None:
        error = Sealed("the generation has ended")
        try:
            decoded = commands.decode(command)
        except CorruptData:
            return (_refusal(error),)
        if decoded is None:
            return ()
        if decoded.kind == commands.SEAL:
            return ({"status": "ok"},)  # sealing twice is the same seal
        count = len(decoded.payload) if decoded.kind == commands.APPEND else 1
        return [_refusal(error)] * count

    def _apply_batches(self, payload: Sequence[bytes]) -> Applied:
        replies: list[Reply] = []
        touched: list[bytes] = []
        for data in payload:
            try:
                batch = decode_batch(data)
            except CorruptData as error:
                replies.append(_refusal(error))
                continue
            replies.append(self._apply_batch(batch, data, touched))
        return Applied(replies, touched)

    def _apply_batch(self, batch: Batch, data: bytes, touched: list[bytes]) -> Reply:
        least, greatest = min(batch.keys, default=b""), max(batch.keys, default=b"")
        if not least or max(map(len, batch.keys)) > limits.key_bytes_max:
            # A leader takes neither, and no segment could be built of them (1.22).
            return _refusal(CorruptData("a batch without records, or with a key of a bad length"))
        if least < self.start or (self.end is not None and greatest >= self.end):
            return _refusal(GenerationMismatch("a key outside the range's span", ranges=[]))
        selected = self.producers.check(batch) if batch.producer else None
        if isinstance(selected, LognodeError):
            return _refusal(selected)
        numbers = batch.numbers if selected is None else [batch.numbers[i] for i in selected]
        # Conditions of what is new, all of them before anything is appended; a duplicate's
        # condition held when it was applied.
        if batch.expects is not None:
            mismatch = self._check_expects(batch, selected)
            if mismatch is not None:
                return _refusal(mismatch)
        timestamp_ms = self.last_timestamp_ms
        first_seq = self.next_seq
        if numbers:
            keys = self.memtable.add(batch, data, selected, timestamp_ms)
            self.next_seq += len(keys)
            touched += keys
        if batch.producer:
            self.producers.record(batch, numbers, first_seq, timestamp_ms)
        if selected is None:
            return {"status": "ok", "first_seq": first_seq, "timestamp_ms": timestamp_ms}
        fresh = set(selected)
        return {
            "status": "ok",
            "seqs": self.producers.duplicate_seqs(batch),
            "timestamp_ms": timestamp_ms,
            "duplicates": [i for i in range(batch.count) if i not in fresh],
        }

    def _check_expects(self, batch: Batch, selected: list[int] | None) -> LognodeError | None:
        given: dict[bytes, int] = {}
        expects = batch.expects or ()
        seq = self.next_seq
        for position in range(batch.count) if selected is None else selected:
            key, expected = batch.keys[position], expects[position]
            if expected != EXPECT_ANY:
                actual = given[key] if key in given else self.last_seq(key)
                if actual != expected:
                    return SequenceMismatch(
                        f"the key's last seq is {actual}, not {expected}",
                        key=key, expected=expected, actual=actual,
                    )  # fmt: skip
            given[key] = seq
            seq += 1
        return None

    # From memory to files.

    @property
    def memtable_bytes(self) -> int:
        """Bytes that the memtable which takes appends holds."""
        return self.memtable.size

    @property
    def memtable_full(self) -> bool:
        """Whether it is time to flush: by what it takes here, or would take in the builder."""
        return (
            self.memtable.size >= limits.memtable_bytes_max
            or self.memtable.unpacked_bytes >= limits.segment_unpacked_bytes_max
        )

    @property
    def effective(self) -> tuple[int, int]:
        """Index and term of the last entry that counts: what comes after the seal is void, so
        that every base of an ended generation is one at exactly its end (executions 1.8, 2.16)."""
        if self.sealed is not None:
            return self.sealed.final_index, self.sealed.final_term
        return self.applied_index, self.applied_term

    @property
    def unflushed(self) -> bool:
        """Whether anything is applied that meta does not know."""
        return self.durable_base.applied_index < self.effective[0]

    def freeze(self) -> Frozen | None:
        """Begin a new memtable; the old one, with today's tables, is to be built. None when
        nothing was applied since the last time. One at a time."""
        if not self.unflushed:
            return None
        invariant(not self.frozen, "a memtable is frozen while another is being built")
        memtable = Memtable(self.next_seq, self.store.columns)
        if len(self.memtable):
            memtable, self.memtable = self.memtable, memtable
            self.frozen = [memtable]
        # Else an empty one is frozen, not the live one, which would go on taking entries.
        return Frozen(memtable, *self.effective, self._tables())

    def thaw(self, frozen: Frozen) -> None:
        """The build failed: go on reading from memory; the next freeze takes it again."""
        if not self.frozen:
            return
        later, self.memtable = self.memtable, frozen.memtable
        self.frozen = []
        self.memtable.take_over(later)

    def base_with(self, frozen: Frozen, info: SegmentInfo | None) -> Base:
        """The durable state once the frozen memtable's segment is in the manifest."""
        manifest = list(self.durable_base.manifest)
        if info is not None:
            manifest.append(info)
        return Base(frozen.applied_index, frozen.applied_term, manifest, frozen.tables)

    def flushed(self, base: Base) -> None:
        """Meta has the base: read from its segments and forget the frozen memtable."""
        self.durable_base = base
        self.manifest = base.manifest
        self.frozen = []

    def _tables(self) -> dict[str, Any]:
        return {
            "next_seq": self.next_seq,
            "last_timestamp_ms": self.last_timestamp_ms,
            "hash": self.state_hash,
            "sealed": list(self.sealed) if self.sealed else None,
            "producers": self.producers.to_wire(),
        }


def _refusal(error: LognodeError) -> Reply:
    return {"status": "error", "error": {**to_wire(error), "outcome": "not_applied"}}
