"""The leases of one log that are renewed: which are due, and which end. No I/O; no pyspark."""

from dataclasses import dataclass
from typing import Final

from ..vector import Vector

kept_max: Final = 32
"""The newest snapshots of a log that one driver keeps: half of the leases of a range, so that
others can read snapshots too."""
age_s_max: Final = 86_400.0
"""A lease is renewed until so long after the last query that was planned with it."""
_RENEWED_AT: Final = 1 / 3
_TRIED_AGAIN_AT: Final = 1 / 15
"""The parts of a lease after which it is renewed, and after which a failure is tried again."""


@dataclass(slots=True)
class Renewal:
    """A lease that is renewed for `lease_s` seconds each time. Times are of one monotonic clock."""

    vector: Vector
    lease_s: float
    is_own: bool
    """Whether the lease was taken for this driver alone, and is released at the end."""
    mark: str | None
    """What the log had applied when the lease was taken, unless that is not known."""
    planned_s: float
    due_s: float
    ends_s: float


class Renewals:
    """The leases of one log, in the order of the last query that was planned with each."""

    def __init__(self) -> None:
        self._held: dict[str, Renewal] = {}

    def keep(
        self, vector: Vector, lease_s: float, *, is_own: bool, mark: str | None, now_s: float
    ) -> list[Renewal]:
        """Renew this lease, which has been taken or renewed now. Return the oldest leases, beyond
        `kept_max`, which are renewed no more."""
        self._held.pop(vector.lease, None)
        self._held[vector.lease] = Renewal(
            vector, lease_s, is_own, mark, now_s, now_s + lease_s * _RENEWED_AT, now_s + lease_s
        )
        return [self._oldest() for _ in range(len(self._held) - kept_max)]

    def shared(self, mark: str, now_s: float) -> Vector | None:
        """Return the snapshot of a log that had applied the same, for another query; the snapshot
        is the newest then. None when there is none."""
        for held in self._held.values():
            if held.mark == mark:
                del self._held[held.vector.lease]
                self._held[held.vector.lease] = held
                held.planned_s = now_s
                return held.vector
        return None

    def give_way(self) -> Renewal | None:
        """Renew the oldest own lease no more, and return the lease; None when there is none."""
        for held in self._held.values():
            if held.is_own:
                return self._held.pop(held.vector.lease)
        return None

    def due(self, now_s: float) -> list[Renewal]:
        """Return the leases that are renewed now, in no order."""
        return [held for held in self._held.values() if held.due_s <= now_s]

    def over(self, now_s: float) -> list[Renewal]:
        """Remove and return the leases whose last query was planned too long ago."""
        found = [held for held in self._held.values() if now_s >= held.planned_s + age_s_max]
        for held in found:
            self.ended(held)
        return found

    def renewed(self, lease: Renewal, now_s: float) -> None:
        """Take down that the lease was renewed by a request that began now."""
        lease.due_s, lease.ends_s = now_s + lease.lease_s * _RENEWED_AT, now_s + lease.lease_s

    def failed(self, lease: Renewal, now_s: float) -> None:
        """Take down that a renewal failed. It is tried again until the lease has ended."""
        lease.due_s = now_s + lease.lease_s * _TRIED_AGAIN_AT
        if now_s >= lease.ends_s:
            self.ended(lease)

    def ended(self, lease: Renewal) -> None:
        """Renew no more a lease that does not exist any more."""
        self._held.pop(lease.vector.lease, None)

    def all(self) -> list[Renewal]:
        """Remove and return all leases."""
        found = list(self._held.values())
        self._held.clear()
        return found

    def wait_s(self, now_s: float) -> float | None:
        """Return how long nothing is due; None: for ever."""
        first = min((held.due_s for held in self._held.values()), default=None)
        return None if first is None else max(0.0, first - now_s)

    def _oldest(self) -> Renewal:
        return self._held.pop(next(iter(self._held)))
