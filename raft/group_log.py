"""The log of one group as the engine sees it, over the WAL that all groups of a node share.

The log keeps the term and the place of every entry after the base. The newest entries are cached;
older entries are read back from the files. Durability is tracked by WAL round, not by index: the
sync of (10, T5) must not count for (10, T6) that replaced it (x2.1).
"""

from collections import OrderedDict, deque
from typing import NamedTuple, Protocol

import google_crc32c

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData
from ..client.protocol.invariants import invariant
from . import wal_format
from .types import GroupId, LogEntry
from .wal_format import StateItem


class Place:
    """The place of an entry's command. `file` is 0 until its round is collected."""

    __slots__ = ("checksum", "file", "offset", "size", "term")

    def __init__(self, term: int, size: int, checksum: int) -> None:
        self.term = term
        self.size = size
        self.checksum = checksum
        self.file = 0
        self.offset = 0


class Move(NamedTuple):
    """An entry that is written again: it is at `old` until its round is synced."""

    log: "GroupLog"
    position: int
    old: Place
    new: Place


class Writer(Protocol):
    """The operations that a group log needs of the WAL."""

    open_round: int
    synced_round: int

    def queue(self, item: bytes, *, must_sync: bool) -> None: ...

    def queue_entry(self, head: bytes, command: bytes, place: Place) -> None: ...

    def queue_move(self, head: bytes, command: bytes, move: "Move") -> None: ...

    def read_place(self, place: Place) -> bytes: ...

    def touched(self, log: "GroupLog", *, state: bool) -> None: ...


