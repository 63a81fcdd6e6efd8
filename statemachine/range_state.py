"""The state machine of a range: committed entries in, replies and an index out.

`apply` is deterministic: the same entries give the same state, seqs and replies on every replica,
whatever its files, clock or configuration (x2.22). Every replica refuses an invalid batch in the
same way; such a batch never stops a replica (x22).
"""

from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, filterfalse
from typing import Any, NamedTuple, overload

from ..client.protocol import limits
from ..client.protocol.errors import (
    CorruptData,
    GenerationMismatch,
    LognodeError,
    Sealed,
)
from ..client.protocol.invariants import invariant
from ..client.protocol.key_column import KeyColumn
from ..client.protocol.levels import LEVEL_MIN
from ..client.protocol.records import EXPECT_ANY, Batch, decode_batch
from . import acked_appends, commands, cursor_commands, removal_commands, restored, rules
from .band_reads import BandReads
from .cursors import Cursors
from .effects import Effects, of_reply
from .groups import apply as groups_apply
from .groups import trims as groups_trims
from .groups.table import Groups
from .memtable import Memtable
from .producer_capture import Capture
from .producers import Producers
from .refusals import mismatch as _mismatch
from .refusals import refusal as _refusal
from .removal import Removal
from .segment_format import SegmentInfo
from .segments import SegmentStore
from .shared_files import Shares
from .sources import Source
from .sparse_memtable import SparseMemtable
from .state_hash import BEGIN, following
from .tails import TABLE, Tails
from .turn_limits import LOOKUP_COST
from .unknown import UnknownCommandError

Reply = dict[str, Any]
_FIRST_INDEX = 1
"""The first index of each generation."""
_POSITIONS = tuple(range(limits.batch_records_max))
"""Replies share these integer objects: each takes 32 bytes."""


class Seal(NamedTuple):
    """The last entry of a generation."""

    operation_id: int
    final_index: int
    final_term: int


@dataclass(slots=True)
class Applied:
    """The effect of an entry: a reply per client batch, and the keys that got entries."""

    replies: Sequence[Reply] | None = ()
    columns: Sequence[KeyColumn] = ()

    @property
    def keys(self) -> Iterator[bytes]:
        """The keys one by one; their objects are made when they are asked for."""
        return chain.from_iterable(map(KeyColumn.strings, self.columns))


class Ahead(NamedTuple):
    """A committed entry, decoded before its turn."""

    command: commands.Command | CorruptData | None
    batches: Sequence[Batch | CorruptData]

    @classmethod
    def of(cls, command: bytes) -> "Ahead":
        """Decode a command. A malformed command becomes an error, and `apply` refuses it."""
        try:
            decoded = commands.decode(command)
        except CorruptData as error:
            return cls(error, ())
        if decoded is not None and decoded.kind == commands.GROUP_APPEND:
            return cls(decoded, [_batch(decoded.payload[-1])])
        if decoded is None or decoded.kind != commands.APPEND:
            return cls(decoded, ())
        return cls(decoded, list(map(_batch, decoded.payload)))


class Sources(Sequence[Source]):
    """The batches of a frozen memtable, made into sources only when taken.

    There may be hundreds of thousands of batches. A slice is made in C; any thread may take
    sources.
    """

    def __init__(self, memtable: Memtable) -> None:
        self._memtable = memtable

    def __len__(self) -> int:
        return self._memtable.batch_count

    @overload
    def __getitem__(self, at: int) -> Source: ...
    @overload
    def __getitem__(self, at: slice) -> list[Source]: ...
    def __getitem__(self, at: int | slice) -> Source | list[Source]:
        if isinstance(at, slice):
            begin, end, _ = at.indices(len(self))
            if isinstance(self._memtable, SparseMemtable):
                return [Source(*row) for row in self._memtable.sources(begin, end)]
            return [Source(*row) for row in self._memtable.batches(begin, end)]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self[at : at + 1][0]


@dataclass(slots=True)
class Frozen:
    """A memtable on its way to a segment, with the tables of exactly its last index (x16)."""

    memtable: Memtable
    applied_index: int
    applied_term: int
    tables: dict[str, Any]
    producers: Capture
    """Makes the rows of producers in the tables."""

    def sources(self) -> "Sources":
        """Return the batches for the builder."""
        return Sources(self.memtable)

    def steps(self) -> Generator[None, None, None]:
        """Complete the tables in steps of a few milliseconds.

        `RangeState.base_with` does the remaining steps. The steps may be stopped and begun again.
        """
        return self.producers.steps()


