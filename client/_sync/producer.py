# Generated from client/producer.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/producer.py`."""

from types import TracebackType
from typing import Self

from ..loop_thread import LoopThread
from ..producer import AsyncProducer
from ..protocol.errors import LognodeError
from ..protocol.types import ANY, Expect, GivenHeaders
from ..window import Delivery
from .appends import Ticket


class Producer:
    """Appends records in the background. Made by `Log.producer`; use it as a context manager.

    `submit` returns a ticket at once, or waits while `unacked_bytes_max` bytes are unacknowledged;
    the ticket's `result` is the Ack. Leaving the context flushes, and raises PartialFailure unless
    every record was acknowledged.

    With a `name` the caller numbers the records. A number is applied once, also when a later
    session of the same name sends it, for 24 h of log time. Opening a name fences the older holders
    of the name. A failure, also a condition that did not hold, ends a named session: open the name
    again, and submit the unacknowledged records with the same numbers.
    """

    def __init__(self, loop: LoopThread, twin: AsyncProducer) -> None:
        self._loop = loop
        self._twin = twin

    @property
    def name(self) -> str | None:
        """The name of the producer; None when it is anonymous."""
        return self._twin.name

    def open(self) -> None:
        """Get the producer's id; with a name, fence the older holders of the name.

        Entering the context calls `open`. Raises LogNotFound, Unavailable, Timeout.
        """
        self._loop.call(self._twin.open())

    def submit(
        self,
        key: bytes | str,
        value: bytes | None,
        *,
        headers: GivenHeaders | None = None,
        number: int | None = None,
        expect: Expect = ANY,
        snapshot: bool = False,
    ) -> Ticket:
        """Take one record; wait only for room.

        `expect`: ANY, ABSENT, or the key's last seq, checked atomically. The ticket raises
        SequenceMismatch when the condition does not hold. `snapshot=True` marks a logical snapshot
        of the key. `number`, for a named producer: the record's number, above all numbers
        submitted before.
        Raises InvalidArgument, LimitExceeded, Timeout (no room in time), or the error that ended
        the session.
        """
        return Ticket(
            self._loop,
            self._loop.call(
                self._twin.submit(
                    key, value, headers=headers, number=number, expect=expect, snapshot=snapshot
                )
            ),
        )

    def flush(self) -> None:
        """Return when every record submitted so far is acknowledged or has failed.

        The tickets and `close` report which records failed.
        """
        self._loop.call(self._twin.flush())

    @property
    def last_error(self) -> LognodeError | None:
        """The newest error of a record, or None."""
        return self._twin.last_error

    @property
    def delivery(self) -> Delivery:
        """Return the outcome of the records settled so far."""
        return self._twin.delivery

    def close(self, timeout: float | None = None) -> Delivery:
        """Flush for at most `timeout` seconds, then give up; always returns.

        Returns the numbers of records that were acknowledged, not applied, and of unknown outcome.
        """
        return self._loop.call(self._twin.close(timeout))

    def __enter__(self) -> Self:
        self._loop.call(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call(self._twin.__aexit__(kind, error, traceback))
