"""An operation, as one row of the table describes it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .errors import InvalidArgument, RemoteProtocolError
from .record import Record

Body = dict[str, Any]
Weight = Callable[[Body], int]


class Sender(Enum):
    """The senders that may send an operation."""

    CLIENT = "client"
    """Every connection: clients, and nodes too."""
    OPERATOR = "operator"
    """A client that administers the cluster."""
    PEER = "peer"
    """A registered node of the cluster."""
    STRANGER = "stranger"
    """A node that belongs to no cluster yet."""


class Permission(Enum):
    """The permission that a principal needs for an operation."""

    NONE = "none"
    DESCRIBE = "describe"
    READ = "read"
    APPEND = "append"
    TRIM = "trim"
    GROUP = "group"
    """Held by members of consumer groups."""
    ADMIN = "admin"
    PEER = "peer"
    """Held only by nodes."""


class Subject(Enum):
    """The part of the cluster on which an operation's permission must hold."""

    CLUSTER = "cluster"
    """All logs, including future ones."""
    ANY_LOG = "any_log"
    """At least one log."""
    VISIBLE = "visible"
    """The log in `log`, with any permission; without `log`, the answer shows only such logs and
    their ranges."""
    LOG = "log"
    """The log in `log` or `name`."""
    RANGE = "range"
    """The log of the range in `range`, whichever keys of the log the principal may use."""
    KEYS = "keys"
    """The log of the range in `range`, and the keys that the body names: `key`, `keys`, or all
    keys of the range with `prefix` and from `start_key` on, below `end_key`."""
    BATCHES = "batches"
    """The log of the range in `range`, and the keys of the records in `batches`."""


class Retry(Enum):
    """The effect of a repetition."""

    SAFE = "safe"
    """The operation changes nothing that matters: repeat it freely."""
    IDEMPOTENT = "idempotent"
    """Two executions have the effect of one. An error says whether the operation was done."""
    ONCE = "once"
    """A second execution gives another answer: an unknown outcome is reported, not retried."""


@dataclass(repr=False, eq=False, slots=True)
class Operation:
    """One row of the table. Operations are compared by identity."""

    name: str
    number: int
    about: str
    """One sentence in the indicative."""
    sender: Sender
    permission: Permission
    retry: Retry
    request: Record
    answer: Record | None
    """None: a one-way message, without an answer."""
    weight: int | Weight
    """The maximum bytes of the answer, or a function of the checked request's body."""
    subject: Subject = Subject.CLUSTER
    streams: bool = False
    """The answer is a stream: pushes, each with the answer's fields, and an end."""

    def __repr__(self) -> str:
        return f"<Operation {self.number} {self.name}>"

    def __str__(self) -> str:
        return self.name

    @property
    def writes(self) -> bool:
        """Whether the caller needs the outcome of an error."""
        return self.retry is not Retry.SAFE

    def answer_bytes(self, body: Body) -> int:
        """Return the maximum bytes of the answer to this checked request."""
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
