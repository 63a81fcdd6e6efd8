"""The commands that a dispatcher proposes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...statemachine.groups.claim import Claim
from .leases import Lease
from .settling import Settling


class Failure(NamedTuple):
    """A failed delivery of the next entry of a key."""

    key: bytes
    expected: int
    deliveries: int
    parked: int
    """0, or the reason: `forms.PARK`, `forms.REJECT`."""
    error: str
    ready_ms: int
    """When a consumer gets the key again."""
    waiting: Settling | None


class Proposal(NamedTuple):
    """A command to propose. Tell the dispatcher its answer with `Dispatcher.applied`."""

    kind: int
    payload: list[Any]
    leases: Sequence[Lease] = ()
    """The leases of the keys that GROUP_ACK names, in the same order."""
    failures: Sequence[Failure] = ()
    """The failures that GROUP_NOTE names, in the same order."""
    claim: Claim | None = None
    """The claim of GROUP_FLOOR."""

    @property
    def acked_to(self) -> Sequence[int]:
        """The positions to which GROUP_ACK moves the keys of `leases`."""
        positions: Sequence[int] = self.payload[4] if self.leases else ()
        return positions
