"""What an accepted connection may ask for."""

from typing import Any, Protocol

from .key_spans import KeySpans
from .principal import Principal
from .protocol import Operation


class Access(Protocol):
    """The rights of one connection. The acceptor asks it about each request, before any handler
    sees the request."""

    @property
    def principal(self) -> Principal:
        """Who has these rights."""

    def authorise(self, operation: Operation, body: dict[str, Any]) -> KeySpans | None:
        """Return the keys that the request may name in its batches; None: every key.

        `body` has passed its operation's record. Raises Unauthorized for a request that the
        principal may not make, RangeNotFound where this node cannot tell.
        """
