# Generated from client/appends.py by scripts/unasync; edit that.

"""Blocking twins of those in `client/appends.py`."""

from ..appends import AsyncTicket
from ..loop_thread import LoopThread
from ..protocol.types import Ack


class Ticket:
    """The promise of an acknowledgement; `result` returns the Ack, or raises the error."""

    def __init__(self, loop: LoopThread, twin: AsyncTicket) -> None:
        self._loop = loop
        self._twin = twin

    def result(self) -> Ack:
        """Wait for the Ack, or raise the error of the record."""
        return self._loop.call(self._twin.result())

    @property
    def number(self) -> int:
        """The record's number in its producer's sequence."""
        return self._twin.number

    @property
    def done(self) -> bool:
        """Whether awaiting the ticket returns or raises at once."""
        return self._twin.done
