"""The connections of one listening socket: their admission, their bounds, and their end.

The acceptor handles the protocol of a connection. This module counts every transport from its
accept to its close and keeps it within the `Bounds` of its listener (`seats`, `incomplete`). It
also ends connections whose peers do not read.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..protocol import limits
from ..protocol.errors import IDLE, Overloaded, Unavailable
from ..protocol.tls import Channel
from ..transport import FrameTransport
from .abandoned import Abandoned
from .handshake_turns import HandshakeTurns
from .incomplete import Incomplete
from .listening import Entrance
from .meter import CHUNK_BYTES, NodeBudgets
from .seats import Bounds, Seats

if TYPE_CHECKING:
    from .acceptor import ServerConnection

look_every_s: Final = 1.0
"""The pause between two looks at the readers."""
_SLACK: Final = 8
"""Sockets accepted while others are being closed for them."""

Closed = Callable[[str, str], None]
"""Gets the reason, in a few words, and the address of a connection that was closed for a bound."""


class Listener:
    """The open connections of one listening socket, within its `Bounds`."""

    def __init__(
        self,
        connect: Callable[["Accepted"], "ServerConnection"],
        budgets: NodeBudgets,
        bounds: Bounds,
        on_closed: Closed,
        channel: Callable[[], Channel] | None,
    ) -> None:
        """Take the factories: `connect` makes the connection on a transport; `channel` makes the
        TLS of one connection, None without TLS."""
        self.bounds = bounds
        self.budgets = budgets
        self.chunk = memoryview(bytearray(CHUNK_BYTES))
        """The buffer of one read, used until its bytes are decoded."""
        self.handshakes = HandshakeTurns()
        self.closed = False
        self.told = on_closed
        self.entrance = Entrance(
            self.accept, sockets_max=bounds.connections + bounds.handshakes + _SLACK,
            on_lack=lambda error: on_closed("lack", str(error)),
        )  # fmt: skip
        self.incomplete: Incomplete[Accepted] = Incomplete()
        self.abandoned = Abandoned()
        self._connect = connect
        self._channel = channel
        self._seats: Seats[Accepted] = Seats(bounds, random.Random())
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port of the listener."""
        return self.entrance.port

    @property
    def connections(self) -> int:
        """Open connections, during or after their handshake."""
        return len(self._seats)

    @property
    def guests(self) -> list["ServerConnection"]:
        """The open connections, during or after their handshake."""
        seated = (accepted.connection for accepted in self._seats.guests)
        return [connection for connection in seated if connection is not None]

    def accept(self) -> FrameTransport:
        """Return the protocol of a connection that was just accepted."""
        accepted = Accepted(self, None if self._channel is None else self._channel())
        accepted.connection = self._connect(accepted)
        late = self._seats.arrive(accepted)
        if late is not None:
            late.tell("door")
            late.abort(Overloaded("too many handshakes run at once", retry_after=1.0))
            self.entrance.shut(late)
        return accepted

    def sit(self, accepted: "Accepted") -> None:
        """Take a seat after the handshake. Raises Overloaded."""
        try:
            idle = self._seats.sit(accepted)
        except Overloaded:
            accepted.tell("full")
            raise
        if idle is not None:
            idle.tell("displaced")
            idle.refuse(
                Unavailable("the node closed it to make room for a new connection", reason=IDLE)
            )

    def left(self, accepted: "Accepted") -> None:
        """Note that the connection is closed."""
        self._seats.leave(accepted)
        self.incomplete.forget(accepted)
        self.entrance.gone(accepted)

    def recheck(self) -> None:
        """End the connections whose hello TLS no longer allows."""
        for accepted in self._seats.guests:
            if accepted.connection is not None:
                accepted.connection.recheck()

    def look(self) -> None:
        """End the connections whose peers do not read; repeat every second."""
        self._look = self._loop.call_later(look_every_s, self.look)
        self.budgets.look(self._loop.time())
        for accepted in self._seats.guests:
            accepted.look()

    def received(self, accepted: "Accepted", held: int) -> None:
        """Note that bytes came, and that `held` bytes of an incomplete frame are kept."""
        self.incomplete.note(accepted, accepted.plain_in - held, held)
        while self.incomplete.size > self.bounds.incomplete_bytes:
            self._give_up(self.incomplete.oldest, "crowded", "the node holds too many large frames")
        if self._watch is None and self.bounds.frame_bytes_per_s and self.incomplete.size:
            self._watch = self._loop.call_later(limits.frame_window_s, self._look_at_frames)

    def _look_at_frames(self) -> None:
        self._watch = None
        bytes_min = int(self.bounds.frame_bytes_per_s * limits.frame_window_s)
        for accepted in self.incomplete.slow(bytes_min):
            told = f"its bytes arrived at less than {self.bounds.frame_bytes_per_s} a second"
            self._give_up(accepted, "slow", told)
        if self.incomplete.size and not self.closed:
            self._watch = self._loop.call_later(limits.frame_window_s, self._look_at_frames)

    def _give_up(self, accepted: "Accepted", reason: str, told: str) -> None:
        self.incomplete.forget(accepted)
        accepted.tell(reason)
        accepted.refuse(Unavailable(f"the node gave up an incomplete frame: {told}", reason="slow"))

    async def close(self) -> None:
        """Stop listening and close every connection; returns within two seconds."""
        self.closed = True
        for timer in (self._watch, self._look):
            if timer is not None:
                timer.cancel()
        await self.entrance.close()
        closing = self._seats.guests
        for accepted in closing:
            accepted.close(Unavailable("this node stops; use another node", reason="stopping"))
        if closing:
            await asyncio.gather(*(accepted.wait_closed(1.0) for accepted in closing))
        self.abandoned.end_now()


