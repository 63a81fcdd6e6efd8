"""The commands that a dispatcher proposes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...statemachine.groups.claim import Claim
from .leases import Lease
from .settling import Refused, Settling


class AckFrom(NamedTuple):
    """A key whose entries from seq `first` on a consumer has done up to `through`."""

    key: bytes
    token: int
    first: int
    through: int


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
    appending: "Appending | None" = None
    """The request of a GROUP_APPEND: tell its answer with `Dispatcher.append_applied`."""

    @property
    def acked_to(self) -> Sequence[int]:
        """The positions to which GROUP_ACK moves the keys of `leases`."""
        positions: Sequence[int] = self.payload[4] if self.leases else ()
        return positions


class Appending:
    """A request to append a batch with acknowledgements. `on_done` is called when the request is
    refused, or its command is applied."""

    def __init__(
        self, acks: Sequence[AckFrom], data: bytes, records: int, on_done: Callable[[], None]
    ) -> None:
        self.acks = acks
        self.data = data
        """The packed batch."""
        self.records = records
        """How many records the batch has."""
        self.refused: list[Refused] = []
        """The keys that do not fit. Nothing is applied then."""
        self.is_early = False
        """Whether another command about a key is under way: the request shall come again."""
        self.reply: Mapping[str, Any] | None = None
        """The reply of apply; None: the command was not proposed."""
        self._on_done = on_done

    def done(self, reply: Mapping[str, Any] | None = None, *, is_early: bool = False) -> None:
        """Note the outcome."""
        self.reply = reply
        self.is_early = is_early
        self._on_done()
