"""The removal state of a range: floors, marks and leases, changed by commands alone.

Everything in here is part of the tables of a base, so of freezes, transfers and lineage, and is
the same on every replica at the same index.

Memory: a floor is a row in memory for each key that was trimmed or deleted, until a span trim has
passed it. Each command looks at some rows, those longest not looked at first, and drops what has
been passed; the order of the rows is part of the state. A log without retention keeps its floors:
they are all that hides what a replica has not merged yet. `floors_max` bounds them: at it, further
keys are refused.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from ..client.protocol import limits
from ..client.protocol.errors import Conflict, InvalidArgument, LognodeError, NotFound, Overloaded
from .floors import Compaction, Marks, View
from .leases import Lease
from .spans import common, rows_in

_SWEPT_BY_KEYS: Final = 4 * limits.removal_keys_max
_SWEPT_BY_SPANS: Final = 4_096
"""Rows that one command looks at, about a millisecond."""


class Removal:
    """One range's state of removal. Methods that return an error have changed nothing."""

    def __init__(self) -> None:
        self.floors: dict[bytes, int] = {}
        self.leases: dict[tuple[str, bytes], Lease] = {}
        """By id and start: parents of a merge may each have had one of the same id."""
        self.view = View(Marks(), self.floors)
        """What a reader without a lease may see."""
        self.changes = 0
        """Commands that may have hidden something, since this process has the state."""

    @property
    def marks(self) -> Marks:
        """The marks of spans, as they are now."""
        return self.view.marks

    def leased(self, lease_id: str, log_ms: int, start: bytes, end: bytes | None) -> View:
        """The view of a live lease, which must have all keys in [start, end). Raises NotFound."""
        for lease in self.leases.values():
            view = lease.view(self.floors)
            if lease.lease_id == lease_id and lease.lives(log_ms) and view.covers(start, end):
                return view
        raise NotFound(f"no lease {lease_id!r} holds these keys: it has ended, or never was")

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
        if fresh and self.rows + fresh > limits.floors_max:
            return Overloaded(
                f"the range keeps the floors of {limits.floors_max} trimmed or deleted keys; "
                "retention frees them",
                retry_after=60.0,
            )
        self.changes += bool(rising)
        for key, before in rising.items():
            self._remember(key)
            self.floors[key] = before
        self._sweep(_SWEPT_BY_KEYS)
        return None

    def take_lease(self, lease: Lease, log_ms: int) -> LognodeError | None:
        """Begin a lease, or renew it. The error: it is over, another one, or one too many."""
        if not lease.lives(log_ms):
            return InvalidArgument(f"lease {lease.lease_id} would be over", what="expires_ms")
        lease.expires_ms = min(lease.expires_ms, log_ms + limits.lease_ms_max)
        held = self._held(lease)
        if held is None:
            return Conflict(f"lease {lease.lease_id} holds other entries")
        if held:
            return self.renew_lease(lease, log_ms)
        if len(self.leases) >= limits.leases_max:
            return Overloaded(f"the range has {limits.leases_max} leases", retry_after=60.0)
        self.leases[lease.lease_id, lease.start] = lease
        return None

    def renew_lease(self, lease: Lease, log_ms: int) -> LognodeError | None:
        """Have a lease end later, if it is to. The error: it has ended, or never was."""
        held = self._held(lease)
        if not held:
            return NotFound(f"lease {lease.lease_id} has ended, or never was")
        expires_ms = min(lease.expires_ms, log_ms + limits.lease_ms_max)
        for row in held:
            row.expires_ms = max(row.expires_ms, expires_ms)
        return None

    def _held(self, lease: Lease) -> list[Lease] | None:
        """The rows of its id that hold all that it asks for, none where nothing is held of its
        keys; None: they hold other entries, or not all."""
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
        """End a lease, on all of the range's keys; what is not there has ended."""
        for name in [name for name in self.leases if name[0] == lease_id]:
            del self.leases[name]

    def end_leases(self, log_ms: int) -> None:
        """Forget the leases that are over at this log time."""
        for name in [name for name, lease in self.leases.items() if not lease.lives(log_ms)]:
            del self.leases[name]

    @property
    def rows(self) -> int:
        """Rows that floors and leases have in memory."""
        return len(self.floors) + sum(len(lease.floors) for lease in self.leases.values())

    def _change(self, marks: Marks) -> LognodeError | None:
        if marks.spans > max(limits.lineage_spans_max, self.marks.spans):  # a merge may bring more
            return Overloaded("the range has too many lineage spans", retry_after=60.0)
        self.view.marks = marks
        self.changes += 1
        self._sweep(_SWEPT_BY_SPANS)
        return None

    def _remember(self, key: bytes) -> None:
        """The key's floor is about to change: leases keep what it was."""
        for lease in self.leases.values():
            if lease.covers(key):
                lease.floors.setdefault(key, self.floors.get(key, 0))

    def _sweep(self, count: int) -> None:
        """Look at the first rows: those that a span trim has passed go, others go to the end."""
        trims = self.marks.trims
        for key in list(islice(self.floors, count)):
            if self.floors[key] <= trims.at(key):
                self._remember(key)
                del self.floors[key]
            else:
                self.floors[key] = self.floors.pop(key)

    # In tables.

    def to_wire(self, log_ms: int) -> dict[str, Any]:
        """As tables at this log time have it: a copy, of this very moment (x16)."""
        leases = [lease.to_wire() for lease in self.leases.values() if lease.lives(log_ms)]
        return {"floors": dict(self.floors), "marks": self.marks.to_wire(), "leases": leases}

    @classmethod
    def from_wire(
        cls, body: Mapping[str, Any] | None, start: bytes, end: bytes | None
    ) -> "Removal":
        """Undo `to_wire`, of the keys in [start, end); None: nothing was removed."""
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
