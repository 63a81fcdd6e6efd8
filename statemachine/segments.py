"""The store of segment files: `files/` by content id.

A file is opened once, and removed when no manifest names it.
"""

import itertools
import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData, Overloaded
from ..client.protocol.invariants import DiskFailure
from .block_cache import BlockCache
from .column_cache import ColumnCache
from .file_hash import hash_file
from .recent_pages import RecentPages, forget_pages
from .segment_file import SegmentBytes, SegmentFile
from .segment_reader import Segment, check_lack
from .span_copies import SpanCopies
from .turn_limits import NotPrepared, Turns

_OPEN_MAX = 256


class Removed(NamedTuple):
    """A file to be deleted, and its segment if that was open."""

    content_id: str
    segment: Segment | None


class Prepared(NamedTuple):
    """A file that a thread has opened, and the number of the file's last change before.

    `is_here`: the file was opened in the directory, and not elsewhere.
    """

    segment: Segment
    changed: int | None
    is_here: bool


class _OnHand:
    """See `SegmentStore.on_hand`. Each entry that is applied enters one: a generator as a context
    takes three times as long."""

    __slots__ = ("_store", "_turns")

    def __init__(self, store: "SegmentStore", turns: Turns) -> None:
        self._store = store
        self._turns = turns

    def __enter__(self) -> None:
        self._turns.begin()
        self._store._bound(self._turns)

    def __exit__(self, *_: object) -> None:
        self._store._bound(None)


