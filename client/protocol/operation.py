"""What the table says of one operation."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .errors import InvalidArgument, RemoteProtocolError
from .record import Record

Body = dict[str, Any]
Weight = Callable[[Body], int]


class Sender(Enum):
    """Who may send an operation."""

    CLIENT = "client"
    """Every connection: clients, and nodes too."""
    OPERATOR = "operator"
    """A client that administers the cluster."""
    PEER = "peer"
    """A registered node of the cluster."""
    STRANGER = "stranger"
    """A node that belongs to no cluster yet."""


class Permission(Enum):
    """What a principal needs for an operation."""

    NONE = "none"
    DESCRIBE = "describe"
    READ = "read"
    APPEND = "append"
    TRIM = "trim"
    GROUP = "group"
    """Held by members of consumer groups."""
    ADMIN = "admin"
    PEER = "peer"
    """Held by nodes alone."""


class Subject(Enum):
    """What of the cluster an operation is about: where its permission has to hold."""

    CLUSTER = "cluster"
    """All logs, those to come included."""
    ANY_LOG = "any_log"
    """At least one log."""
    VISIBLE = "visible"
    """The log in `log`, with any permission; without `log` the answer shows such logs alone, and
    ranges of such logs."""
    LOG = "log"
    """The log in `log` or `name`."""
    RANGE = "range"
    """The log of the range in `range`, whatever keys of the log the principal may use."""
    KEYS = "keys"
    """The log of the range in `range`, and the keys that the body names: `key`, `keys`, or all
    keys of the range with `prefix` and from `start_key` on, below `end_key`."""
    BATCHES = "batches"
    """The log of the range in `range`, and the keys of the records in `batches`."""


class Retry(Enum):
    """What a repetition does."""

    SAFE = "safe"
    """The operation changes nothing that counts: repeat it at will."""
    IDEMPOTENT = "idempotent"
    """Doing it twice is doing it once. An error says whether it was done."""
    ONCE = "once"
    """A second execution answers otherwise: an unknown outcome is told and not repeated."""


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """One row of the table. Two operations are the same only if they are one object."""

    name: str
    number: int
    about: str
    """One sentence in the indicative."""
    sender: Sender
    permission: Permission
    retry: Retry
    request: Record
    answer: Record | None
    """None: a one-way message, which nobody answers."""
    weight: int | Weight
    """The bytes that the answer may have at most; a function of the checked request's body."""
    subject: Subject = Subject.CLUSTER
    streams: bool = False
    """Answered by pushes, each of the answer's fields, and by an end."""

    def __repr__(self) -> str:
        return f"<Operation {self.number} {self.name}>"

    def __str__(self) -> str:
        return self.name

    @property
    def writes(self) -> bool:
        """Whether an error's outcome matters to the caller."""
        return self.retry is not Retry.SAFE

    def answer_bytes(self, body: Body) -> int:
        """What the answer to this checked request may have at most, in bytes."""
        return self.weight if isinstance(self.weight, int) else self.weight(body)

    def check_answer(self, body: Body) -> Body:
        """Return the fields of an answer. Raises RemoteProtocolError."""
        if self.answer is None:
            return body
        try:
            return self.answer.check(body)
        except InvalidArgument as error:
            raise RemoteProtocolError(
                f"the answer to {self.name} breaks the protocol: {error.message}"
            ) from None