@dataclass(slots=True)
class Base:
    """The durable state at one index: a member installs it, and meta stores it."""

    applied_index: int = _FIRST_INDEX
    applied_term: int = 0
    manifest: list[SegmentInfo] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the base as it is stored and sent."""
        return {
            "applied": [self.applied_index, self.applied_term],
            "manifest": [info.to_wire() for info in self.manifest],
            "tables": self.tables,
        }

    @classmethod
    def from_wire(cls, body: Mapping[str, Any]) -> "Base":
        """Return the base of a wire map. Raises CorruptData."""
        try:
            index, term = body["applied"]
            if type(index) is not int or type(term) is not int:
                raise ValueError(f"applied is {index!r}, {term!r}")
            manifest = [SegmentInfo.from_wire(info) for info in body["manifest"]]
            return cls(index, term, manifest, dict(body["tables"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"a base is not valid: {error}") from None


class RangeState(BandReads):
    """The state of one replica. All calls come from one thread; reads are in `BandReads`."""

    def __init__(
        self, *, start: bytes, end: bytes | None, store: SegmentStore, base: Base | None = None,
        producers: Producers | None = None,
    ) -> None:  # fmt: skip
        """Create the state of a base. `producers`: the base's table, already made of its rows.

        This state owns `producers` from now on. Raises Unsupported for a base at a feature level
        that this program does not know.
        """
        base = base or Base()
        tables = base.tables
        super().__init__(
            store, base.manifest, Removal.from_wire(tables.get("removal"), start, end),
            start=start, end=end, first_seq=tables.get("next_seq", 1),
            last_timestamp_ms=tables.get("last_timestamp_ms", 0),
        )  # fmt: skip
        self.kinds: Collection[int] = commands.KINDS
        """The kinds of commands that this program applies."""
        self.levels: Collection[int] = rules.BY_LEVEL.keys()
        """The feature levels whose rules this program knows."""
        self.shares = Shares(start, end)
        self.applied_index = base.applied_index
        self.applied_term = base.applied_term
        self.next_seq: int = tables.get("next_seq", 1)
        self.state_hash: bytes = tables.get("hash", BEGIN)
        begins = base.applied_index == _FIRST_INDEX
        self.effects = Effects(tables.get("effects", b""), base.applied_index, begins=begins)
        """The running hash of the effects of entries."""
        sealed = tables.get("sealed")
        self.sealed: Seal | None = Seal(*sealed) if sealed else None
        self.producers = producers or Producers.from_wire(tables.get("producers", {}))
        self.cursors = Cursors.from_wire(tables.get("cursors", {}))
        self.groups = Groups(start, end, tables.get("groups", {}))
        self.tails = Tails.from_wire(tables)
        """The last seq of each Kafka partition; None: the log has no partitions."""
        self.position_moves = 0
        """Commands that may have moved positions of groups and cursors, since this process has the
        state."""
        self.level = LEVEL_MIN
        """The range's feature level."""
        self._raise_level(tables.get("level", LEVEL_MIN))
        self.restoring: bool = tables.get("restoring", False)
        """Whether the range has nothing but entries that were restored from a backup."""
        self.durable_base = base
        """The base in meta, as far as this process knows."""
        self._last_seqs: dict[bytes, int] = {}
        """The last seqs of the keys with a condition in the next entry, looked up before the entry
        is applied, and kept up to date between its batches."""
        self.queue: deque[Frozen] = deque()
        """Frozen memtables that are not yet in meta, oldest first: they become durable in this
        order."""

    # Applying.

    def look_up(self, ahead: Ahead) -> None:
        """Look up the conditions of the next entry in the files, so that applying it reads none.

        In a bounded turn (see `SegmentStore.on_hand`) this raises NotPrepared and TurnOver.
        Repeating the call makes progress, until an entry is applied.
        """
        known = self._last_seqs
        conditional = chain.from_iterable(map(conditional_keys, ahead.batches))
        missing = list(dict.fromkeys(filterfalse(known.__contains__, conditional)))
        if missing and not self.removal.view.hides:
            lasts = self.memtable.last_seqs(missing)
            if not self.frozen and not self.manifest:
                known |= zip(missing, lasts, strict=True)
                return
            known |= compress(zip(missing, lasts, strict=True), lasts)
            missing = list(filterfalse(known.__contains__, missing))
        for key in missing:
            self.store.spend(LOOKUP_COST)
            known[key] = self.last_seq(key)
            self.store.moved_on()

    def apply(self, index: int, term: int, command: bytes, ahead: Ahead | None = None) -> Applied:
        """Apply the committed entry at `index`, which follows the last applied entry.

        `ahead`: the same command, already decoded and looked up. Raises UnknownCommandError for a
        command of a newer program, with nothing changed.
        """
        if ahead is None:
            ahead = Ahead.of(command)
            self.look_up(ahead)
        invariant(
            index == self.applied_index + 1, "an entry would be applied out of order",
            index=index, applied=self.applied_index,
        )  # fmt: skip
        if self.tails is not None:
            self.tails.keep_up(self.memtables())
        if self.sealed is None:
            self._check_known(index, ahead.command)
        self.applied_index, self.applied_term = index, term
        if self.sealed is not None:
            return Applied(self._void(command))  # entries after the seal are void (x2.16)
        self.state_hash = following(
            self.state_hash, index, term, command, sha_256=self.rules.sha_256
        )
        decoded = ahead.command
        if isinstance(decoded, CorruptData):
            return Applied((_refusal(decoded),))
        if decoded is None:
            return Applied()
        self.last_timestamp_ms = max(self.last_timestamp_ms, decoded.timestamp_ms)
        if decoded.kind == commands.APPEND:
            return self._apply_batches(decoded.payload, ahead.batches)
        if decoded.kind == commands.GROUP_APPEND:
            return self._apply_acked(decoded, *ahead.batches)
        if decoded.kind == commands.SEAL:
            self.sealed = Seal(decoded.payload, index, term)
        columns: Sequence[KeyColumn] = ()
        if decoded.kind == commands.RESTORE:
            refused, columns = restored.apply(self, decoded.payload)
            changed: object = self.restoring
        else:
            refused, changed = self._apply_other(decoded)
        if isinstance(refused, LognodeError):
            reply = _refusal(refused)
        else:
            reply = {"status": "ok", **(refused or {})}
        self._note((of_reply(reply), changed))
        if decoded.kind == commands.FREEZE:
            self.freeze()  # the tables include the whole entry
        return Applied((reply,), columns)

    def _apply_other(
        self, command: commands.Command
    ) -> tuple[LognodeError | Mapping[str, Any] | None, object]:
        """Apply a command that is not an append.

        Returns the error that refused it or what the reply adds to its status, and the rows that
        the command may have changed, as they are now.
        """
        if command.kind in (commands.SEAL, commands.FREEZE):
            return None, None
        if command.kind == commands.LEVEL:
            self._raise_level(max(self.level, command.payload))
            return None, self.level
        if command.kind == commands.RETIRE_PRODUCERS:
            self.producers.retire(command.payload)
            return None, None
        if command.kind == commands.FENCE:
            producer, epoch, token = command.payload
            full = self.producers.fence(producer, epoch, token, self.last_timestamp_ms)
            return full, self.producers.told(producer)
        if command.kind in cursor_commands.KINDS:
            self.position_moves += 1
            span = self.start, self.end
            refused = cursor_commands.apply(self.cursors, command, span, self.next_seq)
            return refused, cursor_commands.told(self.cursors, command, span)
        if command.kind in groups_apply.KINDS:
            self.position_moves += 1
            answer = groups_apply.apply(
                self.groups, command, next_seq=self.next_seq, log_ms=self.last_timestamp_ms,
                rules=self.rules,
            )  # fmt: skip
            return answer, groups_apply.told(self.groups, command)
        if self.groups:
            command = groups_trims.held_back(self.groups, command)
        refused = removal_commands.apply(
            self.removal, command, start=self.start, end=self.end,
            next_seq=self.next_seq, log_ms=self.last_timestamp_ms,
        )  # fmt: skip
        if self.groups and refused is None:
            groups_trims.pass_removed(self.groups, command, self.next_seq, self.last_timestamp_ms)
        return refused, removal_commands.told(self.removal, command)

    def _raise_level(self, level: int) -> None:
        """Apply the rules of this level from now on."""
        self.level = level
        self.rules = rules.of_level(level)
        self.removal.rules = self.producers.rules = self.cursors.rules = self.rules

    def _note(self, effects: Sequence[Any]) -> None:
        """Hash the effects of an entry, along with values that follow from all entries."""
        producers = self.producers
        self.effects.add(
            (*effects, self.next_seq, self.last_timestamp_ms, len(producers.rows),
             producers.remembered)
        )  # fmt: skip

    def _check_known(self, index: int, command: commands.Command | CorruptData | None) -> None:
        """Raise UnknownCommandError for a command that only a newer program can apply."""
        if not isinstance(command, commands.Command):
            return
        if command.kind not in self.kinds:
            raise UnknownCommandError(
                index, f"a command of kind {command.kind}", sorted(self.kinds)
            )
        if command.kind == commands.LEVEL and command.payload > max(self.levels):
            raise UnknownCommandError(
                index, f"the change to feature level {command.payload}", sorted(self.levels)
            )

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

    def _apply_batches(
        self, payload: Sequence[bytes], batches: Sequence[Batch | CorruptData]
    ) -> Applied:
        replies: list[Reply] = []
        touched: list[KeyColumn] = []
        rows: list[object] = []
        noted = 0
        for data, batch in zip(payload, batches, strict=True):
            if self._last_seqs and len(touched) > noted:
                noted = len(touched)
                seqs = range(self.next_seq - touched[-1].count, self.next_seq)
                self._last_seqs |= zip(touched[-1].strings(), seqs, strict=True)
            if isinstance(batch, CorruptData):
                replies.append(_refusal(batch))
                continue
            replies.append(self._apply_batch(batch, data, touched))
            if batch.producer:
                rows.append(self.producers.told(batch.producer))
        self._last_seqs.clear()
        self._note((list(map(of_reply, replies)), rows))
        return Applied(replies, touched)

    def _apply_acked(self, command: commands.Command, batch: Batch | CorruptData) -> Applied:
        """Apply a batch with acknowledgements of a consumer group: all of it, or nothing."""
        self.position_moves += 1
        touched: list[KeyColumn] = []
        told: object = ()
        if isinstance(batch, CorruptData):
            reply = _refusal(batch)
        else:
            unfit = acked_appends.batch_refusal(batch)
            reply = unfit or self._apply_batch(batch, command.payload[-1], touched, command)
            told = self.producers.told(batch.producer) if batch.producer else ()
        self._last_seqs.clear()
        self._note((of_reply(reply), told, groups_apply.told(self.groups, command)))
        return Applied((reply,), touched)

    def repeated(self, batch: Batch) -> Reply | None:
        """Return the reply for a batch of which all records were appended before, else None."""
        if not batch.producer or self.producers.check(batch) != []:
            return None
        return self._mixed_reply(batch, [], {}, self.next_seq)

    def _apply_batch(
        self, batch: Batch, data: bytes, touched: list[KeyColumn],
        acked: commands.Command | None = None,
    ) -> Reply:  # fmt: skip
        keys = batch.key_column
        if not keys.least or keys.longest > limits.key_bytes_max:
            # A leader accepts no such batch, and no segment could be built of it (x22).
            return _refusal(CorruptData("a batch has no records, or a key with a bad length"))
        if keys.least < self.start or (self.end is not None and keys.greatest >= self.end):
            return _refusal(GenerationMismatch("a key is outside of the range", ranges=[]))
        selected = self.producers.check(batch) if batch.producer else None
        if isinstance(selected, LognodeError):
            return _refusal(selected)
        # Check the conditions of all new records before anything is appended. The condition of a
        # duplicate held when the duplicate was applied.
        refused: Mapping[int, int] = {}
        if batch.expects is not None:
            refused = self._refused(batch, selected)
            if refused and not batch.each:
                return _refusal(_mismatch(batch, refused))
            if refused:
                fresh = range(batch.count) if selected is None else selected
                selected = [position for position in fresh if position not in refused]
        if acked is not None:
            unfit = acked_appends.acknowledge(self.groups, acked, selected, self.next_seq)
            if unfit is not None:
                return unfit
        numbers = batch.numbers if selected is None else [batch.numbers[i] for i in selected]
        timestamp_ms = self.last_timestamp_ms
        first_seq = self.next_seq
        if numbers:
            appended = self.memtable.add(batch, data, selected, timestamp_ms)
            self.next_seq += appended.count
            self.restoring = False
            touched.append(appended)
        if batch.producer:
            self.producers.record(batch, numbers, first_seq, timestamp_ms)
        if selected is None:
            return {"status": "ok", "first_seq": first_seq, "timestamp_ms": timestamp_ms}
        return self._mixed_reply(batch, selected, refused, first_seq)

    def _mixed_reply(
        self, batch: Batch, selected: list[int], refused: Mapping[int, int], first_seq: int
    ) -> Reply:
        """Return the reply for a batch appended in part: `selected`, from `first_seq` on."""
        seqs = self.producers.duplicate_seqs(batch)
        for seq, position in enumerate(selected, first_seq):
            seqs[position] = seq
        settled = {*selected, *refused}
        reply: Reply = {
            "status": "ok",
            "seqs": seqs,
            "timestamp_ms": self.last_timestamp_ms,
            "duplicates": [i for i in _positions(batch.count) if i not in settled],
        }
        if refused:
            reply["refused"], reply["actual"] = list(refused), list(refused.values())
        return reply

    def _refused(self, batch: Batch, selected: list[int] | None) -> dict[int, int]:
        """Return the positions whose conditions fail, with the key's last seq at that position.

        For a batch with one fate: only the first such position. Otherwise all of them; each
        condition counts the records that are appended before it.
        """
        refused: dict[int, int] = {}
        if selected is None and self._all_hold(batch):
            return refused
        given: dict[bytes, int] = {}
        keys, expects = batch.keys, batch.expects or ()
        seq = self.next_seq
        for position in range(batch.count) if selected is None else selected:
            key, expected = keys[position], expects[position]
            if expected != EXPECT_ANY:
                actual = given[key] if key in given else self._last_seqs[key]
                if actual != expected:
                    refused[position] = actual
                    if not batch.each:
                        break
                    continue
            given[key] = seq
            seq += 1
        return refused

    def _all_hold(self, batch: Batch) -> bool:
        """Return whether all conditions hold, as nearly always.

        False also where a key repeats or a record has no condition. The loops are in C or
        comprehensions, for a tenth of the time of checking the records one by one.
        """
        keys, expects = batch.keys, batch.expects or ()
        if EXPECT_ANY in expects or len(set(keys)) < len(keys):
            return False
        return list(map(self._last_seqs.__getitem__, keys)) == expects

    # From memory to files.

    @property
    def memtable_bytes(self) -> int:
        """The bytes of everything applied and not yet in a segment, frozen or not."""
        return self.memtable.size + self.frozen_bytes

    @property
    def frozen_bytes(self) -> int:
        """The bytes of the frozen memtables, which wait for the builder or are being built."""
        return sum(memtable.size for memtable in self.frozen)

    @property
    def segment_bytes(self) -> int | None:
        """The bytes of the segments, only the range's share of shared ones; None while unknown."""
        shares = list(map(self.shares.of, self.manifest))
        return None if None in shares else sum(share.size for share in shares if share)

    @property
    def entries_held(self) -> int | None:
        """The entries in segments and memory, including invisible ones; None while unknown."""
        shares = list(map(self.shares.of, self.manifest))
        held = sum(map(len, self.memtables()))
        return None if None in shares else held + sum(share.entries for share in shares if share)

    def measure(self) -> bool:
        """Take a step in measuring the range's share of its segments. Return whether all are known.

        In a bounded turn (see `SegmentStore.on_hand`) this raises NotPrepared and TurnOver;
        repeating the call makes progress. Raises CorruptData.
        """
        return self.shares.look(self.manifest, self.store.segment)

    @property
    def is_measured(self) -> bool:
        """Whether the range's share of its segments is known, and `measure` has nothing to do."""
        return self.shares.are_known(self.manifest)

    @property
    def unpacked_bytes(self) -> int:
        """About the largest size of the segments of everything in memory."""
        return sum(memtable.unpacked_bytes for memtable in self.memtables())

    @property
    def memtable_full(self) -> bool:
        """Whether to freeze now: the memtable is large here, or would be large in the builder."""
        return (
            self.memtable.size >= limits.memtable_bytes_max
            or self.memtable.unpacked_bytes >= limits.segment_unpacked_bytes_max
        )

    @property
    def effective(self) -> tuple[int, int]:
        """The index and term of the last entry that counts. Entries after the seal are void.

        So every base of an ended generation is a base at exactly its end (x8, x2.16).
        """
        if self.sealed is not None:
            return self.sealed.final_index, self.sealed.final_term
        return self.applied_index, self.applied_term

    @property
    def unflushed(self) -> bool:
        """Whether an applied entry is not in meta yet."""
        return self.durable_base.applied_index < self.effective[0]

    def freeze(self) -> Frozen | None:
        """Begin a new memtable. The old memtable, with the present tables, joins the queue.

        Returns None when nothing was applied since the last freeze. No call waits for the builder:
        reads find the frozen memtables in memory until meta knows their segments, and a failed
        build begins again with the same entries.
        """
        frozen_to = self.queue[-1] if self.queue else self.durable_base
        if self.effective[0] <= frozen_to.applied_index:
            return None
        memtable = Memtable(self.next_seq, self.store.columns)
        if len(self.memtable):
            memtable, self.memtable = self.memtable, memtable
            self.frozen = [*self.frozen, memtable]
        # An empty memtable is frozen instead of the live one, which would go on taking entries.
        producers = self.producers.capture()
        frozen = Frozen(memtable, *self.effective, self._tables(producers), producers)
        self.queue.append(frozen)
        return frozen

    def base_with(self, frozen: Frozen, info: SegmentInfo | None) -> Base:
        """Return the durable state that includes the segment of the oldest frozen memtable."""
        invariant(
            frozen is self.queue[0], "a memtable is made durable before an older one",
            index=frozen.applied_index, oldest=self.queue[0].applied_index,
        )  # fmt: skip
        frozen.producers.finish()
        manifest = list(self.durable_base.manifest)
        if info is not None:
            manifest.append(info)
        return Base(frozen.applied_index, frozen.applied_term, manifest, frozen.tables)

    def flushed(self, base: Base) -> None:
        """Note that meta has the base of the oldest frozen memtable; now read its segment."""
        self.queue.popleft()
        self.durable_base = base
        self.manifest = base.manifest
        self.frozen = [frozen.memtable for frozen in self.queue if len(frozen.memtable)]

    def base_merged(self, inputs: Sequence[SegmentInfo], merged: SegmentInfo | None) -> Base:
        """Return the durable state after `inputs` were replaced by `merged`, if there is one.

        The inputs are rows of the manifest. If there is a merged segment, they are neighbours with
        the same clip. The visible entries and the index stay the same. The clip stays: it says
        where the spans of merged ranges meet (see `chains`).
        """
        base = self.durable_base
        begin, end = base.manifest.index(inputs[0]), base.manifest.index(inputs[-1]) + 1
        manifest = [info for info in base.manifest if info not in inputs]
        invariant(len(manifest) == len(base.manifest) - len(inputs), "a segment to replace is gone")
        if merged is not None:
            clip = inputs[0].clip
            invariant(
                end - begin == len(inputs) and all(info.clip == clip for info in inputs),
                "the segments to merge are not neighbours",
            )
            manifest.insert(begin, merged._replace(start=clip[0], end=clip[1]))
        return Base(base.applied_index, base.applied_term, manifest, base.tables)

    def merged(self, base: Base) -> None:
        """Note that meta has the base that `base_merged` made: read from its segments."""
        self.durable_base = base
        self.manifest = base.manifest

    def _tables(self, producers: Capture) -> dict[str, Any]:
        """Return the present tables; `producers` still has to make the rows of producers."""
        # A table at the first level, or without cursors, looks as older versions wrote it.
        level = {"level": self.level} if self.level > LEVEL_MIN else {}
        cursors = {"cursors": self.cursors.to_wire()} if self.cursors.found else {}
        groups = {"groups": self.groups.to_wire()} if self.groups else {}
        restoring = {"restoring": True} if self.restoring else {}
        tails = {TABLE: self.tails.to_wire(self.memtables())} if self.tails is not None else {}
        return {
            **level,
            **cursors,
            **groups,
            **restoring,
            **tails,
            "next_seq": self.next_seq,
            "last_timestamp_ms": self.last_timestamp_ms,
            "hash": self.state_hash,
            "effects": self.effects.to_wire(),
            "sealed": list(self.sealed) if self.sealed else None,
            "producers": producers.rows,
            "removal": self.removal.to_wire(self.last_timestamp_ms),
        }


def conditional_keys(batch: Batch | CorruptData) -> Iterable[bytes]:
    """Return the keys of the records with a condition."""
    if isinstance(batch, CorruptData) or batch.expects is None:
        return ()
    if EXPECT_ANY not in batch.expects:
        return batch.keys
    return compress(batch.keys, map(EXPECT_ANY.__ne__, batch.expects))


def _positions(count: int) -> Sequence[int]:
    """Return the positions in a batch of `count` records."""
    return _POSITIONS[:count] if count <= len(_POSITIONS) else range(count)


def _batch(data: bytes) -> Batch | CorruptData:
    try:
        return decode_batch(data)
    except CorruptData as error:
        return error
