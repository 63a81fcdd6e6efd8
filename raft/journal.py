"""The library's view of a group's log: its `Journal`, whose items are (command, index, term).

This journal differs from the library's own journals in two ways. Slices are lazy, since one send
slices the whole tail and one commit asks for a single term (x2.6). And the journal ignores the
library's truncations: the library truncates at every append before the end, matching or not (hole
2). The log truncates in `append`, where an entry of another term shows a real conflict.
"""

from collections.abc import Iterator
from typing import Protocol, overload

from ..client.protocol.invariants import invariant
from .types import LogEntry

Item = tuple[bytes, int, int]

_PAGE_BYTES = 1 << 20
_SLICE_ENTRIES_MAX = 1_024
"""This bound keeps msgpack's overhead for the entries of one append below 64 KiB (x23). A follower
can take the entries of one append in one turn of its loop, in 4 ms."""


class RaftLog(Protocol):
    """The operations that a group needs of its log; `GroupLog` implements them."""

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
    """The log as a list: position 0 is the base, position i the entry base_index + i (x2.5).

    The list is never empty.
    """

    def __init__(self, log: RaftLog, *, cap_commit: bool = False, truncate: bool = False) -> None:
        """`cap_commit`: keep the commit index at the durable index; for a group of one.

        `truncate` opens hole 2: the journal obeys the library's truncations.
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
        """Return (b"", index, term): the library needs no command where it looks at one item."""
        term = self.log.term_at(index)
        return b"", index, self._term(index) if term is None else term

    def __len__(self) -> int:
        return self.last_index - self.log.base_index + 1

    @overload
    def __getitem__(self, item: int) -> Item: ...
    @overload
    def __getitem__(self, item: slice) -> "LazySlice | list[Item]": ...
    def __getitem__(self, item: int | slice) -> "Item | LazySlice | list[Item]":
        if item == -1 and self._hidden_from is None:  # what the library looks at most
            return b"", self.log.last_index, self.log.last_term
        base = self.log.base_index
        if isinstance(item, int):
            return self._position(base + item if item >= 0 else self.last_index + 1 + item)
        last = self.last_index
        start, stop, _ = item.indices(last - base + 1)
        if item.stop == start + 1 == stop:  # the library looks at a single item
            return [self._position(base + start)]
        return LazySlice(
            self, base + start, min(base + stop - 1, base + start + _SLICE_ENTRIES_MAX - 1)
        )

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append an entry; truncate at a real conflict, do nothing for an entry already there."""
        if index > self.last_index + 1:
            invariant(False, "the journal would have a gap", index=index)
        self.log.append(index, term, bytes(command))
        if self._hidden_from is not None:
            self._hidden_from = index + 1 if index < self.log.last_index else None

    def setRaftCommitIndex(self, index: int) -> None:
        """Store the engine's commit index at once, or in a group of one when it is durable."""
        self._wanted_commit = index
        self.settle()

    def settle(self) -> None:
        """After a sync: in a group of one, commit the entries that have become durable (hole 5)."""
        ceiling = self.log.durable_index if self._cap_commit else self.log.last_index
        commit = min(self._wanted_commit, ceiling)
        if commit > self.log.commit_index:
            self.log.set_commit(commit)

    def getRaftCommitIndex(self) -> int:
        """Return the commit index, which the log keeps between base and last (hole 7)."""
        return self.log.commit_index

    def setCurrentTerm(self, term: int, vote: int | None) -> None:
        """Store term and vote in the WAL; messages that show them wait for that round (hole 6)."""
        self.log.set_hard_state(term, vote)

    def getCurrentTerm(self) -> int:
        """Return the stored term. The engine takes the last entry's term where that is larger."""
        return self.log.term

    def getVotedForNodeId(self) -> int | None:
        """Return the vote, unless its term is older than the last entry's."""
        return self.log.vote if self.log.term >= self.log.last_term else None

    def deleteEntriesFrom(self, position: int) -> None:
        """Do nothing, see above. With hole 2 open the engine no longer sees the deleted entries."""
        if self._truncate and position < len(self):
            self._hidden_from = self.log.base_index + position

    def deleteEntriesTo(self, position: int) -> None:
        """Fail: checkpoints cut the front, in the log itself (holes 8, 9)."""
        invariant(False, "the engine compacts the log", position=position)

    def clear(self) -> None:
        """Fail: the engine loads no dumps (holes 1, 8)."""
        invariant(False, "the engine clears the log")

    def onOneSecondTimer(self) -> None:
        """Do nothing: no write waits here."""

    def _destroy(self) -> None:
        """Do nothing: the log outlives the engine."""


class LazySlice:
    """Entries first..last of the log, read during iteration, a page at a time."""

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
        """Yield the first `count` items. Items that were read are kept for the next slice."""
        position = 0
        while position < count:
            if position == len(self._seen):
                page = self._journal.log.entries(self._first + position, self._last, _PAGE_BYTES)
                self._seen.extend((entry.command, entry.index, entry.term) for entry in page)
            yield self._seen[position]
            position += 1
