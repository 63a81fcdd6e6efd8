"""The removal state of a range: floors, marks and leases, changed by commands alone.

The whole state is part of the tables of a base, so of freezes, transfers and lineage, and is the
same on every replica at the same index.

Memory: each trimmed or deleted key has a floor, a row in memory, until a span trim has passed it.
Each command looks at some rows, beginning with the rows not looked at for longest, and drops those
that were passed; the order of the rows is part of the state. A log without retention keeps its
floors: only they hide entries that a replica has not merged yet. `floors_max` bounds them: at the
bound, further keys are refused.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from ..client.protocol import limits
from ..client.protocol.errors import Conflict, InvalidArgument, LognodeError, NotFound, Overloaded
from ..client.protocol.levels import LEVEL_MIN
from . import rules
from .floors import Compaction, Marks, View
from .leases import Lease
from .spans import common, rows_in

_SWEPT_BY_KEYS: Final = 4 * limits.removal_keys_max
_SWEPT_BY_SPANS: Final = 4_096
"""The rows that one command looks at, about a millisecond."""


class Removal:
    """The removal state of one range. A method that returns an error has changed nothing."""

    def __init__(self) -> None:
        self.rules = rules.of_level(LEVEL_MIN)
        """The limits of the range's feature level."""
        self.floors: dict[bytes, int] = {}
        self.leases: dict[tuple[str, bytes], Lease] = {}
        """Leases by id and start: each parent of a merge may have had one of the same id."""
        self.view = View(Marks(), self.floors)
        """The view of a reader without a lease."""
        self.changes = 0
        """The number of commands that may have hidden entries, since this process has the state."""

    @property
    def marks(self) -> Marks:
        """The present marks of spans."""
        return self.view.marks

    def leased(self, lease_id: str, log_ms: int, start: bytes, end: bytes | None) -> View:
        """Return the view of a live lease, which must have all keys in [start, end).

        Raises NotFound.
        """
        for lease in self.leases.values():
            view = lease.view(self.floors)
            if lease.lease_id == lease_id and lease.lives(log_ms) and view.covers(start, end):
                return view
        raise NotFound(
            f"no lease {lease_id!r} holds these keys: the lease has ended, or never existed"
        )

    # Commands.

    def trim_spans(self, trims: Iterable[tuple[bytes, bytes | None, int]]) -> LognodeError | None:
        """Raise the floors of lineage spans. The error: too many spans."""
        raised = self.marks.trims
        for start, end, before in trims:
            raised = raised.raised(start, end, before, max)
        return self._change(Marks(raised, self.marks.compactions, self.marks.snapshots))

    def compact(
        self, start: bytes, end: bytes | None, compaction: Compaction
    ) -> LognodeError | None:
        """Raise the compaction mark of a lineage span. The error: too many spans."""
        raised = self.marks.compactions.raised(start, end, compaction, Compaction.joined)
        return self._change(Marks(self.marks.trims, raised, self.marks.snapshots))

    def pass_snapshots(self, start: bytes, end: bytes | None, before: int) -> LognodeError | None:
        """Raise the mark below which snapshots replace history. The error: too many spans."""
        raised = self.marks.snapshots.raised(start, end, before, max)
        return self._change(Marks(self.marks.trims, self.marks.compactions, raised))

    def raise_floors(self, floors: Mapping[bytes, int]) -> LognodeError | None:
        """Raise the floors of keys. The error: too many rows."""
        trims = self.marks.trims
        rising = {
            key: before
            for key, before in floors.items()
            if before > max(self.floors.get(key, 0), trims.at(key))
        }
        fresh = sum(key not in self.floors for key in rising) + sum(
            lease.covers(key) and key not in lease.floors
            for lease in self.leases.values()
            for key in rising
        )
        if fresh and self.rows + fresh > self.rules.floors_max:
            return Overloaded(
                f"the range has floors of {self.rules.floors_max} trimmed or deleted keys, the "
                "limit; retention frees floors",
                retry_after=60.0,
            )
        self.changes += bool(rising)
        for key, before in rising.items():
            self._remember(key)
            self.floors[key] = before
        self._sweep(_SWEPT_BY_KEYS)
        return None

    def take_lease(self, lease: Lease, log_ms: int) -> LognodeError | None:
        """Begin or renew a lease.

        The error: it is over, holds other entries, or there are too many.
        """
        if not lease.lives(log_ms):
            return InvalidArgument(f"lease {lease.lease_id} would have ended", what="expires_ms")
        lease.expires_ms = min(lease.expires_ms, log_ms + self.rules.lease_ms_max)
        held = self._held(lease)
        if held is None:
            return Conflict(f"lease {lease.lease_id} holds other entries")
        if held:
            return self.renew_lease(lease, log_ms)
        if len(self.leases) >= self.rules.leases_max:
            return Overloaded(
                f"the range has {self.rules.leases_max} leases, the limit; close snapshots that "
                "are not in use",
                retry_after=60.0,
            )
        self.leases[lease.lease_id, lease.start] = lease
        return None

    def renew_lease(self, lease: Lease, log_ms: int) -> LognodeError | None:
        """Move the end of a lease to a later time, if later.

        The error: it has ended, or never was.
        """
        held = self._held(lease)
        if not held:
            return NotFound(f"lease {lease.lease_id} has ended, or never existed")
        expires_ms = min(lease.expires_ms, log_ms + self.rules.lease_ms_max)
        for row in held:
            row.expires_ms = max(row.expires_ms, expires_ms)
        return None

    def _held(self, lease: Lease) -> list[Lease] | None:
        """Return the rows of the lease's id that hold all of its keys; empty if no row has any.

        None: the rows hold other entries, or not all keys.
        """
        held = [
            row for row in self.leases.values()
            if row.lease_id == lease.lease_id and common(row.span, lease.span) is not None
        ]  # fmt: skip
        if any(row.through_seq != lease.through_seq for row in held):
            return None
        held.sort(key=lambda row: row.start)
        at: bytes | None = lease.start
        for row in held:
            if at is None or row.start > at:
                return None
            at = row.end
        reached = at is None or (lease.end is not None and at >= lease.end)
        return held if reached or not held else None

    def release_lease(self, lease_id: str) -> None:
        """End a lease on all of the range's keys. An unknown lease has already ended."""
        for name in [name for name in self.leases if name[0] == lease_id]:
            del self.leases[name]

    def end_leases(self, log_ms: int) -> None:
        """Forget the leases that are over at this log time."""
        for name in [name for name, lease in self.leases.items() if not lease.lives(log_ms)]:
            del self.leases[name]

    @property
    def rows(self) -> int:
        """The rows of floors and leases in memory."""
        return len(self.floors) + sum(len(lease.floors) for lease in self.leases.values())

    def _change(self, marks: Marks) -> LognodeError | None:
        if marks.spans > max(
            self.rules.lineage_spans_max, self.marks.spans
        ):  # a merge may bring more
            return Overloaded("the range has too many lineage spans", retry_after=60.0)
        self.view.marks = marks
        self.changes += 1
        self._sweep(_SWEPT_BY_SPANS)
        return None

    def _remember(self, key: bytes) -> None:
        """Keep the key's present floor in the leases: it is about to change."""
        for lease in self.leases.values():
            if lease.covers(key):
                lease.floors.setdefault(key, self.floors.get(key, 0))

    def _sweep(self, count: int) -> None:
        """Drop rows that a span trim has passed, among the first `count`; move the others back."""
        trims = self.marks.trims
        for key in list(islice(self.floors, count)):
            if self.floors[key] <= trims.at(key):
                self._remember(key)
                del self.floors[key]
            else:
                self.floors[key] = self.floors.pop(key)

    # In tables.

    def to_wire(self, log_ms: int) -> dict[str, Any]:
        """Return a copy of the present state as tables at this log time store it (x16)."""
        leases = [lease.to_wire() for lease in self.leases.values() if lease.lives(log_ms)]
        return {"floors": dict(self.floors), "marks": self.marks.to_wire(), "leases": leases}

    @classmethod
    def from_wire(
        cls, body: Mapping[str, Any] | None, start: bytes, end: bytes | None
    ) -> "Removal":
        """Return the state of the keys in [start, end) in a table; None: nothing was removed."""
        removal = cls()
        view = removal.view = View(Marks(), removal.floors, start=start, end=end)
        if body is not None:
            view.marks = Marks.from_wire(body["marks"]).clipped(start, end)
            removal.floors.update(rows_in(body["floors"], (start, end)))
            for lease in map(Lease.from_wire, body["leases"]):
                own = lease.clipped(start, end)
                if own is not None:
                    removal.leases[own.lease_id, own.start] = own
        return removal
