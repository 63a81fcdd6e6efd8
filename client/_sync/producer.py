# Generated from client/producer.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/producer.py`."""

from types import TracebackType
from typing import Self

from ..loop_thread import LoopThread
from ..producer import AsyncProducer
from ..protocol.types import Headers
from ..sender import Delivery
from .appends import Ticket


class Producer:
    """Appends records in the background. Made by `Log.producer`; use it as a context manager.

    `submit` returns a ticket at once, or waits while `unacked_bytes_max` bytes are unacknowledged;
    the ticket's `result` is the Ack. Leaving the context flushes, and raises PartialFailure unless
    every record was acknowledged.

    With a `name` the numbering is the caller's: the same number is applied once, also by a later
    session of the same name, for 24 h of log time. Opening it fences older holders of the name. A
    failure ends a named session: resume by opening it again and submitting what was not
    acknowledged with the same numbers.
    """

    def __init__(self, loop: LoopThread, twin: AsyncProducer) -> None:
        self._loop = loop
        self._twin = twin

    @property
    def name(self) -> str | None:
        """The producer's name, None when it is anonymous."""
        return self._twin.name

    def open(self) -> None:
        """Get the producer's id; with a name, fence its older holders.

        Entering the context does it. Raises LogNotFound, Unavailable, Timeout.
        """
        self._loop.call(self._twin.open())

    def submit(
        self,
        key: bytes | str,
        value: bytes | None,
        *,
        headers: Headers | None = None,
        number: int | None = None,
        snapshot: bool = False,
    ) -> Ticket:
        """Take one record; waits only for room.

        `snapshot=True` marks a logical snapshot of the key. `number`, with a named producer: the
        record's number, above all those submitted before.
        Raises InvalidArgument, LimitExceeded, Timeout (no room in time), or what ended the session.
        """
        return Ticket(
            self._loop,
            self._loop.call(
                self._twin.submit(key, value, headers=headers, number=number, snapshot=snapshot)
            ),
        )

    def flush(self) -> None:
        """Return when every record submitted so far is acknowledged or has failed.

        Says nothing about which: the tickets do, and `close`.
        """
        self._loop.call(self._twin.flush())

    @property
    def delivery(self) -> Delivery:
        """What became of the records settled so far."""
        return self._twin.delivery

    def close(self, timeout: float | None = None) -> Delivery:
        """Flush for at most `timeout` seconds, then give up; always returns.

        The result counts the records acknowledged, not applied, and of unknown outcome.
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
