"""The memory of one accepted connection: its requests, and their answers.

The meter takes bytes from two budgets (see `budget`) and returns them:

    requests   from the header of a frame, before its bytes are kept, to its answer
    answers    from before an answer is built until the kernel has taken it

A connection without room for a frame is not read until there is room. A frame that has begun has
room for all of its bytes, so that it can end. Up to `frame_free_bytes` of a frame need no room.
Small answers are charged together with their requests. Sent bytes count from then on, with or
without room, and a connection with many unsent bytes starts no more requests.
"""

from collections.abc import Callable
from typing import Final

from ..fair_turns import FairTurns
from ..protocol import limits
from ..transport import FrameTransport
from .budget import Account, Budget, BudgetLimits, Pressed, Ticket
from .readers import Reader

CHUNK_BYTES: Final = 256 * limits.KIB
_FRAME_BYTES: Final = limits.frame_bytes_max + limits.KIB


class Budgets:
    """The memory budgets of all connections of one kind."""

    def __init__(self) -> None:
        self.answers = Budget(
            BudgetLimits(
                node_bytes=limits.answers_node_bytes_max,
                principal_bytes=limits.answers_principal_bytes_max,
                connection_bytes=limits.answers_connection_bytes_max,
                floor_bytes=_FRAME_BYTES,
            )
        )
        self.requests = Budget(
            BudgetLimits(
                node_bytes=limits.requests_node_bytes_max,
                principal_bytes=limits.requests_principal_bytes_max,
                connection_bytes=limits.requests_in_flight_bytes_max,
                floor_bytes=_FRAME_BYTES,
            )
        )
        self._pressed = Pressed(False, frozenset())

    def look(self, now: float) -> None:
        """Note the answers that have waited for room too long."""
        self._pressed = self.answers.pressed(now - limits.reader_patience_pressed_s)

    def is_pressed(self, account: Account) -> bool:
        """Return whether others have waited too long for the room that the account takes."""
        return self._pressed.concerns(account)


class NodeBudgets:
    """The budgets that the listeners of one node share. Nodes of the cluster take nothing from
    clients."""

    def __init__(self) -> None:
        self.clients = Budgets()
        self.peers = Budgets()
        self.turns = FairTurns()

    def look(self, now: float) -> None:
        """Note the answers that have waited for room too long."""
        self.clients.look(now)
        self.peers.look(now)


