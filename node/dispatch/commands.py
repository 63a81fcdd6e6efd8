"""The commands that a dispatcher proposes, and the requests that wait for these commands."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...statemachine.groups.claim import Claim


class Ack(NamedTuple):
    """A key that a consumer has done up to `through`."""

    key: bytes
    token: int
    through: int


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
    waiting: "Settling | None"


class Proposal(NamedTuple):
    """A command to propose. Tell the dispatcher its answer with `Dispatcher.applied`."""

    kind: int
    payload: list[Any]
    about: list[Ack] | list[Failure] | Claim
    appending: "Appending | None" = None
    """The request of a GROUP_APPEND, which is about nothing else: tell its answer with
    `Dispatcher.append_applied`."""


class Refused(NamedTuple):
    """A key that was not settled as the consumer asked."""

    key: bytes
    reason: str
    position: int


class Settling:
    """A request to settle keys. `on_done` is called when every key is settled or refused."""

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.refused: list[Refused] = []
        self._on_done = on_done
        self._left = 1

    def awaits(self) -> None:
        """Wait for one more key."""
        self._left += 1

    def settled(self, refused: Refused | None = None) -> None:
        """Note that a key no longer has to be waited for, or that all keys were looked at."""
        if refused is not None:
            self.refused.append(refused)
        self._left -= 1
        if not self._left:
            self._on_done()


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