class SegmentStore:
    """Immutable files in one directory, and the caches that the reads of a node share.

    A file is opened without being hashed: the first read of a key after a start may need every file
    of a range. The reader checks what it touches (x28): the pages by `segment_pages`, each value by
    its checksum, each lookup by its neighbours, the footer by the row of the manifest. Damage
    elsewhere in the file is found by the scrub, or by the read that touches the damage. A file in
    doubt is hashed as a whole before it is opened again.

    The event loop waits for no file. Within `on_hand`, a file that is not open, and bytes that the
    kernel does not have in memory, raise NotPrepared instead. Then a thread calls `prepare`, and
    the loop calls `admit`.

    `elsewhere` opens a file that is not in the directory, on any thread, and returns None for a
    file that it does not know. `run_elsewhere` runs a call that may wait for such a file in
    threads of their own, so that reads of the directory wait for no other store; None: in any
    thread.

    `open_max` segments stay open. A segment that others push out stays open as long as a read holds
    it; at most as many again are open so.
    """

    def __init__(
        self, directory: Path, *, open_max: int = _OPEN_MAX,
        elsewhere: Callable[[str], SegmentBytes | None] | None = None,
        copies: SpanCopies | None = None,
    ) -> None:  # fmt: skip
        self._directory = directory
        self._elsewhere = elsewhere
        self.run_elsewhere: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None
        self._open_max = open_max
        self._open: OrderedDict[str, Segment] = OrderedDict()
        self._alive: WeakSet[Segment] = WeakSet()
        """Open segments, and segments that a read still holds."""
        self._verified: set[str] = set()
        self._suspended: set[str] = set()
        self._doubted: set[str] = set()
        """Files to be hashed before they are opened."""
        self._changed: dict[str, int] = {}
        """The number of the last doubt or replacement of each file, of all that ever were."""
        self._numbers = itertools.count(1)
        self._only_prepared = False
        self._files = {file.stem for file in directory.glob("*.seg")}
        """Content ids of the files in the directory: listing the directory takes long."""
        self._held: Counter[str] = Counter()
        self._recent = RecentPages()
        self._blocks = BlockCache(limits.block_cache_bytes_max)
        self.columns = ColumnCache(limits.column_cache_bytes_max)
        self.copies = SpanCopies() if copies is None else copies

    @property
    def block_bytes(self) -> int:
        """The bytes of the decoded blocks that are kept in memory."""
        return self._blocks.bytes

    def read_elsewhere(
        self, elsewhere: Callable[[str], SegmentBytes | None],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:  # fmt: skip
        """Read files that are not in the directory from now on with `elsewhere`, see the class."""
        self._elsewhere, self.run_elsewhere = elsewhere, run

    def is_listed(self, content_id: str) -> bool:
        """Whether the file should be in the directory; the disk is not asked."""
        return content_id in self._files

    def path(self, content_id: str) -> Path:
        """Return the path of the file, whether it exists or not."""
        return self._directory / f"{content_id}.seg"

    def has(self, content_id: str) -> bool:
        """Whether the file is here, and not about to be deleted."""
        return content_id in self._files and self.path(content_id).exists()

    @property
    def content_ids(self) -> frozenset[str]:
        """The content ids of all files here."""
        return frozenset(self._files)

    @property
    def open_ids(self) -> list[str]:
        """The content ids of the open files."""
        return list(self._open)

    def on_hand(self, turns: Turns) -> "_OnHand":
        """Return the context of one turn of a read.

        Within it, a file that is neither open nor prepared raises NotPrepared. TurnOver ends the
        turn when it has decoded its share.
        """
        return _OnHand(self, turns)

    def _bound(self, turns: Turns | None) -> None:
        """Bound what follows by these turns; None: by nothing."""
        self._only_prepared = turns is not None
        self._blocks.turns = self.columns.turns = turns

    def spend(self, cost: int) -> None:
        """Charge `cost` for coming work to the turn, in bytes decoded. Raises TurnOver."""
        if self._blocks.turns is not None:
            self._blocks.turns.check()
            self._blocks.turns.spend(cost)

    def moved_on(self) -> None:
        """Note that a piece of work is done for good: its decoded data need not be kept."""
        if self._blocks.turns is not None:
            self._blocks.turns.kept.clear()

    def prepare(self, missing: NotPrepared, turns: Turns | None = None) -> Prepared | None:
        """Open the missing file or read the missing place of the file, on any thread.

        Return the opened file for `admit`. It releases the interpreter while it reads. `turns`: of
        the read, which keep the bytes of a file elsewhere. Raises CorruptData, Overloaded, and the
        errors of `elsewhere`.
        """
        place = missing.place
        if place is None:
            before = self._changed.get(missing.content_id)
            is_here = self.path(missing.content_id).exists()
            return Prepared(self._opened(missing.content_id), before, is_here)
        try:
            file = self._bytes(place.content_id)
            try:
                data = file.read(place.offset, place.size)
            finally:
                file.close()
            if turns is not None and not isinstance(file, SegmentFile):
                turns.fetched[place] = data
        except CorruptData as error:
            raise _damaged(place.content_id, f"is damaged: {error.message}") from None
        except FileNotFoundError:
            raise _damaged(place.content_id, "is missing") from None
        except OSError as error:
            check_lack(error)
            raise _damaged(place.content_id, f"cannot be read: {error}") from None
        return None

    def admit(self, prepared: Prepared) -> None:
        """Take over an opened file, unless the file was doubted, replaced or removed meanwhile.

        Raises Overloaded.
        """
        segment, name = prepared.segment, prepared.segment.content_id
        changed = prepared.changed != self._changed.get(name)
        is_gone = prepared.is_here and name not in self._files
        if changed or is_gone or name in self._open:
            segment.close()
        else:
            self._keep(segment)

    def _opened(self, content_id: str) -> Segment:
        """Open a file; on any thread. Raises CorruptData, Overloaded."""
        if self.path(content_id).exists():
            if content_id in self._doubted:
                self.verify(content_id)
            return Segment(self.path(content_id), content_id, self._blocks)
        found = None if self._elsewhere is None else self._elsewhere(content_id)
        if found is None:
            raise _damaged(content_id, "is missing")
        return Segment(found, content_id, self._blocks)

    def _bytes(self, content_id: str) -> SegmentBytes:
        """Open the bytes of a file. Raises OSError, and the errors of `elsewhere`."""
        try:
            return SegmentFile(self.path(content_id), content_id)
        except FileNotFoundError:
            found = None if self._elsewhere is None else self._elsewhere(content_id)
            if found is None:
                raise
            return found

    def _keep(self, segment: Segment) -> None:
        if len(self._alive) >= 2 * self._open_max:
            raise Overloaded(
                f"a read needs over {2 * self._open_max} segment files at once; ask for "
                "fewer keys, or raise the limit of open files with `ulimit "
                "-n`", retry_after=1.0,
            )  # fmt: skip
        self._alive.add(segment)
        self._open[segment.content_id] = segment
        while len(self._open) > self._open_max:
            # Not closed here: a read over many segments may hold it. It closes when the last holder
            # lets go.
            self._open.popitem(last=False)

    def hold(self, content_id: str) -> None:
        """Keep the file, named or not, until `release`: a manifest is about to name it."""
        self._held[content_id] += 1

    def release(self, content_id: str) -> None:
        """End a `hold`."""
        self._held[content_id] -= 1
        if not self._held[content_id]:
            del self._held[content_id]

    def add(self, source: Path, content_id: str) -> None:
        """Take over a finished, synced file: rename it into place and sync the directory.

        The caller has just hashed the file. It may replace a damaged file, whose readers keep what
        they have open. Raises DiskFailure.
        """
        try:
            os.replace(source, self.path(content_id))
            fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise DiskFailure(
                f"moving {source} to {self.path(content_id)} failed: {error.strerror or error}"
            ) from error
        self._recent.written(self.path(content_id))
        self._files.add(content_id)
        self._changed[content_id] = next(self._numbers)
        self._open.pop(content_id, None)
        self._suspended.discard(content_id)
        self._doubted.discard(content_id)
        self._verified.add(content_id)

    def segment(self, content_id: str) -> Segment:
        """Return the open segment.

        Raises CorruptData when the file is missing, not a segment, or suspended, and Overloaded
        when there is no descriptor for it.
        """
        if content_id in self._suspended:
            raise _damaged(content_id, "is damaged, and the node fetches the segment again")
        segment = self._open.get(content_id)
        if segment is not None:
            self._open.move_to_end(content_id)
            return segment
        if self._only_prepared:
            raise NotPrepared(content_id)
        segment = self._opened(content_id)
        self._keep(segment)
        return segment

    def verify(self, content_id: str, *, from_disk: bool = False) -> None:
        """Hash the file: 0.7 s a GB.

        Raises CorruptData when the content does not fit the name, and Overloaded when this process
        has no descriptor for it. `from_disk`: read the disk, not pages that are still in memory
        from writing.
        """
        try:
            if from_disk:
                forget_pages(self.path(content_id), sync=True)
            found = hash_file(self.path(content_id))
        except FileNotFoundError:
            raise _damaged(content_id, "is missing") from None
        except OSError as error:
            check_lack(error)
            raise _damaged(content_id, f"cannot be read: {error}") from None
        if found != content_id:
            raise _damaged(content_id, f"is damaged: its SHA-256 is {found}")
        self._verified.add(content_id)
        self._doubted.discard(content_id)

    def is_verified(self, content_id: str) -> bool:
        """Whether this process has hashed or made the file, and has found no damage since."""
        return content_id in self._verified

    def doubt(self, content_ids: Iterable[str]) -> None:
        """Note that a read found one of these damaged: hash each again before it is opened."""
        for content_id in content_ids:
            self._verified.discard(content_id)
            self._doubted.add(content_id)
            self._changed[content_id] = next(self._numbers)
            self._open.pop(content_id, None)  # closes when the last read lets go

    def suspend(self, content_id: str) -> None:
        """Serve nothing of the file until `add` replaces it with a sound one, or `resume`."""
        self._suspended.add(content_id)
        self.doubt([content_id])

    def resume(self, content_id: str) -> None:
        """Serve the file again: it was suspended without need."""
        self._suspended.discard(content_id)

    def is_suspended(self, content_id: str) -> bool:
        """Whether the file is suspended now."""
        return content_id in self._suspended

    def discard(self, content_id: str) -> None:
        """Delete a file whose content does not fit its name, so that a sound one can replace it."""
        self.doubt([content_id])
        self._files.discard(content_id)
        self.path(content_id).unlink(missing_ok=True)

    def forget_except(self, named: Iterable[str]) -> list[Removed]:
        """Forget the files that no manifest names and nobody holds. Return them for `remove`."""
        gone = []
        for content_id in sorted(self._files.difference(named, self._held)):
            gone.append(Removed(content_id, self._open.get(content_id)))
            self.doubt([content_id])
            self._files.discard(content_id)
            self._suspended.discard(content_id)
            self._doubted.discard(content_id)
            del self._changed[content_id]
        return gone

    def give_up(self, content_ids: Iterable[str]) -> list[Removed]:
        """Forget files that stay named and are elsewhere from now on. Return them for `remove`.

        Files that somebody holds stay.
        """
        gone = []
        for content_id in self._files.intersection(content_ids).difference(self._held):
            gone.append(Removed(content_id, self._open.get(content_id)))
            self.doubt([content_id])  # a thread that opens the file now is late
            self._files.discard(content_id)
            self._doubted.discard(content_id)
        return gone

    def bytes_of(self, content_id: str, offset: int, count: int) -> bytes:
        """Return bytes of a file, fewer at its end, wherever the file is. Waits for the disk.

        Raises OSError, and the errors of `elsewhere`.
        """
        file = self._bytes(content_id)
        try:
            return bytes(file.read(offset, max(0, min(count, file.size - offset))))
        finally:
            file.close()

    def remove(self, removed: Removed) -> None:
        """Delete a forgotten file, 10 ms for 60 MiB.

        Do nothing if a file of that name was added since. Call this on the thread that calls `add`,
        in the order of calls.
        """
        if removed.segment is not None:
            removed.segment.close()
        if removed.content_id not in self._files:
            self.path(removed.content_id).unlink(missing_ok=True)

    def close(self) -> None:
        """Close all segments."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()


def _damaged(content_id: str, what: str) -> CorruptData:
    return CorruptData(f"segment {content_id} {what}", segment=content_id)