class Meter:
    """The accounts of one connection. `on_room` is called when reading and serving may continue."""

    def __init__(
        self,
        transport: FrameTransport,
        budgets: Budgets,
        principal: str,
        *,
        clock: Callable[[], float],
        on_room: Callable[[], None],
    ) -> None:
        self.clock = clock
        """The clock of tickets, in seconds."""
        self.answers: Account = budgets.answers.open(principal)
        self.starves = False
        """Whether reading waits for room."""
        self._requests: Account = budgets.requests.open(principal)
        self._budgets = budgets
        self._transport = transport
        self._on_room = on_room
        self._unsent = 0
        """Bytes queued for the kernel and counted as answers."""
        self._reader = Reader()
        self._frame = 0
        """Bytes taken for the incomplete frame."""
        self._ticket: Ticket | None = None
        """The ticket for which reading waits, or None."""

    @property
    def principal(self) -> str:
        """The name of the principal that pays."""
        return self.answers.principal.name

    @property
    def held(self) -> tuple[int, int]:
        """Bytes of answers and of requests."""
        return self.answers.held, self._requests.held

    @property
    def may_start(self) -> bool:
        """Whether another request may start, or a ping be answered: few bytes are unsent."""
        unsent = self._transport.queued_bytes
        return unsent <= limits.unsent_free_bytes or (
            unsent < limits.send_buffer_bytes_max and not self.answers.is_tight
        )

    def has_room(self) -> bool:
        """Return whether there is room for another request besides those being served.

        After False, serve none until `on_room` is called or a request has ended.
        """
        if self.starves or not self._is_full:
            return not self.starves
        self.starves = not self._requests.take(0)
        if self.starves:
            self._wait(0, self._frame)
        return not self.starves

    @property
    def read_bytes(self) -> int:
        """Return how many bytes to read at once: few while there is little room and none is
        taken."""
        if self._frame or not self._requests.is_tight:
            return CHUNK_BYTES
        return limits.frame_free_bytes

    def move(self, budgets: Budgets, principal: str) -> None:
        """Let this principal pay from now on: the connection has proved its identity."""
        if principal == self.principal and budgets is self._budgets:
            return
        answers, requests = budgets.answers.open(principal), budgets.requests.open(principal)
        answers.charge(self.answers.held)
        requests.charge(self._requests.held)
        self.answers.close()
        self._requests.close()
        self._budgets, self.answers, self._requests = budgets, answers, requests

    def sent(self) -> None:
        """Count the unsent bytes, after frames were queued or the kernel has taken some."""
        unsent = self._transport.kept_bytes
        if unsent > self._unsent:
            self.answers.charge(unsent - self._unsent)
        elif unsent < self._unsent:
            self.answers.give_back(self._unsent - unsent)
        self._unsent = unsent

    def unread(self) -> tuple[int, float] | None:
        """Return the bytes that the reader has not taken, and for how many seconds, when that is
        too long."""
        unsent = self._transport.queued_bytes
        silent_s = self._reader.silent_s(self.clock(), self._transport.taken_bytes, unsent)
        patience_s = limits.reader_patience_s
        if unsent >= limits.reader_progress_bytes and self._budgets.is_pressed(self.answers):
            patience_s = limits.reader_patience_pressed_s
        return (unsent, silent_s) if silent_s >= patience_s else None

    def keep(self, memory: int, answer_bytes: int = 0) -> int:
        """Count the memory of a waiting or served message; return the size for `drop`.

        A request that is served includes the bytes of a small answer.
        """
        size = memory + limits.request_overhead_bytes
        if answer_bytes <= limits.answer_small_bytes:
            size += answer_bytes
        self._requests.charge(size)
        return size

    def drop(self, size: int) -> None:
        """Return the bytes of a message that was served or given up."""
        self._requests.give_back(size)

    def may_read(self, incomplete: int) -> bool:
        """Take room for the incomplete frame of that length, 0 for none.

        Returns False when there is no room. The caller must then not read until `on_room` is
        called.
        """
        if self.starves:
            return False
        wanted = incomplete if incomplete > limits.frame_free_bytes else 0
        if self._frame != wanted:
            ended, self._frame = self._frame, 0
            self._requests.give_back(ended)
        elif wanted or not self._is_full:
            return True
        self.starves = not self._requests.take(wanted)
        if self.starves:
            self._wait(wanted, wanted)
        else:
            self._frame = wanted
        return not self.starves

    def leave(self) -> None:
        """Note that the socket is closed: nothing is read or unsent any more. Requests are still
        served."""
        if self._ticket is not None:
            self._requests.cancel(self._ticket)
        self._requests.give_back(self._frame)
        self.answers.give_back(self._unsent)
        self._frame = self._unsent = 0
        self._on_room = _nothing

    def close(self) -> None:
        """Return all bytes: the socket is closed, and no request is served."""
        self.answers.close()
        self._requests.close()
        self._on_room = _nothing  # its owner refers to this meter

    @property
    def _is_full(self) -> bool:
        """Whether the present requests leave no room for others."""
        return self._requests.held > limits.frame_free_bytes and self._requests.is_tight

    def _wait(self, size: int, frame: int) -> None:
        """Wait for room for so many bytes, with which the incomplete frame has `frame` bytes of
        room."""
        self._ticket = self._requests.wait(size, self.clock(), lambda: self._read_on(frame))

    def _read_on(self, frame: int) -> None:
        self.starves, self._frame, self._ticket = False, frame, None
        self._on_room()


def _nothing() -> None:
    return