class Accepted(FrameTransport, asyncio.BufferedProtocol):
    """A transport that its listener counts. One read takes at most the bytes that its meter
    allows, into memory that the listener's connections share."""

    def __init__(self, listener: Listener, channel: Channel | None) -> None:
        super().__init__(channel)
        self.connection: ServerConnection | None = None
        self._listener = listener
        self._idle: asyncio.TimerHandle | None = None
        """The timer of the next look for idleness, after the handshake."""
        self._came_s = 0.0
        """The loop time at which bytes of frames last arrived, without those of an unfinished
        TLS record."""
        self._busy_s = 0.0
        self._seen_in = 0
        self._held = 0

    @property
    def host(self) -> str:
        """The remote address without the port."""
        return self.peer_address.rpartition(":")[0]

    @property
    def idle_since(self) -> float | None:
        """Loop time of the last known request; None while a request is served, or waits for its
        turn or for room."""
        waits = self._in_line or not self._wants_frames
        if waits or (self.connection is not None and self.connection.busy):
            return None
        return max(self._came_s, self._busy_s)

    @property
    def is_read(self) -> bool:
        """Whether this node is reading from the connection."""
        return self._transport is not None and self._transport.is_reading()

    def tell(self, reason: str) -> None:
        """Report why the connection has to end."""
        self._listener.told(reason, self.peer_address)

    def sit(self) -> None:
        """Take a seat after the handshake. Raises Overloaded."""
        self._listener.sit(self)
        if self._listener.bounds.idle_s:
            self._idle = self._loop.call_later(self._listener.bounds.idle_s, self._look_for_idle)

    def look(self) -> None:
        """End the connection if its peer does not read."""
        if self.connection is not None and self._transport is not None:
            self.connection.look()

    def _look_for_idle(self) -> None:
        if self.lost is not None:
            return
        now, since = self._loop.time(), self.idle_since
        if since is None:
            self._busy_s = since = now
        left = since + self._listener.bounds.idle_s - now
        if left > 0:
            self._idle = self._loop.call_later(left, self._look_for_idle)
            return
        self.tell("idle")
        told = f"the client sent no request for {self._listener.bounds.idle_s:g} s"
        self.refuse(Unavailable(told, reason=IDLE))

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        began = time.perf_counter()
        super().connection_made(transport)
        self._came_s = self.last_in_s
        if self.connection is not None:
            self.connection.begin()
        if self.lost is not None:  # it was ended before it had a transport
            self.abort(self.lost)
        self._listener.entrance.spent(time.perf_counter() - began)

    def get_buffer(self, sizehint: int) -> memoryview:
        wanted = 0 if self.connection is None else self.connection.read_bytes
        return self._listener.chunk[:wanted]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._listener.chunk[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        began = time.perf_counter()
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)
        self._listener.left(self)
        if self.connection is not None and self._transport is not None:
            self.connection.gone()
        self.connection = self._idle = None
        self.forget_owner()
        self._listener.entrance.spent(time.perf_counter() - began)

    # Called by the transport.

    def read_on(self, on: bool) -> None:
        super().read_on(on)
        self._listener.incomplete.excuse(self)

    def _hand_over(self, until: float) -> None:
        super()._hand_over(until)
        if self._seen_in != self.plain_in:
            self._seen_in = self.plain_in
            self._came_s = self.last_in_s
        held = self._decoder.buffered
        if (held or self._held) and self.lost is None:
            self._held = held
            self._listener.received(self, held)
