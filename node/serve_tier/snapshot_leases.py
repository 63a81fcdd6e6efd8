"""Leases of snapshots: each keeps the manifests from which its snapshot is read.

The leases are those of this process alone. See the contract of the folder, number 4. All calls on
the loop. A lease costs the memory of the bases of its manifests, and no bytes of the cache.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...client.protocol import limits
from ...client.protocol.errors import (
    Conflict,
    GenerationMismatch,
    LimitExceeded,
    LognodeError,
    NotFound,
    Unavailable,
)
from ...statemachine.leases import Lease
from ...statemachine.removal import Removal
from ...statemachine.spans import Span, common, has, rows_in
from .following import Served, ServedLog
from .served_range import ServedRange

LEASES_MAX: Final = 256
"""The most leases of a process."""
LEASES_OF_HOST_MAX: Final = LEASES_MAX // 2
"""The most of one host: clients need no token, and one host shall not take all leases."""
_PARTS_MAX: Final = limits.ranges_per_log_max
"""The most parts of a lease."""
_FLOORS_MAX: Final = 5_000
"""A removal table with more floors is not compared, which would take long: the lease then stays."""

Body = dict[str, Any]


class Part(NamedTuple):
    """Keys of a snapshot, the range from which they are read, and the last seq of the snapshot."""

    span: Span
    through: int
    range: ServedRange


@dataclass(slots=True)
class _Held:
    """A lease. `ends_at`: by the clock of this process. The parts are disjoint."""

    host: str
    ends_at: float
    parts: list[Part] = field(default_factory=list)


class SnapshotLeases:
    """All leases of the process. `clock`: monotonic; `wall_ms`: Unix time."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._wall_ms = wall_ms
        self._leases: dict[str, _Held] = {}

    @property
    def count(self) -> int:
        """The number of leases."""
        return len(self._leases)

    def ranges(self) -> Iterator[ServedRange]:
        """Yield the ranges that leases keep."""
        for lease in self._leases.values():
            yield from (part.range for part in lease.parts)

    def take(self, range_: ServedRange, body: Body, host: str) -> Body:
        """Take or renew a lease of a client's host on the range's part of a span; see
        `serving.lease.take`.

        Raises GenerationMismatch, LimitExceeded, Conflict, NotFound as a node does; Unavailable for
        a seq that this process does not have yet.
        """
        asked = body["start_key"], body["end_key"]
        span = common(asked, range_.span)
        if span is None or span[0] != asked[0]:
            raise GenerationMismatch(
                f"the span is outside of range {range_.gid.range_id}",
                ranges=[range_.descriptor.to_wire()],
            )
        self.end_expired()
        name, through = body["lease"], body["through"]
        lease = self._leases.get(name)
        held = [] if lease is None else _overlapping(lease.parts, span)
        if any(part.through != through for part in held):
            raise Conflict(f"lease {name} holds other entries")
        ends_at = self._clock() + body["lease_ms"] / 1_000
        if lease is not None and held:
            if not _cover(held, span):
                raise Conflict(f"lease {name} holds a part of these keys only")
            lease.ends_at = max(lease.ends_at, ends_at)
        elif body["renew"]:
            raise NotFound(f"lease {name} has ended, or never existed")
        else:
            self._begin(name, host, Part(span, through, range_), ends_at)
        return {"end_key": span[1], "expires_ms": self._wall_ms() + body["lease_ms"]}

    def _begin(self, name: str, host: str, part: Part, ends_at: float) -> None:
        if part.range.state.next_seq <= part.through:
            raise Unavailable(
                f"the tier has seqs below {part.range.state.next_seq} of range "
                f"{part.range.gid.range_id}; the snapshot goes on to seq {part.through}. Take the "
                "snapshot again",
                reason="behind",
            )
        lease = self._leases.get(name)
        if lease is None:
            self._check_room(host)
        elif len(lease.parts) >= _PARTS_MAX:
            raise LimitExceeded(
                f"lease {name} has {_PARTS_MAX} parts, the limit; take a lease on fewer spans",
                limit="lease_parts_max", value=_PARTS_MAX + 1, allowed=_PARTS_MAX,
            )  # fmt: skip
        _enter(name, part)
        if lease is None:
            lease = self._leases[name] = _Held(host, ends_at)
        lease.ends_at = max(lease.ends_at, ends_at)
        lease.parts.append(part)

    def _check_room(self, host: str) -> None:
        own = sum(lease.host == host for lease in self._leases.values())
        for who, count, most in (
            ("this process", len(self._leases), LEASES_MAX),
            (f"host {host}", own, LEASES_OF_HOST_MAX),
        ):
            if count >= most:
                raise LimitExceeded(
                    f"{who} would have {count + 1} leases; at most {most} are allowed. Close "
                    "snapshots that are not in use, or wait until their leases end",
                    limit="leases_max", value=count + 1, allowed=most,
                )  # fmt: skip

    def release(self, name: str) -> None:
        """End a lease on all keys. An unknown lease has already ended."""
        lease = self._leases.pop(name, None)
        for part in () if lease is None else lease.parts:
            part.range.state.removal.release_lease(name)

    def part(self, name: str, key: bytes) -> Part:
        """Return the part of the lease that has the key. Raises NotFound."""
        self.end_expired()
        lease = self._leases.get(name)
        for part in () if lease is None else lease.parts:
            if has(part.span, key):
                return part
        raise NotFound(
            f"no lease {name!r} holds these keys: the lease has ended, or never existed here"
        )

    def end_expired(self) -> None:
        """End the leases whose time is over."""
        now = self._clock()
        for name in [name for name, lease in self._leases.items() if lease.ends_at <= now]:
            self.release(name)

    def move_on(self, served: Served) -> None:
        """Read the snapshots from these manifests, as far as they surely show the same entries."""
        self.end_expired()
        logs = {each.facts.log_id: each for each in served.logs.values()}
        for name, lease in self._leases.items():
            lease.parts = [new for old in lease.parts for new in _moved(name, old, logs)]