class GroupLog:
    """See the module. All calls come from the event loop's thread; indexes are Raft indexes.

    `base_index` and `base_term` name the entry before the first held entry: the sentinel of a new
    generation, or the last entry of a cut or of an installed base.
    """

    def __init__(self, gid: GroupId, writer: Writer, *, base_index: int, base_term: int) -> None:
        self.gid = gid
        self.base_index = base_index
        self.base_term = base_term
        self.term = base_term
        self.vote: int | None = None
        self.stored_commit = base_index
        self.state_file = 0
        """The file with the newest STATE item; it must not be deleted before another file has a
        newer STATE."""
        self._writer = writer
        self.last_index = base_index
        """The index of the last held entry, or of the base; moves with `_places`."""
        self._places: list[Place] = []
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._unsynced: deque[tuple[int, int]] = deque()
        self._state_round = 0

    # Reading.

    @property
    def first_index(self) -> int:
        """The first index held; one above `last_index` when the log holds no entry."""
        return self.base_index + 1

    @property
    def cached_bytes(self) -> int:
        """The bytes of the entries that are kept in memory."""
        return self._cached_bytes

    @property
    def last_term(self) -> int:
        """The term of the last index."""
        return self._places[-1].term if self._places else self.base_term

    @property
    def commit_index(self) -> int:
        """The stored commit index, never outside what the log holds (hole 7)."""
        stored, base = self.stored_commit, self.base_index
        if stored <= base:
            return base
        last = self.last_index
        return stored if stored < last else last

    def term_at(self, index: int) -> int | None:
        """Return the term of the base or of a held entry, else None."""
        if index == self.base_index:
            return self.base_term
        position = index - self.base_index - 1
        if 0 <= position < len(self._places):
            return self._places[position].term
        return None

    def entry(self, index: int) -> LogEntry:
        """Return the entry at a held index.

        Raises CorruptData when its bytes on disk have changed.
        """
        invariant(
            self.base_index < index <= self.last_index,
            "the group asked for an entry outside of the log",
            gid=self.gid, index=index, base=self.base_index, last=self.last_index,
        )  # fmt: skip
        place = self._places[index - self.base_index - 1]
        command = self._cache.get(index)
        if command is None:
            command = self._writer.read_place(place)
            if google_crc32c.value(command) != place.checksum:
                raise CorruptData(f"WAL entry {index} of {self.gid} has another checksum")
        return LogEntry(index, place.term, command)

    def entries(self, first: int, last: int, bytes_max: int | None = None) -> list[LogEntry]:
        """Return entries first..last, both included, as many as fit in `bytes_max`.

        Returns at least one entry if there is any.
        """
        found: list[LogEntry] = []
        room = bytes_max
        for index in range(first, min(last, self.last_index) + 1):
            if room is not None:
                room -= self._places[index - self.base_index - 1].size
                if room < 0 and found:
                    break
            found.append(self.entry(index))
        return found

    # Writing.

    def append(self, index: int, term: int, command: bytes) -> None:
        """Append, or replace from `index` on when the entry held there has another term.

        An entry that is already held stays as it is.
        """
        held = self.term_at(index)
        if held == term and index > self.base_index:
            return
        if index <= self.last_index:
            self._truncate(index)
        last_term = self.last_term
        if index != self.last_index + 1 or term < last_term:
            invariant(
                False, "an append does not follow the end of the log",
                gid=self.gid, index=index, term=term, last=self.last_index, last_term=last_term,
            )  # fmt: skip
        head = wal_format.encode_entry(self.gid, index, term, last_term, len(command))
        place = Place(term, len(command), google_crc32c.value(command))
        self._places.append(place)
        self.last_index = index
        self._remember(index, command)
        round_ = self._writer.open_round
        if not self._unsynced or self._unsynced[-1][0] != round_:
            self._unsynced.append((round_, index))
        self._writer.queue_entry(head, command, place)
        self._writer.touched(self, state=False)

    def set_hard_state(self, term: int, vote: int | None) -> None:
        """Store term and vote; they become durable with the open round."""
        if (term, vote) == (self.term, self.vote):
            return
        invariant(
            term >= self.term, "the term would go back", gid=self.gid, old=self.term, new=term
        )
        invariant(
            term > self.term or self.vote is None,
            "the group would vote twice in a "
            "term", gid=self.gid, term=term, old=self.vote, new=vote,
        )  # fmt: skip
        self.term, self.vote = term, vote
        self.write_state(must_sync=True)

    def set_commit(self, index: int) -> None:
        """Store the commit index without a sync, since a quorum can always tell it again."""
        if index > self.stored_commit:
            self.stored_commit = index
            self.write_state(must_sync=False)

    def learn_commit(self, index: int, term: int) -> None:
        """Take the entries up to `index` for committed, if the entry there is of this `term`.

        The caller knows that the entry of this index and term is committed. By Log Matching
        (Ongaro and Ousterhout, 2014, section 5.3) all logs that have the entry have the same
        entries before it. So a member needs no leader to learn of the commit.
        """
        if self.term_at(index) == term:
            self.set_commit(index)

    def cut_front(self, index: int) -> None:
        """Drop the entries up to and including `index`, which must be committed."""
        if index <= self.base_index:
            return
        invariant(index <= self.commit_index, "the group would cut the log above the commit "
                                              "index", gid=self.gid,
                  index=index, commit=self.commit_index)  # fmt: skip
        self._drop_front(index)
        self.write_state(must_sync=False)

    def reset(self, index: int, term: int) -> None:
        """Begin after the installed base (index, term).

        A log that holds exactly that entry keeps all later entries: this member may have
        acknowledged them (x1). A base before the front of the log is an error: it would forget
        applied entries.
        """
        invariant(index >= self.base_index, "a reset would go behind the base", gid=self.gid,
                  index=index, base=self.base_index)  # fmt: skip
        self.stored_commit = max(self.stored_commit, index)
        if self.term_at(index) == term:
            self._drop_front(index)
        else:
            self._places.clear()
            self._cache.clear()
            self._cached_bytes = 0
            self._unsynced.clear()
            self.base_index, self.base_term, self.last_index = index, term, index
            self._writer.queue(wal_format.encode_reset(self.gid, index, term), must_sync=True)
        if term > self.term:
            self.term, self.vote = term, None
        self.write_state(must_sync=True)

    def write_state(self, *, must_sync: bool) -> None:
        """Queue a STATE item with the present state."""
        if must_sync:
            self._state_round = self._writer.open_round
        self._writer.queue(wal_format.encode_state(self.state()), must_sync=must_sync)
        self._writer.touched(self, state=True)

    def state(self) -> StateItem:
        """Return the whole state except the entries, as it is written."""
        return StateItem(
            self.gid, self.term, self.vote or 0, self.stored_commit,
            self.last_index, self.last_term, self.base_index, self.base_term,
        )  # fmt: skip

    # Moving: the front files may be freed although the log still needs entries in them.

    @property
    def held_bytes(self) -> int:
        """The size of all held commands in bytes."""
        return sum(place.size for place in self._places)

    def rewrite(self) -> None:
        """Write every entry again, all in the open round. Raises CorruptData.

        Recovery takes the first of them for a conflict that replaces the rest.
        """
        entries = self.entries(self.first_index, self.last_index)  # reads all before queueing any
        term = self.base_term
        for entry, old in zip(entries, self._places, strict=True):
            head = wal_format.encode_entry(self.gid, entry.index, old.term, term, old.size)
            new = Place(old.term, old.size, old.checksum)
            self._writer.queue_move(head, entry.command, Move(self, entry.index, old, new))
            term = old.term
        self._writer.touched(self, state=False)

    def moved(self, move: Move) -> None:
        """Use the new place: the move's round is synced.

        The entry may have been cut or replaced meanwhile.
        """
        position = move.position - self.first_index
        if 0 <= position < len(self._places) and self._places[position] is move.old:
            self._places[position] = move.new

    # Durability.

    @property
    def durable_index(self) -> int:
        """The last index up to which every entry is on disk with its present content."""
        self._forget_synced()
        return self._unsynced[0][1] - 1 if self._unsynced else self.last_index

    @property
    def synced_round(self) -> int:
        """The newest synced WAL round."""
        return self._writer.synced_round

    @property
    def hard_state_durable(self) -> bool:
        """Whether the present term and vote are on disk."""
        return self._state_round <= self._writer.synced_round

    def round_of(self, index: int) -> int:
        """Return the round that makes every entry up to `index` durable; 0 if they are durable."""
        self._forget_synced()
        found = 0
        for round_, first in self._unsynced:
            if first > index:
                break
            found = round_
        return found

    def message_round(self, index: int) -> int:
        """Return the round that a message with the term and the log up to `index` must wait for."""
        state_round = 0 if self.hard_state_durable else self._state_round
        return max(state_round, self.round_of(index))

    @property
    def oldest_file(self) -> int | None:
        """The number of the oldest file with an entry of this log; None without a written entry."""
        return self._places[0].file or None if self._places else None

    # Recovery and internals.

    def adopt(self, places: list[Place], state: StateItem | None) -> None:
        """Take over the recovered entries and state; the constructor was given the base."""
        self._places = places
        self.last_index = self.base_index + len(places)
        if state is not None:
            self.term, self.vote = state.term, state.vote or None
            self.stored_commit = state.commit

    def _truncate(self, index: int) -> None:
        invariant(
            index > self.commit_index, "an append would replace a committed entry",
            gid=self.gid, index=index, commit=self.commit_index,
        )  # fmt: skip
        del self._places[index - self.base_index - 1 :]
        self.last_index = index - 1
        for gone in [cached for cached in self._cache if cached >= index]:
            self._cached_bytes -= len(self._cache.pop(gone))
        while self._unsynced and self._unsynced[-1][1] >= index:
            self._unsynced.pop()

    def _drop_front(self, index: int) -> None:
        count = index - self.base_index
        self.base_term = self._places[count - 1].term if count else self.base_term
        del self._places[:count]
        self.base_index = index
        for gone in [cached for cached in self._cache if cached <= index]:
            self._cached_bytes -= len(self._cache.pop(gone))
        self._forget_synced()
        while self._unsynced and self._next_unsynced() <= index:
            self._unsynced.popleft()
        if self._unsynced and self._unsynced[0][1] <= index:
            self._unsynced[0] = (self._unsynced[0][0], index + 1)

    def _next_unsynced(self) -> int:
        """Return the last index that the oldest unsynced round covers."""
        return self._unsynced[1][1] - 1 if len(self._unsynced) > 1 else self.last_index

    def _forget_synced(self) -> None:
        synced = self._writer.synced_round
        while self._unsynced and self._unsynced[0][0] <= synced:
            self._unsynced.popleft()

    def _remember(self, index: int, command: bytes) -> None:
        self._cache[index] = command
        self._cached_bytes += len(command)
        while self._cached_bytes > limits.log_cache_bytes_max:
            oldest = next(iter(self._cache))
            if oldest > self.durable_index:
                break  # may not be written yet, so it cannot be read back
            self._cached_bytes -= len(self._cache.pop(oldest))
