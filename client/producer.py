"""The idempotent producer: many records under way, each applied once, in order per key (S8, S4)."""

from types import TracebackType
from typing import Final, Self

from .appends import AsyncTicket, checked_record
from .cluster import Cluster, LogRoutes
from .protocol import limits
from .protocol.errors import InvalidArgument, LimitExceeded, PartialFailure
from .protocol.types import Headers
from .sender import Delivery, Sender

delivery_timeout_s: Final = 30.0
"""How long a producer goes on with a record, unless told otherwise."""


class AsyncProducer:
    """Appends records in the background. Made by `AsyncLog.producer`; use it as a context manager.

    `submit` returns a ticket at once, or waits while `unacked_bytes_max` bytes are unacknowledged;
    the ticket's `result` is the Ack. Leaving the context flushes, and raises PartialFailure unless
    every record was acknowledged.

    With a `name` the numbering is the caller's: the same number is applied once, also by a later
    session of the same name, for 24 h of log time. Opening it fences older holders of the name. A
    failure ends a named session: resume by opening it again and submitting what was not
    acknowledged with the same numbers.
    """

    def __init__(
        self, cluster: Cluster, log: LogRoutes, *, name: str | None, linger_ms: float,
        unacked_bytes_max: int, timeout: float,
    ) -> None:  # fmt: skip
        size = 0 if name is None else len(name.encode())
        if name == "" or size > limits.producer_name_bytes_max:
            raise LimitExceeded(
                f"producer name of {size} bytes; 1 to {limits.producer_name_bytes_max} are allowed",
                limit="producer_name_bytes_max", value=size,
                allowed=limits.producer_name_bytes_max,
            )  # fmt: skip
        if unacked_bytes_max < 1:
            raise InvalidArgument("unacked_bytes_max is at least 1 byte", what="unacked_bytes_max")
        self._name = name
        self._timeout = timeout
        self._last_number = 0
        self._sender = Sender(
            cluster, log, name=name, linger_s=linger_ms / 1000,
            unacked_bytes_max=unacked_bytes_max,
        )  # fmt: skip
        self._now = cluster.now

    @property
    def name(self) -> str | None:
        """The producer's name, None when it is anonymous."""
        return self._name

    async def open(self) -> None:
        """Get the producer's id; with a name, fence its older holders.

        Entering the context does it. Raises LogNotFound, Unavailable, Timeout.
        """
        deadline = self._now() + self._timeout
        await self._sender.routed(deadline)
        await self._sender.identity.opened(deadline)

    async def submit(
        self,
        key: bytes | str,
        value: bytes | None,
        *,
        headers: Headers | None = None,
        number: int | None = None,
        snapshot: bool = False,
    ) -> AsyncTicket:
        """Take one record; waits only for room.

        `snapshot=True` marks a logical snapshot of the key. `number`, with a named producer: the
        record's number, above all those submitted before.
        Raises InvalidArgument, LimitExceeded, Timeout (no room in time), or what ended the session.
        """
        key, size = checked_record(key, value, headers)
        if (number is None) != (self._name is None):
            raise InvalidArgument(
                "number= is for producers with a name, and needed there", what="number"
            )
        if number is not None:
            if number <= self._last_number:
                raise InvalidArgument(
                    f"number {number} does not follow {self._last_number}: numbers rise from 1",
                    what="number",
                )
            self._last_number = number
        sender = self._sender
        deadline = self._now() + self._timeout
        if sender.fatal is not None or not sender.has_room(number):
            await sender.room(deadline, number)
        batch, position = sender.add(key, value, headers, size, deadline, number, snapshot=snapshot)
        return AsyncTicket(batch, position)

    async def flush(self) -> None:
        """Return when every record submitted so far is acknowledged or has failed.

        Says nothing about which: the tickets do, and `close`.
        """
        await self._sender.flush()

    @property
    def delivery(self) -> Delivery:
        """What became of the records settled so far."""
        return self._sender.delivery

    async def close(self, timeout: float | None = None) -> Delivery:
        """Flush for at most `timeout` seconds, then give up; always returns.

        The result counts the records acknowledged, not applied, and of unknown outcome.
        """
        return await self._sender.close(self._timeout if timeout is None else timeout)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # An error in the body is not made worse by waiting for a cluster that may be gone.
        delivery = await self.close(None if kind is None else min(self._timeout, 1.0))
        if kind is None and delivery.undelivered:
            raise PartialFailure(
                f"{delivery.undelivered} of {delivery.undelivered + delivery.acknowledged} records "
                f"were not acknowledged; outcome unknown for {delivery.unknown}; the last error: "
                f"{self._sender.last_error}",
                outcome="unknown" if delivery.unknown else "not_applied",
                not_applied=delivery.not_applied,
                unknown=delivery.unknown,
                acknowledged=delivery.acknowledged,
            )
