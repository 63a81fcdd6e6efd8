"""The library's view of a group's log: its `Journal`, whose items are (command, index, term).

Two things differ from the library's own journals. Slices are lazy, since one send slices the
whole tail and one commit asks for a single term (x2.6). And nothing is cut at the back
when the library asks for it: it asks at every append behind the end, matching or not (hole 2).
The log truncates in `append`, where an entry of another term shows a real conflict.
"""

from collections.abc import Iterator
from typing import Protocol, overload

from ..client.protocol.invariants import invariant
from .types import LogEntry

Item = tuple[bytes, int, int]

_PAGE_BYTES = 1 << 20
_SLICE_ENTRIES_MAX = 1_024
"""So that what msgpack adds to the entries of one append stays below 64 KiB (x23), and
so that a follower can take them in one turn of its loop: in 4 ms."""


class RaftLog(Protocol):
    """What the group needs of its log; `GroupLog` is the real one."""

    @property
    def base_index(self) -> int: ...
    @property
    def base_term(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def vote(self) -> int | None: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def durable_index(self) -> int: ...
    @property
    def synced_round(self) -> int: ...
    def term_at(self, index: int) -> int | None: ...
    def entry(self, index: int) -> LogEntry: ...
    def entries(self, first: int, last: int, bytes_max: int | None = None) -> list[LogEntry]: ...
    def append(self, index: int, term: int, command: bytes) -> None: ...
    def set_hard_state(self, term: int, vote: int | None) -> None: ...
    def set_commit(self, index: int) -> None: ...
    def round_of(self, index: int) -> int: ...
    def message_round(self, index: int) -> int: ...


class EngineJournal:
    """Position 0 is the base; position i is the entry base_index + i. Never empty (x2.5)."""

    def __init__(self, log: RaftLog, *, cap_commit: bool = False, truncate: bool = False) -> None:
        """`cap_commit`: the commit index stays at what is durable here; for a group of one.

        `truncate` opens hole 2: the library's truncations are obeyed.
        """
        self.log = log
        self._cap_commit = cap_commit
        self._truncate = truncate
        self._wanted_commit = log.commit_index
        self._hidden_from: int | None = None

    @property
    def last_index(self) -> int:
        """Index of the last entry that the engine sees."""
        return self.log.last_index if self._hidden_from is None else self._hidden_from - 1

    @property
    def last_term(self) -> int:
        """Term of the last entry that the engine sees."""
        return self._term(self.last_index)

    def _term(self, index: int) -> int:
        term = self.log.term_at(index)
        if term is None:
            invariant(False, "the log has no such entry", index=index)
        return term or 0

    def _position(self, index: int) -> Item:
        """(nothing, index, term): where the library looks at one item, it wants no command."""
        term = self.log.term_at(index)
        return b"", index, self._term(index) if term is None else term

    def __len__(self) -> int:
        return self.last_index - self.log.base_index + 1

    @overload
    def __getitem__(self, item: int) -> Item: ...
    @overload
    def __getitem__(self, item: slice) -> "LazySlice | list[Item]": ...
    def __getitem__(self, item: int | slice) -> "Item | LazySlice | list[Item]":
        base = self.log.base_index
        if isinstance(item, int):
            return self._position(base + item if item >= 0 else self.last_index + 1 + item)
        last = self.last_index
        start, stop, _ = item.indices(last - base + 1)
        if item.stop == start + 1 == stop:  # one item is asked for, and looked at
            return [self._position(base + start)]
        return LazySlice(
            self, base + start, min(base + stop - 1, base + start + _SLICE_ENTRIES_MAX - 1)
        )

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append; truncates at a real conflict, does nothing for an entry already there."""
        invariant(index <= self.last_index + 1, "a gap in the log", index=index)
        self.log.append(index, term, bytes(command))
        if self._hidden_from is not None:
            self._hidden_from = index + 1 if index < self.log.last_index else None

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """The engine's commit index; stored at once, or when durable in a group of one."""
        self._wanted_commit = index
        self.settle()

    def settle(self) -> None:
        """After a sync: a group of one commits what has become durable (hole 5)."""
        ceiling = self.log.durable_index if self._cap_commit else self.log.last_index
        commit = min(self._wanted_commit, ceiling)
        if commit > self.log.commit_index:
            self.log.set_commit(commit)

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The log keeps it between base and last (hole 7)."""
        return self.log.commit_index

    def setCurrentTerm(self, term: int, vote: int | None) -> None:  # noqa: N802
        """Term and vote, an item of the WAL that messages showing them wait for (hole 6)."""
        self.log.set_hard_state(term, vote)

    def getCurrentTerm(self) -> int:  # noqa: N802
        """The stored term. The engine takes the last entry's where that is larger."""
        return self.log.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        """The vote, unless it was cast in a term older than the last entry's."""
        return self.log.vote if self.log.term >= self.log.last_term else None

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802
        """Nothing, see above. With hole 2 open the engine no longer sees what it deleted."""
        if self._truncate and position < len(self):
            self._hidden_from = self.log.base_index + position

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802
        """Never: the front is cut by checkpoints, in the log itself (holes 8, 9)."""
        invariant(False, "the engine compacts the log", position=position)

    def clear(self) -> None:
        """Never: the engine loads no dumps (holes 1, 8)."""
        invariant(False, "the engine clears the log")

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing waits to be written here."""

    def _destroy(self) -> None:
        """The log outlives the engine."""


class LazySlice:
    """Entries first..last of the log, read when iterated, a page at a time."""

    __slots__ = ("_count", "_first", "_journal", "_last", "_seen")

    def __init__(self, journal: EngineJournal, first: int, last: int) -> None:
        self._journal = journal
        self._first = first
        self._last = last
        self._count = max(0, last - first + 1)
        self._seen: list[Item] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, item: int) -> Item: ...
    @overload
    def __getitem__(self, item: slice) -> list[Item]: ...
    def __getitem__(self, item: int | slice) -> Item | list[Item]:
        if isinstance(item, int):
            if not -self._count <= item < self._count:
                raise IndexError(item)
            return self._journal._position(self._first + item % self._count)
        start, stop, step = item.indices(self._count)
        for _ in self._items(stop):
            pass
        return self._seen[start:stop:step]

    def __iter__(self) -> Iterator[Item]:
        return self._items(self._count)

    def _items(self, count: int) -> Iterator[Item]:
        """The first `count` items; what was read once is kept for the slice that follows."""
        position = 0
        while position < count:
            if position == len(self._seen):
                page = self._journal.log.entries(self._first + position, self._last, _PAGE_BYTES)
                self._seen.extend((entry.command, entry.index, entry.term) for entry in page)
            yield self._seen[position]
            position += 1