def _moved(name: str, old: Part, logs: Mapping[int, ServedLog]) -> list[Part]:
    """Return the parts of newer ranges that show what the old part shows, or else the old part."""
    log = logs.get(old.range.descriptor.log_id)
    found = [] if log is None else log.of_span(old.span)
    if not found or found == [old.range]:
        return [old]
    new: list[Part] = []
    for each in found:
        span = common(old.span, each.span)
        if span is None or each.state.next_seq <= old.through or not _same(old.range, each, span):
            return [old]
        new.append(Part(span, old.through, each))
    if not _cover(new, old.span):
        return [old]
    try:
        for part in new:
            _enter(name, part)
    except LognodeError:
        return [old]
    return new


def _same(old: ServedRange, new: ServedRange, span: Span) -> bool:
    """Whether nothing of the span was removed between the two manifests.

    Marks and floors never fall, and a merge drops only what the tables of its base hide. So with
    equal tables both manifests show the same entries up to any seq that both have.
    """
    if max(len(each.state.removal.floors) for each in (old, new)) > _FLOORS_MAX:
        return False
    one, other = _removal(old, span), _removal(new, span)
    return one == other


def _removal(range_: ServedRange, span: Span) -> tuple[Any, Any]:
    removal: Removal = range_.state.removal
    return removal.marks.clipped(*span).to_wire(), rows_in(removal.floors, span)


def _enter(name: str, part: Part) -> None:
    """Let the state of the range know the lease: reads `as_of` the lease end at its seq.

    Log time stands still in a state that never changes, so the lease does not end there. Raises
    Overloaded when the range has too many leases.
    """
    state = part.range.state
    log_ms = state.last_timestamp_ms
    lease = Lease(
        name, *part.span, part.through, log_ms + limits.lease_ms_max,
        state.removal.marks.clipped(*part.span),
    )  # fmt: skip
    refused = state.removal.take_lease(lease, log_ms)
    if refused is not None:
        raise refused


def _overlapping(parts: list[Part], span: Span) -> list[Part]:
    return [part for part in parts if common(part.span, span) is not None]


def _cover(parts: list[Part], span: Span) -> bool:
    """Whether the parts have all keys of the span."""
    at: bytes | None = span[0]
    for part in sorted(parts, key=lambda part: part.span[0]):
        if at is None or part.span[0] > at:
            break
        at = part.span[1]
    return at is None or (span[1] is not None and at >= span[1])
