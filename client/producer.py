"""The idempotent producer: many records in flight, each applied once, in order per key (S8, S4)."""

from types import TracebackType
from typing import Final, Self

from .appends import AsyncTicket, checked_record, to_expect
from .cluster import Cluster, LogRoutes
from .protocol import limits
from .protocol.errors import InvalidArgument, LimitExceeded, LognodeError, PartialFailure
from .protocol.records import EXPECT_ANY
from .protocol.types import ANY, Expect, GivenHeaders
from .sender import Sender
from .window import Delivery

delivery_timeout_s: Final = 30.0
"""How long a producer retries a record by default."""


class AsyncProducer:
    """Appends records in the background. Made by `AsyncLog.producer`; use it as a context manager.

    `submit` returns a ticket at once, or waits while `unacked_bytes_max` bytes are unacknowledged;
    the ticket's `result` is the Ack. Leaving the context flushes, and raises PartialFailure unless
    every record was acknowledged.

    With a `name` the caller numbers the records. A number is applied once, also when a later
    session of the same name sends it, for 24 h of log time. Opening a name fences the older holders
    of the name. A failure, also a condition that did not hold, ends a named session: open the name
    again, and submit the unacknowledged records with the same numbers.
    """

    def __init__(
        self, cluster: Cluster, log: LogRoutes, *, name: str | None, linger_ms: float,
        unacked_bytes_max: int, timeout: float,
    ) -> None:  # fmt: skip
        size = 0 if name is None else len(name.encode())
        if name == "" or size > limits.producer_name_bytes_max:
            raise LimitExceeded(
                f"the producer name has {size} bytes; 1 to {limits.producer_name_bytes_max} "
                "are allowed",
                limit="producer_name_bytes_max", value=size,
                allowed=limits.producer_name_bytes_max,
            )  # fmt: skip
        if unacked_bytes_max < 1:
            raise InvalidArgument(
                "unacked_bytes_max is below 1; give at least 1 byte", what="unacked_bytes_max"
            )
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
        """The name of the producer; None when it is anonymous."""
        return self._name

    async def open(self) -> None:
        """Get the producer's id; with a name, fence the older holders of the name.

        Entering the context calls `open`. Raises LogNotFound, Unavailable, Timeout.
        """
        deadline = self._now() + self._timeout
        await self._sender.routed(deadline)
        await self._sender.identity.opened(deadline)

    async def submit(
        self,
        key: bytes | str,
        value: bytes | None,
        *,
        headers: GivenHeaders | None = None,
        number: int | None = None,
        expect: Expect = ANY,
        snapshot: bool = False,
    ) -> AsyncTicket:
        """Take one record; wait only for room.

        `expect`: ANY, ABSENT, or the key's last seq, checked atomically. The ticket raises
        SequenceMismatch when the condition does not hold. `snapshot=True` marks a logical snapshot
        of the key. `number`, for a named producer: the record's number, above all numbers
        submitted before.
        Raises InvalidArgument, LimitExceeded, Timeout (no room in time), or the error that ended
        the session.
        """
        key, size, found = checked_record(key, value, headers)
        condition = EXPECT_ANY if expect is ANY else to_expect(expect)
        if (number is None) != (self._name is None):
            raise InvalidArgument(
                "number is only for producers with a name, and every record of such a "
                "producer needs a number",
                what="number",
            )
        if number is not None:
            if number <= self._last_number:
                raise InvalidArgument(
                    f"number {number} does not follow {self._last_number}; give rising "
                    "numbers from 1 on",
                    what="number",
                )
            self._last_number = number
        sender = self._sender
        deadline = self._now() + self._timeout
        window = sender.window
        if window.fatal is not None or not window.has_room(number):
            await window.room(deadline, number)
        if number is None:  # the ticket shows the number at once
            number = window.next_number
        batch, position = sender.batcher.add(
            key, value, found, size, deadline, number, expect=condition, snapshot=snapshot
        )
        return AsyncTicket(batch, position)

    async def flush(self) -> None:
        """Return when every record submitted so far is acknowledged or has failed.

        The tickets and `close` report which records failed.
        """
        await self._sender.flush()

    @property
    def last_error(self) -> LognodeError | None:
        """The newest error of a record, or None."""
        return self._sender.window.last_error

    @property
    def delivery(self) -> Delivery:
        """Return the outcome of the records settled so far."""
        return self._sender.window.delivery

    async def close(self, timeout: float | None = None) -> Delivery:
        """Flush for at most `timeout` seconds, then give up; always returns.

        Returns the numbers of records that were acknowledged, not applied, and of unknown outcome.
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
        # An error in the body must not wait in addition for a cluster that may be gone.
        delivery = await self.close(None if kind is None else min(self._timeout, 1.0))
        if kind is None and delivery.undelivered:
            raise PartialFailure(
                f"{delivery.undelivered} of {delivery.undelivered + delivery.acknowledged} "
                f"records were not acknowledged; the outcome of {delivery.unknown} is "
                f"unknown; the last error: {self._sender.window.last_error}",
                outcome=delivery.outcome,
                not_applied=delivery.not_applied,
                unknown=delivery.unknown,
                acknowledged=delivery.acknowledged,
            )
