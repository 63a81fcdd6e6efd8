"""The rights of an accepted connection."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..protocol import Operation
from ..protocol.errors import Unauthorized
from ..protocol.principal import Principal

if TYPE_CHECKING:
    from ..protocol.records import Batch


class Keys(Protocol):
    """Some keys of a log."""

    def has_all(self, keys: Sequence[bytes]) -> bool:
        """Return whether all of these keys are among them."""


class Allowed(NamedTuple):
    """The permitted content of the batches of one request."""

    keys: Keys | None
    """The permitted keys of their records; None: every key."""
    producers: range
    """The permitted producer ids, besides 0 for records without numbers."""

    def check(self, batch: "Batch") -> None:
        """Raise Unauthorized for a batch with forbidden content; nothing of it was applied."""
        if self.keys is not None and not self.keys.has_all(batch.keys):
            raise Unauthorized(
                "a key of the batch is outside of the keys that the token allows; use keys of "
                "the token's scopes, or another token"
            )
        if batch.producer:
            self.check_producer(batch.producer)

    def check_producer(self, producer: int) -> None:
        """Raise Unauthorized for a producer id that another owner has opened."""
        if producer not in self.producers:
            raise Unauthorized(
                f"the grant of the request does not cover producer id {producer}; open a "
                "producer, use its id, and send the grant of the answer"
            )


class Access(Protocol):
    """The rights of one connection. The acceptor asks it about each request before a handler
    sees the request."""

    @property
    def principal(self) -> Principal:
        """The holder of these rights."""

    @property
    def owner(self) -> str:
        """The owner of the producers that the connection opens; "" while clients have no names."""

    def authorise(self, operation: Operation, body: dict[str, Any]) -> Allowed | None:
        """Return the permitted content of the request's batches; None: anything.

        `body` has passed its operation's record. Raises Unauthorized for a request that the
        principal may not make, RangeNotFound and Unavailable when this node cannot tell.
        """
